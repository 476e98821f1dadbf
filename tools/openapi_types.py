#!/usr/bin/env python3
"""Print the TypeScript types of the API from our own OpenAPI document: `web/src/api/schema.ts`.

Run by `make web-types`. A unit test compares the file with the output, so the dashboard cannot drift from the API.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

TARGET: Final = Path(__file__).parent.parent / "web" / "src" / "api" / "schema.ts"
_HEADER: Final = (
    "// Generated from the OpenAPI document by tools/openapi_types.py. Do not edit: run `make web-types`.\n"
)
_PLAIN: Final = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def type_text(schema: dict[str, Any]) -> str:
    """One JSON Schema as a TypeScript type."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    if alternatives := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(dict.fromkeys(type_text(one) for one in alternatives))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_PLAIN.get(one, "unknown") for one in kind)
    if kind == "array" and "prefixItems" in schema:
        return f"[{', '.join(type_text(one) for one in schema['prefixItems'])}]"
    if kind == "array":
        item = type_text(schema.get("items", {}))
        return f"({item})[]" if " " in item else f"{item}[]"
    if kind == "object" and "properties" not in schema:
        values = schema.get("additionalProperties")
        return f"Record<string, {type_text(values) if isinstance(values, dict) else 'unknown'}>"
    return _PLAIN.get(str(kind), "unknown")


def interface_text(name: str, schema: dict[str, Any]) -> str:
    """One component as an interface, or as an alias where it is no object."""
    comment = " ".join(str(schema.get("description", "")).split()).replace("*/", "* /")
    lead = f"/** {comment} */\n" if comment else ""
    if "properties" not in schema:
        return f"{lead}export type {name} = {type_text(schema)};\n"
    required = set(schema.get("required", ()))
    lines = [
        f"  {field}{'' if field in required else '?'}: {type_text(one)};" for field, one in schema["properties"].items()
    ]
    return f"{lead}export interface {name} {{\n" + "\n".join(lines) + "\n}\n"


def generate() -> str:
    from windlass.api.openapi import document  # noqa: PLC0415 - imports the whole server
    from windlass.api.table import table  # noqa: PLC0415

    schemas = document(table())["components"]["schemas"]
    return _HEADER + "\n" + "\n".join(interface_text(name, schemas[name]) for name in sorted(schemas))


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(TARGET.read_text() != generate())
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(generate())

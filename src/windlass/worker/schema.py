"""The JSON Schema of a payload, from the types of a handler's parameters, for those who submit jobs from elsewhere.

The API refuses payloads by it (payload_check.py), so a parameter that takes more than its schema says is marked as not to
be checked: one that Pydantic reads, which takes "7" for a number; an enum that finds members for other values; one whose
author wrote into the schema by hand.
"""

import enum
import inspect
import json
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Final, NamedTuple

import msgspec
import msgspec.inspect

from windlass.payload_check import OPTIONAL, UNCHECKED
from windlass.worker import foreign_types

_REF: Final = "#/$defs/{name}"
_EMPTY: Final = inspect.Parameter.empty


class Taken(NamedTuple):
    """A parameter of a handler: its type, the adapter that reads it if msgspec does not, and its default."""

    name: str
    kind: Any
    adapter: foreign_types.Adapter | None
    default: Any = _EMPTY


def whole(payload: Taken) -> dict[str, Any] | None:
    """Of a handler that takes its payload as it is."""
    made = _made([payload])
    if made is None:
        return None
    ((schema,), defs) = made
    optional = {} if payload.default is _EMPTY else {OPTIONAL: True}
    return _with_default(schema, payload) | optional | ({"$defs": defs} if defs else {})


def named(taken: Sequence[Taken], rest: Taken | None) -> dict[str, Any] | None:
    """Of a handler with named parameters; `rest` is what it takes besides, under any name."""
    made = _made([*taken, *([] if rest is None else [rest])])
    if made is None:
        return None
    schemas, defs = made
    found: dict[str, Any] = {
        "type": "object",
        "properties": {each.name: _with_default(schema, each) for each, schema in zip(taken, schemas, strict=False)},
        "required": [each.name for each in taken if each.default is _EMPTY],
        "additionalProperties": False if rest is None else schemas[-1] or True,
    }
    return found | ({"$defs": defs} if defs else {})


def _made(taken: Sequence[Taken]) -> tuple[list[dict[str, Any]], dict[str, Any]] | None:
    """A schema each, and what they refer to; None if one of them cannot be told in JSON Schema."""
    ours = [each.kind for each in taken if each.adapter is None]
    try:
        plain, defs = msgspec.json.schema_components(ours, schema_hook=_hook, ref_template=_REF)
        waiting = iter(plain)
        schemas = [next(waiting) if each.adapter is None else _foreign(each.adapter, defs) for each in taken]
        schemas = [
            schema | {UNCHECKED: True} if _takes_more(each) else schema
            for schema, each in zip(schemas, taken, strict=True)
        ]
        json.dumps([schemas, defs], allow_nan=False)
    except (TypeError, ValueError, NotImplementedError, RecursionError):
        return None
    return schemas, defs


def _foreign(adapter: foreign_types.Adapter, defs: dict[str, Any]) -> dict[str, Any]:
    try:
        schema: dict[str, Any] = adapter.pydantic.json_schema(ref_template="#/$defs/{model}")
    except Exception as error:  # noqa: BLE001 - Pydantic has many, and a user's model may raise its own
        raise ValueError(str(error)) from None
    for name, one in schema.pop("$defs", {}).items():
        if defs.setdefault(name, one) != one:
            raise ValueError(f"two types are named {name}")
    return schema


def _takes_more(taken: Taken) -> bool:
    """Whether the handler takes values for this parameter that its schema does not tell of."""
    if taken.adapter is not None:
        return True
    return any(_is_inexact(node) for node in foreign_types.nodes(msgspec.inspect.type_info(taken.kind)))


def _is_inexact(node: Any) -> bool:
    if isinstance(node, msgspec.inspect.EnumType):
        return node.cls._missing_.__func__ is not enum.Enum._missing_.__func__  # type: ignore[attr-defined]
    return isinstance(node, msgspec.inspect.Metadata) and bool(node.extra_json_schema)


def _hook(kind: type) -> dict[str, Any]:
    if issubclass(kind, PurePath):
        return {"type": "string", "format": "path"}
    raise NotImplementedError


def _with_default(schema: dict[str, Any], taken: Taken) -> dict[str, Any]:
    """With its default, where that is one JSON can say."""
    if taken.default is _EMPTY or taken.adapter is not None:
        return schema
    try:
        default = msgspec.to_builtins(taken.default, str_keys=True, enc_hook=foreign_types.write)
        json.dumps(default, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return schema
    return schema | {"default": default}

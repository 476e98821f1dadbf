"""SQL is code in `.sql` files: this loads it.

A file holds named statements (`-- name: claim`). The text says `windlass.` before every name of ours, so it can be
pasted into psql; another schema name is put in its place here, quoted, and nothing else is ever built into SQL text.
"""

import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from windlass.config import is_schema_name
from windlass.errors import Misconfigured

_ROOT: Final = files("windlass.store") / "sql"
_NAME: Final = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_SCHEMA: Final = re.compile(r"\bwindlass\.")


def in_schema(sql: str, schema: str) -> str:
    """The statement with our schema's name put in."""
    if not is_schema_name(schema):
        raise Misconfigured(f"schema name {schema!r} must be 1 to 40 of a-z 0-9 _ and no name of PostgreSQL's own")
    return _SCHEMA.sub(f'"{schema}".', sql)


@cache
def statements(schema: str) -> dict[str, str]:
    """Every named statement, by name."""
    found: dict[str, str] = {}
    for file in sorted(_ROOT.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".sql"):
            found |= _parse(file, schema)
    return found


def migration_files() -> dict[str, str]:
    """The text of every migration file, by file name."""
    return {f.name: f.read_text() for f in (_ROOT / "migrations").iterdir() if f.name.endswith(".sql")}


def _parse(file: Traversable, schema: str) -> dict[str, str]:
    parts = _NAME.split(file.read_text())
    return {name: in_schema(body.strip(), schema) for name, body in zip(parts[1::2], parts[2::2], strict=True)}

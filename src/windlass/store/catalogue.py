"""Declared types as rows, and back."""

import json
from typing import Any

from asyncpg import Record

from windlass.lifecycle import retry_policy, storable
from windlass.model import Declared, KnownType


def declared_row(declared: Declared) -> dict[str, Any]:
    """For the declare statement. What a programmer may write into a docstring, PostgreSQL must be able to store."""
    return {
        "name": declared.name,
        "timeout_s": float(declared.timeout_s),
        "max_attempts": declared.max_attempts,
        "priority": declared.priority,
        "thread_demand": declared.thread_demand,
        "queue": declared.queue,
        "if_too_wide": declared.if_too_wide,
        "tags": list(declared.tags),
        "retry": None if declared.retry is None else {name: float(n) for name, n in declared.retry._asdict().items()},
        "isolation": declared.isolation,
        "at_most_once": declared.at_most_once,
        "description": None if declared.description is None else storable(declared.description),
        "schema": None if declared.schema is None else _storable_schema(declared.schema),
    }


def version_row(declared: Declared) -> dict[str, Any]:
    """For the statement that declares versions."""
    return {
        "type": declared.name,
        "digest": declared.digest,
        "fields": None if declared.fields is None else list(declared.fields),
        "schema": None if declared.schema is None else _storable_schema(declared.schema),
    }


def _storable_schema(text: str) -> Any:
    """None for the odd one, with a default or a choice that PostgreSQL cannot store: the type is declared without."""
    schema = json.loads(text)
    written = json.dumps(schema, ensure_ascii=False)
    return None if "\\u0000" in written or storable(written) != written else schema


def known_type(row: Record) -> KnownType:
    declared = Declared(
        name=row["name"],
        queue=row["queue"],
        priority=row["priority"],
        thread_demand=row["thread_demand"],
        max_attempts=row["max_attempts"],
        timeout_s=row["timeout_s"],
        retry=retry_policy(row["retry"]) if row["retry"] else None,
        tags=tuple(row["tags"]),
        if_too_wide=row["if_too_wide"],
        isolation=row["isolation"],
        at_most_once=row["at_most_once"],
        description=row["description"],
        schema=row["schema"],
    )
    return KnownType(
        declared,
        alive=row["versions"] > 0,
        versions=row["versions"],
        current=row["current"],
        served_by=row["served_by"],
    )

"""Taught to schemathesis: jobs as lines. It looks for this module by SCHEMATHESIS_HOOKS."""

import json
from typing import Any

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def ndjson(_context: Any, value: Any) -> bytes:
    """A list as one document a line; anything else as it is, for it is meant to be refused."""
    lines = value if isinstance(value, list) else [value]
    return "\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines).encode(errors="replace")

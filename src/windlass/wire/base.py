"""What the shapes have in common: names, numbers and moments with their limits, and how they are encoded."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from windlass.model import (
    key_max,
    priority_max,
    queue_name_max,
    tag_max,
    thread_demand_max,
    type_name_max,
)

# The end of a pattern: `$` alone lets a line end pass behind it, in Python though not in JavaScript.
END = r"$(?!\n)"
_NAME = rf"^[A-Za-z0-9_][A-Za-z0-9_.:/-]*{END}"

TypeName = Annotated[str, Meta(min_length=1, max_length=type_name_max, pattern=_NAME, examples=["email"])]
QueueName = Annotated[str, Meta(min_length=1, max_length=queue_name_max, pattern=_NAME, examples=["default"])]
Text = Annotated[str, Meta(min_length=1, max_length=type_name_max)]
Tag = Annotated[str, Meta(min_length=1, max_length=tag_max)]
Key = Annotated[str, Meta(min_length=1, max_length=key_max)]
Fingerprint = Annotated[
    str,
    Meta(min_length=1, max_length=64, description="of the error, as groups of dead letters tell it; failed jobs only"),
]
Priority = Annotated[int, Meta(ge=-priority_max, le=priority_max, description="larger runs first")]
Threads = Annotated[int, Meta(ge=1, le=thread_demand_max)]
Moment = Annotated[datetime, Meta(tz=True, description="RFC 3339, with its zone")]
StatusName = Literal["scheduled", "held", "ready", "running", "completed", "failed", "cancelled"]
StatusFilter = Annotated[
    Literal["pending", "scheduled", "held", "ready", "running", "completed", "failed", "cancelled"],
    Meta(description="`pending`: scheduled, held or ready"),
]
Scope = Literal["submit", "read", "operate", "admin"]


class Asked(Struct, kw_only=True, forbid_unknown_fields=True):
    """The base of everything that is asked."""


class Told(Struct, kw_only=True):
    """The base of everything that is told. Clients ignore what they do not know: it may come from a newer server."""


def encode(told: Told) -> bytes:
    return _encoder.encode(told)


def encode_any(value: Any) -> bytes:
    """Any JSON value with something told in it: a bare list, say."""
    return _encoder.encode(value)


_encoder = msgspec.json.Encoder()

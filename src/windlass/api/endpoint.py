"""One endpoint of the API as a value: the route, who may call it, what it takes and tells. The server dispatches by it
and OpenAPI is made of it, so that neither can say what the other does not do.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from windlass.errors import JobNotFound
from windlass.wire import Asked, Scope, Told

if TYPE_CHECKING:  # these import this module
    from windlass.api.parts import Parts
    from windlass.auth.tokens import Actor


@dataclass(frozen=True, slots=True)
class Answer:
    """What a handler returns when it is more than something told with the endpoint's first status.

    Told is sent as JSON, bytes as JSON already written, a text as text/plain, None as an empty body.
    """

    told: Told | bytes | str | None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Call:
    """One request, decoded. `query` and `body` are of the types the endpoint names, or None if it names none; of a bulk
    endpoint the body is an async iterator of lists of items, and their sizes, that arrive while it is read. `raw` is
    the body as it came. `headers`: by lower-case name, the last of each."""

    request: Request
    parts: "Parts"
    actor: "Actor"
    request_id: str
    path: Mapping[str, str]
    headers: Mapping[bytes, bytes]
    query: Any = None
    body: Any = None
    raw: bytes = b""
    note: tuple[str | None, Any] | None = None  # for the audit row: what was acted on, and any JSON value about it
    end_turn: Callable[[], Awaitable[None]] | None = None  # a large body was decoded, and its values are not needed now
    unnoted: bool = False  # nothing was done that an audit row should tell: a preview, say

    @property
    def id(self) -> UUID:
        """The job that the path names. What is no UUID names no job: 404, as for one that is gone."""
        try:
            return UUID(self.path["id"])
        except ValueError:
            raise JobNotFound(self.path["id"][:64]) from None


Handler = Callable[[Call], Awaitable[Answer | Told | Response | None]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A handler returns Told (sent with the first status of `answers`), an Answer, None (an empty body), or a Response of
    its own making for streams and pages. It raises WindlassErrors for everything else.

    `answers`: by status, the type of what is told; None where there is no body, str where it is a text. `problems`: statuses of
    errors beyond those that follow from the rest (see openapi.py). `audit`: the operator action a row is written for
    once it has succeeded. `bulk`: the larger limit of body size applies, and NDJSON is taken as well.
    `identified`: open to every scope, but not to nobody; its handler asks the gate. `optional`: the body may be left out; its fields then have their defaults. `takes` and `gives`: headers of the
    request and of the answers, with what they mean. `listed`: appears in OpenAPI.
    """

    method: str
    path: str
    scope: Scope | None
    handler: Handler
    summary: str
    tag: str
    answers: Mapping[int, Any]
    query: type[Asked] | None = None
    body: Any = None
    problems: tuple[int, ...] = ()
    audit: str | None = None
    bulk: bool = False
    optional: bool = False
    identified: bool = False
    takes: Mapping[str, str] = field(default_factory=dict)
    gives: Mapping[str, str] = field(default_factory=dict)
    listed: bool = True
    description: str = ""
    media: str = "application/json"

"""Any exception as RFC 9457 problem+json. What we raise on purpose says what is wrong; anything else is a fault of ours,
and tells the caller only the id under which the log has the rest.
"""

import math
from typing import Any, Final, NamedTuple

from windlass.errors import BeyondQuota, QuotaExceeded, Unauthorized, Unavailable, WindlassError, WrongMethod
from windlass.wire import Problem, Refused, encode

MEDIA: Final = "application/problem+json"
_TITLES: Final = {
    400: "Bad request",
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Too slow",
    409: "Conflict",
    413: "Too large",
    415: "Unsupported media type",
    422: "Not valid",
    429: "Too many requests",
    431: "Too large",
    500: "Internal error",
    503: "Unavailable",
}
_RETRY_AFTER_S: Final = 1


class Told(NamedTuple):
    """A problem, ready to be sent."""

    status: int
    headers: dict[str, str]
    body: bytes


def title(status: int) -> str:
    return _TITLES.get(status, "Error")


def problem(error: Exception, *, request_id: str | None = None, instance: str | None = None) -> Told:
    if isinstance(error, WindlassError) and error.http_status != 500:
        status, code, detail = error.http_status, error.code, str(error)
        if is_of_the_database(error):
            detail = "the database cannot serve this now; try again"
    else:
        status, code = 500, "internal"
        detail = "something went wrong that is not your fault; the log has it under the request id"
    said = Problem(
        type=f"urn:windlass:problem:{code}",
        title=title(status),
        status=status,
        code=code,
        detail=_storable(detail),
        instance=instance,
        request_id=request_id,
        field=_field(error),
        **_quota(error),
        errors=[one for one in getattr(error, "errors", ()) if isinstance(one, Refused)],
    )
    return Told(status, {"content-type": MEDIA, **_headers(error, status)}, encode(said))


def is_of_the_database(error: Exception) -> bool:
    """Whether it speaks in the words of the driver: they name hosts and users, and logins are open to anyone."""
    return isinstance(error, Unavailable) and error.__cause__ is not None


def _headers(error: Exception, status: int) -> dict[str, str]:
    headers = {}
    if isinstance(error, WrongMethod):
        headers["allow"] = ", ".join(error.allowed)
    if isinstance(error, Unauthorized):
        headers["www-authenticate"] = 'Bearer realm="windlass"'
    wait_s = getattr(error, "retry_after_s", _RETRY_AFTER_S if status == 503 else None)
    if wait_s is not None:
        headers["retry-after"] = str(max(1, math.ceil(wait_s)))
    if status == 408:
        headers["connection"] = "close"  # what still comes of this request is not waited for
    return headers


def _field(error: Exception) -> str | None:
    field: Any = getattr(error, "field", None)
    return _storable(field) if isinstance(field, str) else None


def _quota(error: Exception) -> dict[str, Any]:
    if not isinstance(error, BeyondQuota | QuotaExceeded):
        return {}
    return {"quota": error.quota, "limit": error.limit, "current": error.current}


def _storable(text: str) -> str:
    """Half a character, brought along by the caller, must not make a 500 of a 422."""
    return text.encode(errors="backslashreplace").decode()

"""What the API says when it refuses, made into the error that the same call would have raised beside the store."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from windlass import wire
from windlass.errors import RequestError, Unavailable, WindlassError

_PROXY_SAYS: Final = {502, 503, 504}
_PLACE: Final = re.compile(r"^jobs\[(\d+)\]")


def error_of(status: int, media: str, body: bytes, about: Mapping[str, Any]) -> WindlassError:
    """The error in an answer. `about` is what was asked about: errors name their job or key."""
    try:
        problem = msgspec.json.decode(body, type=wire.Problem) if "json" in media else None
    except msgspec.MsgspecError:
        problem = None
    if problem is None:
        return _of_a_stranger(status, media)
    found = _by_code().get(problem.code) or _by_status(status)
    # Not by __init__: the words are already there, and each class takes other ones.
    error = found.__new__(found, problem.detail)
    field = problem.field
    what = problem.detail.removeprefix(f"{field}: ") if field else problem.detail
    error.__dict__.update(about, field=field, problem=what, errors=problem.errors, request_id=problem.request_id)
    if problem.quota is not None:
        error.__dict__.update(quota=problem.quota, limit=problem.limit, current=problem.current)
    if status >= 500 and problem.request_id:
        error.add_note(f"request {problem.request_id}")
    return error


def displaced(error: WindlassError, offset: int) -> WindlassError:
    """The error of a chunk, naming the job by its place among all that were given."""
    field = getattr(error, "field", None)
    if offset and isinstance(field, str) and (found := _PLACE.match(field)):
        place = f"jobs[{int(found[1]) + offset}]{field[found.end() :]}"
        error.args = (str(error).replace(field, place, 1),)
        error.__dict__["field"] = place
    return error


def _of_a_stranger(status: int, media: str) -> WindlassError:
    """No problem of ours: a proxy on the way, or another server altogether."""
    said = f"answered {status} with {media.partition(';')[0] or 'nothing'}, which is not what the API says"
    if status in _PROXY_SAYS:
        return Unavailable(said)
    error = _by_status(status)(said) if status not in {401, 403} else RequestError(said)
    error.add_note("is WINDLASS_URL right?")
    return error


def _by_status(status: int) -> type[WindlassError]:
    if status in _PROXY_SAYS:
        return Unavailable
    return RequestError if 300 <= status < 500 else WindlassError


def _by_code() -> Mapping[str, type[WindlassError]]:
    if not _CODES:
        _CODES.update((each.code, each) for each in _tree(WindlassError) if each.__module__ == WindlassError.__module__)
    return _CODES


def _tree(root: type[WindlassError]) -> Iterator[type[WindlassError]]:
    yield root
    for below in root.__subclasses__():
        yield from _tree(below)


_CODES: dict[str, type[WindlassError]] = {}

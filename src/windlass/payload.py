"""JSON documents that may be stored: payloads, results, errors.

A document is accepted only if it comes back exactly as it went in: no NaN or infinity (JSON has none), no NUL and no
lone surrogate (PostgreSQL refuses them, after the fact), no keys that are not text (JSON would turn 1 into "1").
Stored as JSON text, so big whole numbers keep every digit.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from windlass.errors import InvalidPayload

depth_max: Final = 100
payload_bytes_max: Final = 1_048_576

_encoder: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))
# The encoder builds this anew for each document, which is half of its time; where there is none, it is asked instead.
_make: Final = getattr(json.encoder, "c_make_encoder", None)
_write: Final = _make and _make(None, None, json.encoder.encode_basestring, None, ":", ",", False, False, False)
# An escaped NUL that is not itself behind an escaped backslash.
_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_HUGE: Final = math.inf
_MISSING: Final = re.compile(r"Object missing required field `([^`]*)`(.*)", re.DOTALL)
_AT: Final = re.compile(r"(.*?)(?: - at `(key)` in| - at) `\$([^`]*)`", re.DOTALL)
_COMPLAINT_MAX: Final = 500
_NUL_PROBLEM: Final = "the NUL character, which PostgreSQL cannot store"
_SURROGATE_PROBLEM: Final = "a lone surrogate, which no UTF-8 text can hold"


class Encoded(NamedTuple):
    """A document that `encode` has written already: its text takes the place of a value that may be 25 times as
    large."""

    text: str


def encode(value: Any, field: str = "payload", *, bytes_max: int = payload_bytes_max) -> str:
    """JSON text that decodes to exactly `value` (a tuple as a list), or InvalidPayload naming what cannot be stored."""
    if value is None:
        return "null"
    if type(value) is Encoded:
        return value.text
    try:
        if not _is_plain(value, depth_max, [bytes_max]):
            _check(value, field, depth_max, [bytes_max])
        text = "".join(_write(value, 0)) if _write else _encoder.encode(value)
        size = len(text.encode())
    except (ValueError, TypeError) as error:  # an integer of thousands of digits, a lone surrogate
        raise _culprit(value, field) or _invalid(field, f"cannot be written as JSON: {error}") from None
    except RuntimeError:
        raise _invalid(field, "was changed by another thread while it was being written") from None
    if "\\u0000" in text and _NUL.search(text):
        raise _culprit(value, field) or _invalid(field, f"contains {_NUL_PROBLEM}")
    if size > bytes_max:
        raise InvalidPayload(field, f"is {size:,} bytes of JSON; the most is {bytes_max:,}")
    return text


def decode(text: str) -> Any:
    return json.loads(text)


def unfit(complaint: str, path: str) -> InvalidPayload:
    """msgspec's complaint about a payload, with our path: `Expected int, got str - at $.a` is about payload.a."""
    inner = ""
    if len(complaint) > 2 * _COMPLAINT_MAX:  # it quotes the caller's value
        complaint = f"{complaint[:_COMPLAINT_MAX]}…{complaint[-_COMPLAINT_MAX:]}"
    if at := _AT.fullmatch(complaint):
        complaint, inner = at[1], at[3] + (" (a key)" if at[2] else "")
    if missing := _MISSING.fullmatch(complaint):
        return _invalid(f"{path}{inner}.{missing[1]}", "is missing")
    return _invalid(path + inner, complaint[:1].lower() + complaint[1:].replace("`", ""))


def unknown_field(name: str, parameters: Mapping[str, Any]) -> InvalidPayload:
    known = ", ".join(parameters) or "none"
    return _invalid(f"payload.{name[:100]}", f"is no parameter of the handler; it has: {known}")


def _is_plain(value: Any, depth: int, room: list[int]) -> bool:
    """Whether `_check` would find nothing; it says no as well where it is not sure. Builds no paths, so it is quick."""
    kind = type(value)
    if kind is dict:
        for key in value:
            if type(key) is not str:
                return False
        items = value.values()
    elif kind is list or kind is tuple:
        items = value
    else:
        return kind is str or kind is int or kind is bool
    room[0] -= len(value)
    if depth == 0 or room[0] < 0:
        return False
    for item in items:
        inner = type(item)
        if inner is str or inner is int or inner is bool or item is None or (inner is float and -_HUGE < item < _HUGE):
            continue
        if not _is_plain(item, depth - 1, room):
            return False
    return True


def _check(value: Any, path: str, depth: int, room: list[int]) -> None:
    """Walk what the encoder would accept silently but change. `room`: every value takes a byte at the least, and
    without that bound a list of lists that share their members would be walked for ever."""
    kind = type(value)
    if kind is dict:
        items: Iterable[tuple[Any, Any]] = value.items()
        for key in value:
            if type(key) is not str:
                raise _invalid(path, f"has a key that is a {type(key).__qualname__}; JSON keys are texts")
    elif kind is list or kind is tuple:
        items = enumerate(value)
    else:
        return _check_leaf(value, path)
    if depth == 0:
        raise _invalid(path, f"is nested deeper than {depth_max} levels")
    room[0] -= len(value)
    if room[0] < 0:
        raise _invalid(path, "holds more values than fit the most bytes of JSON")
    for key, item in items:
        inner = type(item)
        if inner is str or inner is int or inner is bool or item is None:
            continue
        _check(item, f"{path}.{key}" if kind is dict else f"{path}[{key}]", depth - 1, room)
    return None


def _check_leaf(value: Any, path: str) -> None:
    kind = type(value)
    if kind is float:
        if not math.isfinite(value):
            raise _invalid(path, f"is {value}; JSON has only finite numbers")
    elif kind not in {str, int, bool, type(None)}:
        raise _invalid(path, f"is a {kind.__qualname__}; JSON has objects, arrays, texts, numbers, true, false, null")


def _culprit(value: Any, path: str) -> InvalidPayload | None:
    """The first text or number that cannot be stored, looked for only once it is known to be there."""
    if type(value) is str:
        return _invalid(path, f"contains {problem}") if (problem := _bad_text(value)) else None
    if type(value) is int:
        return _invalid(path, "is a whole number of too many digits") if _is_too_long(value) else None
    if type(value) is dict:
        for key, item in value.items():
            if problem := _bad_text(key):
                return _invalid(path, f"has a key that contains {problem}")
            if found := _culprit(item, f"{path}.{key}"):
                return found
    elif type(value) is list or type(value) is tuple:
        return next((found for n, item in enumerate(value) if (found := _culprit(item, f"{path}[{n}]"))), None)
    return None


def _bad_text(text: str) -> str | None:
    if "\0" in text:
        return _NUL_PROBLEM
    return _SURROGATE_PROBLEM if _SURROGATE.search(text) else None


def _is_too_long(number: int) -> bool:
    try:
        str(number)
    except ValueError:  # Python writes, and reads, 4,300 digits
        return True
    return False


def _invalid(path: str, problem: str) -> InvalidPayload:
    """A path holds the caller's keys: cut, and escaped where a log or terminal could not show it."""
    shown = path if len(path) <= 200 else path[:199] + "…"
    return InvalidPayload(shown if shown.isprintable() else ascii(shown)[1:-1], problem)

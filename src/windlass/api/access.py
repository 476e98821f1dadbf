"""A line in the log for every request, and the id that joins it to the answer: without the query string, which may hold
what nobody should read.

Written some at a time: a line of its own for each would cost more than the rest of a submission.
"""

import asyncio
import logging
import re
import secrets
from functools import lru_cache
from itertools import count
from time import gmtime, perf_counter, strftime, time
from typing import Any, Final

import msgspec

from windlass.telemetry import LineHandler

_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_NAME: Final = __name__
_WRITE_S: Final = 0.1
_PATH_MAX: Final = 500
_log = logging.getLogger(_NAME)
_prefix: Final = secrets.token_hex(6)
_numbers: Final = count(1)
_encode: Final = msgspec.json.Encoder().encode


def request_id(given: bytes | None) -> str:
    """The caller's own, if it can be written anywhere as it is; else a new one."""
    if given is not None and _ID.fullmatch(given):
        return given.decode()
    return f"{_prefix}-{next(_numbers):x}"


class _Told(msgspec.Struct):
    """A line: as the log has all of them, and then what is of a request."""

    timestamp: str
    method: str
    path: str
    status: int
    ms: float
    actor: str | None
    request_id: str
    client: str | None
    level: str = "info"
    event: str = "request"
    logger: str = _NAME


class AccessLog:
    """Keeps what was told for a tenth of a second at most."""

    def __init__(self) -> None:
        self._told: list[_Told] = []
        self._due: asyncio.TimerHandle | None = None

    def told(self, scope: Any, *, status: int, actor: str | None, request_id: str, began: float) -> None:
        # As it was sent: what is percent-encoded can forge no line and steer no terminal.
        raw: bytes = scope.get("raw_path") or scope["path"].encode("ascii", "backslashreplace")
        client = scope.get("client")
        self._told.append(
            _Told(
                _moment(),
                scope["method"],
                raw[:_PATH_MAX].decode("ascii", "backslashreplace"),
                status,
                round((perf_counter() - began) * 1000, 2),
                actor,
                request_id,
                client[0] if client else None,
            )
        )
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(_WRITE_S, self.write)

    def write(self) -> None:
        """Write what is kept now."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        told, self._told = self._told, []
        if not told or not _log.isEnabledFor(logging.INFO):
            return
        handler = _lines()
        if handler is None:
            for each in told:
                _log.info("request", extra=_fields(each))
        elif handler.level <= logging.INFO:
            handler.write_lines(list(map(_line, told)))


def _lines() -> LineHandler | None:
    """Where lines of JSON can be written without a record for each; None: by the usual way."""
    handlers = [each for each in logging.getLogger().handlers if isinstance(each, LineHandler)]
    return handlers[0] if len(handlers) == 1 and handlers[0].is_json else None


def _line(told: _Told) -> str:
    return _encode(told).decode()


def _fields(told: _Told) -> dict[str, Any]:
    own = {"timestamp", "level", "event", "logger"}
    return {name: getattr(told, name) for name in told.__struct_fields__ if name not in own}


def _moment() -> str:
    now = time()
    return f"{_second(int(now))}.{int(now * 1000) % 1000:03d}Z"


@lru_cache(maxsize=2)
def _second(at: int) -> str:
    return strftime("%Y-%m-%dT%H:%M:%S", gmtime(at))

"""What a command says on standard error beside its answer: one line for people; or one JSON object, if it runs a server
and WINDLASS_LOG_FORMAT is json. Not where the format is only chosen by itself: who asks for JSON reads it with a program.
"""

import contextlib
import logging
import os
import sys
from typing import Any, Final

_LEVELS: Final = ("debug", "info", "warning", "error")
_log: Final = logging.getLogger("windlass.cli")
_json = False


def begin_serving() -> None:
    """This process is, or starts, a server. Called before the settings are read: that they are wrong is said as JSON, too."""
    global _json  # noqa: PLW0603 - a process has one standard error
    _json = os.environ.get("WINDLASS_LOG_FORMAT", "").strip() == "json"
    if _json:
        from windlass import telemetry  # noqa: PLC0415 - commands that ask and answer do without it
        from windlass.unhandled import log_unhandled  # noqa: PLC0415 - as above

        level = os.environ.get("WINDLASS_LOG_LEVEL", "").strip()
        telemetry.configure(level if level in _LEVELS else "info", "json")
        log_unhandled()


def is_json() -> bool:
    return _json


def say(words: str, level: int = logging.INFO, **facts: Any) -> None:
    """Say one line. `facts` are fields of the JSON object; people get the words."""
    if _json:
        _log.log(level, "%s", words, extra={"windlass_fields": facts})
        return
    with contextlib.suppress(OSError):  # the terminal may be gone
        sys.stderr.write(f"windlass: {words}\n")
        sys.stderr.flush()

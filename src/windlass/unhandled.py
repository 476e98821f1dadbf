"""What Python itself would print on standard error, as log lines: warnings, and errors that nobody has caught.

In a log of JSON lines a bare traceback is a dozen lines that no reader can parse, in the moment they matter most.
"""

import logging
import sys
import threading
from types import TracebackType
from typing import Any, Final

_log: Final = logging.getLogger("windlass.unhandled")


def log_unhandled() -> None:
    """Log what would be printed, from now on, in this process. Safe to repeat."""
    logging.captureWarnings(True)
    sys.excepthook = _log_exception
    threading.excepthook = _log_thread_exception
    sys.unraisablehook = _log_unraisable


def _log_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    _log.critical("this process ends by an error that nobody has caught", exc_info=(kind, error, trace))


def _log_thread_exception(arguments: "threading.ExceptHookArgs") -> None:
    if arguments.exc_value is not None and not issubclass(arguments.exc_type, SystemExit):
        name = "" if arguments.thread is None else arguments.thread.name
        error = (arguments.exc_type, arguments.exc_value, arguments.exc_traceback)
        _log.error("thread %s ended by an error that nobody has caught", name, exc_info=error)


def _log_unraisable(arguments: Any) -> None:
    what = arguments.err_msg or "an error was raised where none can be caught"
    _log.error("%s: %.200r", what, arguments.object, exc_info=arguments.exc_value)

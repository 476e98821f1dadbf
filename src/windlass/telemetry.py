"""Logs: one line an event, the same whoever wrote it, and the lines of each attempt kept with it.

Our own modules, libraries and handlers write to the standard `logging` or to structlog; `configure` makes both come out
as JSON, or as readable lines on a terminal. A line written while an attempt is `current` names its job, type, attempt
and worker, and is also kept in the attempt's own log (`AttemptLog`), which people read later. What an attempt prints is kept there
too (`capture_prints`), and goes to the process's output as it is.

What a job brings along must not forge lines, steer a terminal or show a password: control characters are escaped,
continued lines indented, and passwords in URLs and connection strings left out.
"""

import contextlib
import json
import logging
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import lru_cache
from itertools import islice
from time import gmtime, strftime, time
from typing import Any, Final, Protocol, TextIO

from windlass.lifecycle import log_chars_max
from windlass.model import Lease
from windlass.redaction import redact


class LogSink(Protocol):
    """Keeps the log of one attempt."""

    def text(self) -> str | None: ...


class Logged(Protocol):
    """An attempt under way, as far as its log goes. `log` is made with its first line."""

    lease: Lease
    log: LogSink | None


current: ContextVar[Logged | None] = ContextVar("windlass_current", default=None)

_LEVELS: Final = {name: getattr(logging, name.upper()) for name in ("debug", "info", "warning", "error")}
_worker: str | None = None


def configure(level: str, format: str, *, stream: TextIO | None = None, worker: str | None = None) -> None:  # noqa: A002
    """Send every log line of this process to `stream` (standard error), as `json`, `pretty` or `auto`.

    `worker` names this process in each line. Safe to repeat, and worth it once user code was imported: it may have
    thrown our handlers out or switched our loggers off.
    """
    global _worker  # noqa: PLW0603 - logging is the process's own
    _worker = worker
    stream = stream or sys.stderr
    pretty = format == "pretty" or (format == "auto" and stream.isatty())
    show = LineHandler(stream, (_coloured if _wants_colour(stream) else _pretty) if pretty else _json)
    show.setLevel(_LEVELS[level])
    keep = JobLogHandler()
    # Attempts keep what is worth knowing later, however quiet the process itself shall be.
    keep.setLevel(min(_LEVELS[level], logging.INFO))
    root = logging.getLogger()
    root.handlers = [there for there in root.handlers if not isinstance(there, (LineHandler, JobLogHandler))]
    root.handlers += [show, keep]
    root.setLevel(keep.level)
    _quiet_libraries()
    for name, logger in root.manager.loggerDict.items():
        if name.startswith(("windlass", "job.")) and isinstance(logger, logging.Logger):
            logger.disabled = False
    _configure_structlog()


def _quiet_libraries() -> None:
    """During an outage the driver's pool warns of each attempt to refill, with a traceback; we say it once, in a line."""
    pool = logging.getLogger("asyncpg.pool")
    if pool.level == logging.NOTSET:  # else somebody wants it otherwise
        pool.setLevel(logging.ERROR)


def _configure_structlog() -> None:
    """Lead structlog's loggers into the standard ones."""
    # structlog imports rich where it finds it: 3 MB in every worker, for tracebacks we do not draw.
    hide = "structlog" not in sys.modules and "rich" not in sys.modules
    if hide:
        sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog  # noqa: PLC0415
    finally:
        if hide:
            del sys.modules["rich"]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.processors.format_exc_info,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def about(lease: Lease) -> dict[str, Any]:
    """The `extra=` of a line of our own about a job that is not current."""
    return {"job_id": str(lease.job_id), "type": lease.type, "queue": lease.queue, "attempt": lease.attempt}


# What an attempt keeps. -------------------------------------------------------------------------------------------


class AttemptLog:
    """The first lines of one attempt, up to `log_chars_max` characters, and how many more there were."""

    __slots__ = ("_left", "_lines", "_lock", "_printed", "_printing", "dropped")

    def __init__(self) -> None:
        self.dropped = 0
        self._lines: list[str] = []
        self._left = log_chars_max - 40  # room for the count
        self._lock = threading.Lock()
        self._printed = ""  # of a line whose end has not been printed yet
        self._printing = threading.Lock()

    def append(self, line: str) -> bool:
        """Keep a line, cut if need be, and say whether it was kept. From any thread."""
        with self._lock:
            if self._left <= 0:
                self.dropped += 1
                return False
            if len(line) >= self._left:
                line = line[: self._left - 1] + "…"
            self._left -= len(line) + 1
            self._lines.append(line)
            return True

    def append_printed(self, text: str) -> None:
        """Keep what was printed, line by line; the last one when its end has come."""
        with self._printing:
            *lines, rest = (self._printed + text).split("\n")
            self._printed = rest[:log_chars_max]
        for line in lines:
            self.append(_printed_line(line))

    def end_line(self) -> None:
        """Keep what was printed without a line end."""
        with self._printing:
            rest, self._printed = self._printed, ""
        if rest:
            self.append(_printed_line(rest))

    def text(self) -> str | None:
        """Everything, once the attempt is over."""
        self.end_line()
        return self.text_so_far()

    def text_so_far(self) -> str | None:
        """The lines that are complete: what follows is added at the end."""
        with self._lock:
            more = [f"… {self.dropped:,} line{'s' * (self.dropped > 1)} more"] if self.dropped else []
            return "\n".join(self._lines + more) or None


class _SafeHandler(logging.Handler):
    """Never raises: where a handler has closed standard error, the report that a line cannot be written would."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - named by the standard library
        with contextlib.suppress(Exception):
            super().handleError(record)


class JobLogHandler(_SafeHandler):
    """Keeps what is logged while an attempt is current, in that attempt's log; not the lines of our own modules."""

    def handle(self, record: logging.LogRecord) -> bool:
        # Without the handler's lock: AttemptLog has its own.
        run: Logged | None = record.__dict__.get("windlass_run") or current.get()
        if run is None or _is_ours(record.name):
            return False
        try:
            line = _line(_Entry(record), "")
        except Exception:  # noqa: BLE001 - an argument whose __str__ raises, a format without its value
            self.handleError(record)
            return False
        return log_of(run).append(line)


class _Making:
    """Made anew in a forked process: whoever held the lock is not there."""

    lock = threading.Lock()

    @classmethod
    def begin_anew(cls) -> None:
        cls.lock = threading.Lock()


os.register_at_fork(after_in_child=_Making.begin_anew)


def log_of(run: Logged) -> AttemptLog:
    """The log of an attempt, made with its first line."""
    if not isinstance(run.log, AttemptLog):
        with _Making.lock:  # of two threads that write their first lines at once, one would lose its own
            if not isinstance(run.log, AttemptLog):
                run.log = AttemptLog()
    return run.log


class CapturedOutput:
    """Standard output, and a copy of what attempts print to it in their logs. Everything else it does as before."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        written = self._stream.write(text)
        run = current.get()
        if run is not None:
            try:
                log_of(run).append_printed(text)
            except Exception:
                logging.getLogger(__name__).debug("what was printed is not kept", exc_info=True)
        return written

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def capture_prints() -> None:
    """From now on keep what attempts print. Standard output alone: log lines go to standard error, and would be kept twice.
    Safe to repeat."""
    if sys.stdout is not None and not isinstance(sys.stdout, CapturedOutput):
        sys.stdout = CapturedOutput(sys.stdout)


def _printed_line(text: str) -> str:
    now = time()
    return redact(f"{strftime('%H:%M:%S', gmtime(now))}.{_millis(now)} PRINT: {_escaped(_cut(text.rstrip()))}")


def _is_ours(logger: str) -> bool:
    return logger == "windlass" or (logger.startswith("windlass.") and not logger.startswith("windlass.jobs."))


class JobLogger:
    """`ctx.log`: lines with fields, in the process's log and in the attempt's: `ctx.log.info("sent", to=name)`."""

    __slots__ = ("_logger", "_run")

    def __init__(self, run: Logged) -> None:
        self._run = run
        self._logger = _job_logger(run.lease.type)

    def debug(self, event: str, /, **fields: Any) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: Any) -> None:
        self._write(logging.ERROR, event, fields)

    def exception(self, event: str, /, **fields: Any) -> None:
        """An error, with the traceback of the exception being handled."""
        self._write(logging.ERROR, event, fields, exc_info=True)

    def _write(self, level: int, event: str, fields: dict[str, Any], *, exc_info: bool = False) -> None:
        # The run goes along: a thread that the handler started itself has no current one.
        extra = {"windlass_run": self._run, "windlass_fields": fields}
        self._logger.log(level, event, exc_info=exc_info, extra=extra)


@lru_cache(maxsize=4096)
def _job_logger(type_: str) -> logging.Logger:
    return logging.getLogger(f"job.{type_}")


# How a line looks. ------------------------------------------------------------------------------------------------

_OWN: Final = frozenset(logging.makeLogRecord({}).__dict__) | {
    *("message", "asctime", "taskName", "windlass_run", "windlass_fields", "_logger", "_name")
}
_FIELD_MAX: Final = 8_192  # characters of a field: more are searched, escaped and stored at every reader's cost
_FIELDS_MAX: Final = 100
_SHORT_MAX: Final = 512  # in a line that is too long all the same
_LINE_MAX: Final = 4 * log_chars_max
_encoder: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=repr)
# C0, DEL, C1, separators, marks that turn the direction of writing, lone surrogates. A tab does no harm.
_UNSAFE: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_PLAIN: Final = re.compile(r"[^\s\"'=]+")
_COLOURS: Final = {"DEBUG": "\x1b[2m", "WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[1;31m"}


class _Entry:
    """One log record, taken apart; our own names win over fields that happen to be called the same."""

    __slots__ = ("about", "created", "event", "exception", "fields", "level", "logger")

    def __init__(self, record: logging.LogRecord) -> None:
        self.created = record.created
        self.level = record.levelname.lower()
        self.logger = record.name
        attached = record.__dict__
        if isinstance(record.msg, dict) and "_logger" in attached:  # from structlog
            fields = dict(record.msg)
            self.event = str(fields.pop("event", ""))
        else:
            fields = {name: value for name, value in attached.items() if name not in _OWN}
            self.event = record.getMessage()
        fields |= attached.get("windlass_fields") or {}
        self.event = _cut(self.event)
        self.exception: str = _cut_front(_text_of(record) or str(fields.pop("exception", "")))
        run: Logged | None = attached.get("windlass_run") or current.get()
        self.about: dict[str, Any] = {} if run is None else about(run.lease)
        if _worker is not None:
            self.about["worker"] = _worker
        taken = {"timestamp", "level", "event", "logger", "exception", *self.about}
        self.fields = {
            _cut(f"{name}_" if name in taken else str(name), 128): _cut(value, _FIELD_MAX)
            if type(value) is str
            else value
            for name, value in islice(fields.items(), _FIELDS_MAX)
            if name not in self.about or value != self.about[name]  # said already, with the job the line is about
        }


def _cut(text: str, most: int = log_chars_max) -> str:
    return text if len(text) <= most else text[:most] + "…"


def _cut_front(text: str) -> str:
    return text if len(text) <= log_chars_max else "…" + text[-log_chars_max:]


def _text_of(record: logging.LogRecord) -> str:
    if record.exc_info and record.exc_info[1] is not None:
        return "".join(traceback.format_exception(record.exc_info[1])).rstrip("\n")
    return (record.exc_text or "") + (record.stack_info or "")


def _json(record: logging.LogRecord) -> str:
    entry = _Entry(record)
    moment = strftime("%Y-%m-%dT%H:%M:%S", gmtime(entry.created))
    document = {
        "timestamp": f"{moment}.{_millis(entry.created)}Z",
        "level": entry.level,
        "event": entry.event,
        "logger": entry.logger,
        **entry.about,
        **entry.fields,
    }
    if entry.exception:
        document["exception"] = entry.exception
    # A space after every comma and colon: what is redacted ends at a space, so it never spans two values.
    return redact(_UNSAFE.sub(_json_escape, _dump(document)))


def _pretty(record: logging.LogRecord) -> str:
    entry = _Entry(record)
    return _line(entry, "".join(f" {name}={_shown(value)}" for name, value in entry.about.items()))


def _coloured(record: logging.LogRecord) -> str:
    colour = _COLOURS.get(record.levelname)
    return f"{colour}{_pretty(record)}\x1b[0m" if colour else _pretty(record)


def _line(entry: _Entry, tail: str) -> str:
    """`HH:MM:SS.mmm LEVEL logger: message key=value`; whatever else belongs to it is indented below."""
    moment = strftime("%H:%M:%S", gmtime(entry.created))
    fields = _cut("".join(f" {_escaped(name)}={_shown(value)}" for name, value in entry.fields.items()))
    first, *rest = _lines(entry.event)
    rest += _lines(entry.exception) if entry.exception else []
    head = f"{moment}.{_millis(entry.created)} {entry.level.upper()} {_escaped(entry.logger)}: {first}{fields}{tail}"
    return redact("\n    ".join([head, *rest]))


def _lines(text: str) -> Iterator[str]:
    return (_escaped(line) for line in text.replace("\r\n", "\n").split("\n"))


def _millis(created: float) -> str:
    return f"{int(created * 1000) % 1000:03d}"


def _escaped(text: str) -> str:
    return _UNSAFE.sub(_python_escape, text)


def _python_escape(match: re.Match[str]) -> str:
    return ascii(match[0])[1:-1]


def _json_escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _shown(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return _escaped(value)
    return _escaped(_cut(repr(value), _FIELD_MAX))


def _dump(document: dict[str, Any]) -> str:
    try:
        text = _encoder.encode(document)
        if len(text) <= _LINE_MAX:
            return text
    except (TypeError, ValueError, RecursionError):  # keys that are no text, NaN, a list that holds itself
        pass
    plain = {
        name: value if type(value) in {str, int} else _cut(repr(value), _FIELD_MAX) for name, value in document.items()
    }
    text = json.dumps(plain, ensure_ascii=False)
    if len(text) <= _LINE_MAX:
        return text
    whole = {"event", "exception"}  # cut already
    short = {name: value if name in whole else _cut(str(value), _SHORT_MAX) for name, value in plain.items()}
    return json.dumps(short, ensure_ascii=False)


class LineHandler(_SafeHandler):
    """Writes one line at a time.

    The lock is taken by `with` only, unlike in the standard handlers: a job that is told to stop has an exception
    thrown into its thread, and between a call of acquire() and its try that would leave the lock taken for ever.
    """

    def __init__(self, stream: TextIO, render: Callable[[logging.LogRecord], str]) -> None:
        super().__init__()
        self._stream = stream
        self._render = render
        self._writing = self.lock or threading.RLock()  # logging makes its own anew in a forked process

    @property
    def is_json(self) -> bool:
        return self._render is _json

    def write_lines(self, lines: Iterable[str]) -> None:
        """Lines that are rendered already, at once. Never raises: to log is not worth a failure."""
        try:
            text = "".join(f"{line}\n" for line in lines)
            with self._writing:
                self._stream.write(text)
                self._stream.flush()
        except (OSError, ValueError):  # a pipe that nobody reads, a stream that was closed
            pass

    def handle(self, record: logging.LogRecord) -> bool:
        try:
            line = self._render(record) + "\n"
            with self._writing:
                self._stream.write(line)
                self._stream.flush()
        except Exception:  # noqa: BLE001 - a line that cannot be written must not fail the job that logs it
            self.handleError(record)
        return True


def _wants_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR")

"""Log lines: alike whoever writes them, impossible to forge, without passwords, and kept with the attempt."""

import contextvars
import io
import json
import logging
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from tests.unit.values import lease
from windlass import telemetry
from windlass.attempt_report import report_start
from windlass.lifecycle import log_chars_max
from windlass.model import Lease
from windlass.redaction import redact
from windlass.telemetry import AttemptLog, JobLogger, LogSink, about, configure, current


class Attempt:
    """What telemetry needs of a run."""

    def __init__(self) -> None:
        self.lease: Lease = lease(type="mail.send", attempt=3)
        self.log: LogSink | None = None

    @property
    def text(self) -> str:
        return (self.log and self.log.text()) or ""


@pytest.fixture
def attempt() -> Attempt:
    return Attempt()


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """A stream to configure for; the process's own logging is as before afterwards."""
    root, jobs = logging.getLogger(), logging.getLogger("job")
    handlers, level, worker = list(root.handlers), root.level, telemetry._worker
    # Those of the testing kit, if a test of it ran in this process.
    job_handlers, job_level = list(jobs.handlers), jobs.level
    jobs.handlers.clear()
    jobs.setLevel(logging.NOTSET)
    yield io.StringIO()
    jobs.handlers[:] = job_handlers
    jobs.setLevel(job_level)
    root.handlers[:], telemetry._worker = handlers, worker
    root.setLevel(level)
    structlog.reset_defaults()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def entries(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def during(attempt: Attempt, write: Any, *args: Any, **kwargs: Any) -> None:
    def inside() -> None:
        current.set(attempt)
        write(*args, **kwargs)

    contextvars.copy_context().run(inside)


# Whoever writes. --------------------------------------------------------------------------------------------------


def test_standard_and_structlog_loggers_come_out_the_same(stream: io.StringIO) -> None:
    configure("info", "json", stream=stream, worker="host-1")
    logging.getLogger("some.library").warning("read %d of %s", 3, "x", extra={"size": 5})
    structlog.get_logger("some.library").warning("read %d of %s", 3, "x", size=5)
    plain, structured = entries(stream)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", plain.pop("timestamp"))
    assert structured.pop("timestamp")
    assert plain == structured
    assert plain == {
        "level": "warning", "event": "read 3 of x", "logger": "some.library", "worker": "host-1", "size": 5,
    }  # fmt: skip


def test_a_line_written_during_an_attempt_names_its_job(stream: io.StringIO, attempt: Attempt) -> None:
    configure("info", "json", stream=stream, worker="host-1")
    during(attempt, logging.getLogger("app").info, "hello")
    logging.getLogger("app").info("nobody's")
    logging.getLogger("windlass.settler").info("refused", extra=about(attempt.lease))
    named, other, ours = entries(stream)
    job = {"job_id": str(attempt.lease.job_id), "type": "mail.send", "attempt": 3, "worker": "host-1"}
    assert named.items() >= job.items()
    assert "job_id" not in other
    assert ours.items() >= job.items()


def test_a_field_cannot_pass_for_one_of_ours(stream: io.StringIO, attempt: Attempt) -> None:
    configure("info", "json", stream=stream)
    JobLogger(attempt).info("real", job_id="forged", level="forged", name="n", message="m", type="forged")
    (entry,) = entries(stream)
    assert (entry["event"], entry["level"], entry["job_id"]) == ("real", "info", str(attempt.lease.job_id))
    assert (entry["job_id_"], entry["name"], entry["message"]) == ("forged", "n", "m")


def test_a_fact_of_the_job_that_is_said_twice_is_written_once(stream: io.StringIO, attempt: Attempt) -> None:
    configure("debug", "json", stream=stream)
    during(attempt, report_start, attempt.lease)
    (entry,) = entries(stream)
    assert (entry["event"], entry["attempt"]) == ("job started", 3)
    assert not [name for name in entry if name.endswith("_")]


def test_an_exception_is_one_line_of_json(stream: io.StringIO) -> None:
    configure("info", "json", stream=stream)
    for logger in (logging.getLogger("app"), structlog.get_logger("app")):
        try:
            int("no number")
        except ValueError:
            logger.exception("failed")
    for entry in entries(stream):
        assert entry["exception"].startswith("Traceback")
        assert entry["exception"].endswith("with base 10: 'no number'")


def test_the_level_holds_for_both_kinds_of_logger(stream: io.StringIO) -> None:
    configure("warning", "json", stream=stream)
    logging.getLogger("app").info("quiet")
    structlog.get_logger("app").info("quiet")
    structlog.get_logger("app").error("loud")
    assert [entry["event"] for entry in entries(stream)] == ["loud"]


def test_configuring_again_mends_what_user_code_did_and_doubles_nothing(stream: io.StringIO) -> None:
    configure("info", "json", stream=stream)
    ours = logging.getLogger("windlass.test_telemetry")
    logging.getLogger().handlers.clear()
    ours.disabled = True
    configure("info", "json", stream=stream)
    configure("info", "json", stream=stream)
    ours.info("still here")
    assert [entry["event"] for entry in entries(stream)] == ["still here"]


@pytest.mark.parametrize("value", [float("nan"), {(1, 2): 3}, object(), b"\xff", {1, 2}])
def test_a_field_that_json_cannot_hold_is_shown_all_the_same(value: object, stream: io.StringIO) -> None:
    configure("info", "json", stream=stream)
    logging.getLogger("app").info("here", extra={"value": value, "size": 5})
    (entry,) = entries(stream)
    assert (entry["value"], entry["size"]) == (repr(value), 5)


# How it looks. ----------------------------------------------------------------------------------------------------


def test_auto_is_pretty_on_a_terminal_and_json_elsewhere(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    configure("info", "auto", stream=terminal)
    logging.getLogger("app").info("sent", extra={"to": "Ann Lee", "size": 5})
    logging.getLogger("app").warning("slow")
    configure("info", "auto", stream=stream)
    logging.getLogger("app").info("sent")
    calm, coloured = terminal.getvalue().splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} INFO app: sent to='Ann Lee' size=5", calm)
    assert coloured.startswith("\x1b[33m")
    assert entries(stream)[0]["event"] == "sent"


HOSTILE = "a\n12:00:00.000 INFO app: forged\r\x1b[2Jb\x85c\u2028d\u202ee\x00f\ud800\x9b"


@pytest.mark.parametrize("form", ["json", "pretty"])
def test_no_message_can_forge_a_line_or_steer_a_terminal(form: str, stream: io.StringIO, attempt: Attempt) -> None:
    configure("info", form, stream=stream)
    for write in (
        lambda: logging.getLogger("app").info(HOSTILE),
        lambda: logging.getLogger("app").info("%s", HOSTILE),
        lambda: JobLogger(attempt).info("x", value=HOSTILE, nested=[HOSTILE], **{HOSTILE: 1}),
        lambda: logging.getLogger(HOSTILE).info("x"),
        lambda: logging.getLogger("app").error("x", exc_info=ValueError(HOSTILE)),
    ):
        during(attempt, write)
    for written in (stream.getvalue().removesuffix("\n"), attempt.text):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e\ud800-\udfff]", written)
    starts = re.compile(r"\d\d:\d\d:\d\d\.\d{3} ")
    assert len([line for line in attempt.text.split("\n") if starts.match(line)]) == 5
    if form == "json":
        assert len(entries(stream)) == 5
        assert entries(stream)[0]["event"] == HOSTILE
    else:
        assert len([line for line in stream.getvalue().split("\n") if starts.match(line)]) == 5


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("at postgres://ann:s3cret@db:5432/x now", "at postgres://ann:***@db:5432/x now"),
        ("postgresql+asyncpg://ann:p@ss/w:rd@db/x", "postgresql+asyncpg://ann:***@db/x"),
        ("redis://:s3cret@cache", "redis://:***@cache"),
        ("https://ann:s3cret@host/path", "https://ann:***@host/path"),
        ("https://host:8080/path?mail=a@b", "https://host:8080/path?mail=a@b"),
        ("host=db password=s3cret user=ann", "host=db password=*** user=ann"),
        ("host=db password='my s3cret' user=ann", "host=db password='***' user=ann"),
        ("postgres://db/x?user=ann&password=s3cret&a=b", "postgres://db/x?user=ann&password=***&a=b"),
        ("postgres://ann@db/x", "postgres://ann@db/x"),
        ("postgresql://ann:my s3cret@db/x now", "postgresql://ann:***@db/x now"),
        ("postgresql://ann:my s3c@s3cret@db/x now", "postgresql://ann:***@db/x now"),
        ("postgres://db:5432/x failed: mail a@b", "postgres://db:5432/x failed: mail a@b"),
        ("https://ann:s3cret/more@host/path", "https://ann:***@host/path"),
        ("https://ann:s3cret@host/path?mail=a@b", "https://ann:***@host/path?mail=a@b"),
        ("https://ann:12345@host/path", "https://ann:***@host/path"),
        ('{"user": "ann", "password": "my s3cret", "port": 1}', '{"user": "ann", "password": "***", "port": 1}'),
        ('{"password": 5315, "port": 1}', '{"password": "***", "port": 1}'),
        ('{"password": null}', '{"password": null}'),
        ("{'db_password': 'my s3cret', 'port': 1}", "{'db_password': '***', 'port': 1}"),
        ("host = db password = s3cret user = ann", "host = db password = *** user = ann"),
        ("password: 's3cret'", "password: '***'"),
        ("password: must be set", "password: must be set"),
        ("the password=", "the password="),
        ('the "password', 'the "password'),
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_passwords_are_left_out(said: str, shown: str, stream: io.StringIO, attempt: Attempt) -> None:
    assert redact(said) == shown
    configure("info", "json", stream=stream)
    during(attempt, logging.getLogger("app").info, "%s", said, extra={"nested": [{"url": said}, said], "last": said})
    (entry,) = entries(stream)
    assert (entry["event"], entry["nested"], entry["last"]) == (shown, [{"url": shown}, shown], shown)
    assert "s3cret" not in attempt.text


def test_a_password_with_a_quote_and_one_whose_quote_never_ends_are_left_out() -> None:
    assert redact('{"password":"a\\"s3cret","port":1}') == '{"password":"***","port":1}'
    assert redact('password="s3cret') == "password=***"
    inner = json.dumps({"event": json.dumps({"password": 's3c"ret', "port": 1}), "end": 'password="s3cret'})
    shown = json.loads(redact(inner))
    assert json.loads(shown["event"]) == {"password": "***", "port": 1}
    assert shown["end"] == "password=***"


@pytest.mark.parametrize(
    "part",
    [
        "redis://a:",
        "a.",
        "x://",
        "password='",
        "postgres://",
        "://:",
        'password="',
        "postgres://a: ",
        '"password": \\"',
        "password ",
    ],
)
def test_no_text_makes_the_search_for_passwords_slow(part: str) -> None:
    hostile = part * (log_chars_max // len(part)) + "://pass@"
    began_s = time.process_time()
    redact(hostile)
    assert time.process_time() - began_s < 2


def test_a_message_without_end_is_cut(stream: io.StringIO) -> None:
    configure("info", "json", stream=stream)
    logging.getLogger("app").info("x" * 10_000_000)
    assert len(stream.getvalue()) < 2 * log_chars_max


@pytest.mark.parametrize("form", ["json", "pretty"])
@pytest.mark.parametrize("value", ["postgres://x:" * 80_000, ["postgres://x:"] * 80_000, {"a": "x" * 1_000_000}])
def test_a_field_without_end_is_cut_and_costs_little(
    form: str, value: object, stream: io.StringIO, attempt: Attempt
) -> None:
    configure("info", form, stream=stream)
    began_s = time.process_time()
    during(attempt, lambda: JobLogger(attempt).info("got", data=value, more=1))
    assert time.process_time() - began_s < 1
    assert len(stream.getvalue()) < 20_000
    assert len(attempt.text) < 20_000


def test_a_line_has_room_for_a_hundred_fields(stream: io.StringIO) -> None:
    configure("info", "json", stream=stream)
    logging.getLogger("app").info("many", extra={f"f{n}": n for n in range(1_000)})
    logging.getLogger("app").info("large", extra={"x" * 1_000: 1} | {f"f{n}": "x" * 10_000 for n in range(99)})
    assert [len(entry) < 110 for entry in entries(stream)] == [True, True]
    assert len(stream.getvalue()) < 2 * log_chars_max


# What an attempt keeps. -------------------------------------------------------------------------------------------


def test_lines_written_during_an_attempt_are_kept_with_it(stream: io.StringIO, attempt: Attempt) -> None:
    configure("error", "json", stream=stream)
    during(attempt, logging.getLogger("app").info, "one")
    during(attempt, structlog.get_logger("app").info, "two", size=5)
    during(attempt, logging.getLogger("windlass.lanes").error, "none of its business")
    during(attempt, logging.getLogger("windlass.jobs.email").info, "a built-in type's")
    JobLogger(attempt).warning("three", to="Ann Lee", n=1)
    JobLogger(attempt).debug("too fine")
    logging.getLogger("app").info("nobody's")
    lines = [re.sub(r"^[\d:.]{12} ", "", line) for line in attempt.text.split("\n")]
    assert lines == [
        "INFO app: one",
        "INFO app: two size=5",
        "INFO windlass.jobs.email: a built-in type's",
        "WARNING job.mail.send: three to='Ann Lee' n=1",
    ]
    assert [entry["event"] for entry in entries(stream)] == ["none of its business"]


def test_debug_lines_are_kept_when_the_level_is_debug(stream: io.StringIO, attempt: Attempt) -> None:
    configure("debug", "json", stream=stream)
    JobLogger(attempt).debug("fine")
    assert attempt.text.endswith("DEBUG job.mail.send: fine")


def test_an_exception_is_kept_with_its_traceback_indented(stream: io.StringIO, attempt: Attempt) -> None:
    configure("info", "json", stream=stream)
    try:
        int("no number")
    except ValueError:
        JobLogger(attempt).exception("failed", n=1)
    first, *rest = attempt.text.split("\n")
    assert first.endswith("ERROR job.mail.send: failed n=1")
    assert rest[0] == "    Traceback (most recent call last):"
    assert rest[-1].startswith("    ValueError: ")


def test_a_line_from_a_thread_of_the_handlers_own_is_kept_by_ctx_log(stream: io.StringIO, attempt: Attempt) -> None:
    configure("info", "json", stream=stream)
    thread = threading.Thread(target=JobLogger(attempt).info, args=("from afar",))
    thread.start()
    thread.join()
    assert "from afar" in attempt.text
    assert entries(stream)[0]["job_id"] == str(attempt.lease.job_id)


def test_nothing_logged_leaves_no_log(stream: io.StringIO, attempt: Attempt) -> None:
    configure("info", "json", stream=stream)
    during(attempt, lambda: None)
    assert attempt.log is None
    assert AttemptLog().text() is None


def test_a_log_keeps_its_beginning_and_counts_the_rest() -> None:
    log = AttemptLog()
    kept = [log.append(f"line {n}") for n in range(20_000)]
    text = log.text() or ""
    lines = text.split("\n")
    assert len(text) <= log_chars_max
    assert lines[:2] == ["line 0", "line 1"]
    assert lines[-1] == f"… {kept.count(False):,} lines more"
    assert len(lines) - 1 == kept.count(True)


def test_a_line_longer_than_the_whole_log_is_cut() -> None:
    log = AttemptLog()
    assert log.append("x" * 1_000_000)
    assert not log.append("y")
    text = log.text() or ""
    assert len(text) <= log_chars_max
    assert text.endswith("…\n… 1 line more")


def test_lines_from_many_threads_are_all_kept_or_counted() -> None:
    log = AttemptLog()
    threads = [threading.Thread(target=lambda: [log.append("x" * 50) for _ in range(1000)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len((log.text() or "").split("\n")) - 1 + log.dropped == 8000


def test_threads_that_write_the_first_line_at_once_lose_none(stream: io.StringIO) -> None:
    configure("error", "json", stream=stream)
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(100):
            attempt, together = Attempt(), threading.Barrier(4)
            threads = [threading.Thread(target=_first_line, args=(attempt, together)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(attempt.text.splitlines()) == 4
    finally:
        sys.setswitchinterval(before_s)


def _first_line(attempt: Attempt, together: threading.Barrier) -> None:
    log = JobLogger(attempt)
    together.wait()
    log.info("line")


def test_configuring_imports_no_rich() -> None:
    code = (
        "import sys; from windlass.telemetry import configure; configure('info', 'pretty'); "
        "import logging; logging.getLogger('x').error('x', exc_info=ValueError('x')); "
        "sys.exit(any(name.startswith('rich.') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_drivers_warnings_about_its_pool_stay_out_of_the_log_unless_wanted(stream: io.StringIO) -> None:
    pool = logging.getLogger("asyncpg.pool")
    pool.setLevel(logging.NOTSET)
    configure("info", "json", stream=stream)
    pool.warning("Failed to restore the pool connection floor")
    pool.error("this is worth knowing")
    assert [entry["event"] for entry in entries(stream)] == ["this is worth knowing"]
    pool.setLevel(logging.INFO)
    configure("info", "json", stream=stream)
    pool.warning("wanted")
    assert entries(stream)[-1]["event"] == "wanted"
    pool.setLevel(logging.NOTSET)


def test_a_line_that_cannot_be_written_costs_nobody_anything(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler may close standard error; the report of that would fail, too."""
    configure("info", "json", stream=stream)
    monkeypatch.setattr(sys, "stderr", stream)
    stream.close()
    logging.getLogger("windlass.worker").error("to nobody")

"""The logs of attempts in the process of a test, whose logging is not ours to set up."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Final

from windlass.telemetry import JobLogHandler

_JOBS: Final = logging.getLogger("job")  # the parent of every `ctx.log`


def keep_context_logs() -> None:
    """Keep what is written to `ctx.log` with its attempt, from the level on that workers keep."""
    if not _keeps(_JOBS) and not _keeps(logging.getLogger()):
        _JOBS.addHandler(JobLogHandler())
        if _JOBS.level == logging.NOTSET:
            _JOBS.setLevel(logging.INFO)


@contextlib.contextmanager
def keeping_logs() -> Iterator[None]:
    """Keep also what handlers log by `logging`, at whatever level the test has set."""
    keep_context_logs()
    if _keeps(logging.getLogger()):
        yield
        return
    others = _OtherLogs()
    logging.getLogger().addHandler(others)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(others)


def _keeps(logger: logging.Logger) -> bool:
    """Whether it has a worker's own handler: where a test has called `telemetry.configure`, a second one would keep each line twice."""
    return any(type(handler) is JobLogHandler for handler in logger.handlers)


class _OtherLogs(JobLogHandler):
    def handle(self, record: logging.LogRecord) -> bool:
        return not record.name.startswith("job.") and super().handle(record)

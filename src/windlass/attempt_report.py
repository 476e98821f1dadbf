"""One log line for each thing that happens to an attempt: started, completed, failed, dead-lettered, lost, cancelled …

Workers, supervisors, guards and the leader write the same lines. A line about an end is written after the database has
accepted it, from what was stored: a result that was refused, or a failure that became a cancellation, is never reported
as done. The event is a fixed text to search for; the facts are fields beside it.

`JobsLogged` decides which lines about successes are wanted (WINDLASS_LOG_JOBS). Without them a success costs nothing
here: the settler does not call this module for it.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, TextIO

from windlass.clock import steady_s
from windlass.lifecycle import Ended, Settlement
from windlass.masking import masked_text
from windlass.model import Lease, Status
from windlass.telemetry import about

_log: Final = logging.getLogger("windlass.attempts")
_LISTED_MAX: Final = 100  # successes a second that a terminal shows one by one
_WINDOW_S: Final = 1.0


class JobsLogged(Enum):
    """Which jobs get lines of their own. SAMPLED: all, but of very many in one second only the first ones."""

    ALL = "all"
    SAMPLED = "sampled"
    FAILURES = "failures"


def jobs_logged(setting: str, stream: TextIO) -> JobsLogged:
    """What WINDLASS_LOG_JOBS means for a process that logs to `stream`."""
    if setting == "auto":
        return JobsLogged.SAMPLED if stream.isatty() else JobsLogged.FAILURES
    return JobsLogged(setting)


def is_start_logged() -> bool:
    """Whether lines about starts are wanted at all; asked once, not for each job."""
    return _log.isEnabledFor(logging.DEBUG)


def report_start(lease: Lease) -> None:
    _log.debug("job started", extra={"threads": lease.threads, "waited_s": _rounded(lease.waited_s), **about(lease)})


def report_end(lease: Lease, settlement: Settlement, status: Status, *, worker: str | None = None) -> None:
    """Say what an attempt has come to. `status`: where the job is now, as the database says. `worker`: whose attempt it
    was, where another process reports it."""
    level, event = _event(settlement, status)
    if not _log.isEnabledFor(level):
        return
    fields: dict[str, Any] = {}
    if settlement.error is not None and (status is not Status.CANCELLED or settlement.ended is Ended.CANCELLED):
        fields |= _error_fields(settlement.error)
    if status is Status.SCHEDULED and settlement.delay_s is not None:
        fields["next_try_s"] = _rounded(settlement.delay_s)
    if settlement.failed or settlement.ended is Ended.LOST:
        fields["failures"] = lease.failures + settlement.failed
        fields["max_attempts"] = lease.max_attempts
    if status is Status.HELD:
        fields["reason"] = settlement.reason
    if settlement.crashed:
        fields["crashes"] = lease.crashes + 1
    if settlement.execution_s is not None:
        fields["duration_s"] = _rounded(settlement.execution_s)
    fields |= {"status": status.value, **about(lease)}
    if worker is not None:
        fields["worker"] = worker
    _log.log(level, event, extra=fields)


def _event(settlement: Settlement, status: Status) -> tuple[int, str]:
    if status is Status.COMPLETED and settlement.error is None:
        return logging.INFO, "job completed"
    if status is Status.COMPLETED:
        return logging.WARNING, "job completed, but its result was not stored"
    if status is Status.FAILED:
        return logging.ERROR, "job dead-lettered"
    if status is Status.CANCELLED:
        return logging.INFO, "job cancelled"
    if status is Status.HELD:
        return logging.WARNING, "job held"
    if settlement.ended is Ended.LOST:
        return logging.WARNING, "job crashed its process" if settlement.crashed else "job lost"
    if settlement.failed:
        timed_out = settlement.error is not None and settlement.error.startswith('{"type": "TimedOut"')
        return logging.WARNING, "job timed out" if timed_out else "job failed"
    return logging.INFO, "job snoozed" if status is Status.SCHEDULED else "job given back"


def is_success(settlement: Settlement) -> bool:
    """Whether WINDLASS_LOG_JOBS=failures leaves this end out: it completed in order, or asked to be run later."""
    if settlement.status is Status.COMPLETED:
        return settlement.error is None
    return settlement.ended is None and settlement.status is Status.SCHEDULED


def _error_fields(document: str) -> dict[str, Any]:
    error = json.loads(document)
    message = error.get("message")
    fields = {"error": masked_text(f"{error['type']}: {message}" if message else error["type"])}
    # Under this name it is shown below the line on a terminal, and is one field of JSON.
    return fields | ({"exception": masked_text(error["traceback"].rstrip())} if error.get("traceback") else {})


def _rounded(seconds: float) -> float:
    return round(seconds, 6 if seconds < 1 else 3)


class SuccessLines:
    """Reports successes: each of them, or the first of every second and how many more there were.

    On a terminal 40,000 lines a second help nobody and cost more than the jobs. `later` calls a function after some
    seconds, on the loop that reports.
    """

    def __init__(self, which: JobsLogged, later: Callable[[float, Callable[[], None]], object]) -> None:
        self.wanted = which is not JobsLogged.FAILURES and _log.isEnabledFor(logging.INFO)
        self._sampled = which is JobsLogged.SAMPLED
        self._later = later
        self._since_s = 0.0
        self._listed = 0
        self._more: Counter[str] = Counter()

    def report(self, ends: Iterable[tuple[Lease, Settlement, Status]]) -> None:
        for lease, settlement, status in ends:
            if not self._sampled or self._is_listed():
                report_end(lease, settlement, status)
            else:
                if not self._more:
                    self._later(_WINDOW_S, self._report_more)
                self._more[lease.type] += 1

    def _is_listed(self) -> bool:
        now_s = steady_s()
        if now_s - self._since_s >= _WINDOW_S:
            self._since_s, self._listed = now_s, 0
        self._listed += 1
        return self._listed <= _LISTED_MAX

    def _report_more(self) -> None:
        more, self._more = self._more, Counter()
        by_type = ", ".join(f"{count:,} {type_}" for type_, count in more.most_common(5))
        _log.info("%d more jobs completed: %s", more.total(), by_type)

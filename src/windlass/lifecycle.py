"""What becomes of a job after an attempt, and which moves exist at all.

The runner (or the reaper) says what it saw, an Outcome; `settle` turns it into what gets
written, a Settlement; the settler writes it. `settle` is the only place that decides, so a crash takes the same path
as a success. Pure: no clock, no random; delays are durations that the database adds to its own now().
"""

import hashlib
import json
import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, assert_never
from uuid import UUID

from windlass.errors import InvalidPayload
from windlass.model import Error, Lease, RetryPolicy, Status, delay_s_max, reason_chars_max
from windlass.payload import encode

crashes_max: Final = 3
result_bytes_max: Final = 1_048_576
error_chars_max: Final = 8_192
log_chars_max: Final = 65_536


# Outcomes: what was seen. ---------------------------------------------------------------------------------------


class Completed(NamedTuple):
    """The handler returned. `result` is any value; one that cannot be stored finishes the job all the same."""

    result: object = None


class Written(NamedTuple):
    """A result that was written as JSON where its type is known; or why it could not be."""

    text: str | None
    problem: str | None = None


class Failed(NamedTuple):
    """The handler raised, or asked to be tried again. `delay_s` overrules the back-off; `final` forbids a retry."""

    error: Error
    delay_s: float | None = None
    final: bool = False


class TimedOut(NamedTuple):
    """The attempt ran longer than it may, and its threads are free again. `traceback`: where it was when it was stopped,
    as far as that is known. `killed`: it did not stop, and its worker had to be killed for that."""

    after_s: float
    traceback: str = ""
    killed: bool = False


class Snoozed(NamedTuple):
    """The handler asked to be run later; no failure."""

    delay_s: float


class Cancelled(NamedTuple):
    """The handler gave up for good, or heeded a request to stop."""

    reason: str


class Lost(NamedTuple):
    """The attempt's process died or lost its lease.

    `crashed`: it died by itself, rather than with the whole database or on purpose. `begun`: it had started this
    job. Only a job that was begun when its process crashed is suspected of having caused it. `spent`: the start died and
    counts against max_attempts; as suspicion does, where nothing else is said. `isolated`: it may be what held its worker
    up, so that it had to be killed; from now on it runs in a process of its own.
    """

    crashed: bool
    begun: bool = True
    spent: bool | None = None
    isolated: bool = False


class Released(NamedTuple):
    """Given back untouched: claimed but not begun, or interrupted by a shutdown."""


class Held(NamedTuple):
    """The attempt stopped because the job must wait for something other than time; no failure. `reason` says for what.

    With an `error` the attempt is recorded, so that people can read why. Without one it leaves no record.
    """

    reason: str
    error: Error | None = None


Uncompleted = Failed | TimedOut | Snoozed | Cancelled | Lost | Released | Held
Outcome = Completed | Uncompleted


# Settlements: what gets written. ----------------------------------------------------------------------------------


class Ended(StrEnum):
    """How an attempt ended, as kept in its record; attempts that only gave the job back keep none."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
    HELD = "held"


class Settlement(NamedTuple):
    """One row of a settle batch, fenced by (job_id, attempt, token, worker_id); the field order is the SQL's.

    `status` is where the job goes. If it was asked to cancel and did not complete, the database writes cancelled.
    `failed` adds a failure (a start that died is one), `crashed` a crash, `suspect` is what the job is from now on; `ended` is kept as the
    attempt's record. `reason` says what a held job waits for.
    """

    job_id: UUID
    attempt: int
    token: UUID
    worker_id: UUID
    status: Status
    delay_s: float | None = None
    failed: bool = False
    crashed: bool = False
    suspect: bool = False
    ended: Ended | None = None
    result: str | None = None
    error: str | None = None
    fingerprint: str | None = None
    execution_s: float | None = None
    log: str | None = None
    reason: str | None = None


def settle(
    lease: Lease,
    outcome: Outcome,
    *,
    jitter: float,
    execution_s: float | None = None,
    log: str | None = None,
    at_most_once: bool = False,
) -> Settlement:
    """Decide what becomes of a job after one attempt. `jitter` is a number in [0, 1) drawn by the caller. `at_most_once`: its
    start is recorded, and there must not be another."""
    if isinstance(outcome, Completed):
        return _completed(lease, outcome, execution_s, log)
    if at_most_once:
        outcome = _without_another(outcome)
    fence = lease[:4]
    # A suspect stays one until it has finished: giving it back proves nothing.
    base = Settlement(
        *fence, Status.READY, suspect=lease.suspect, execution_s=execution_s, log=_clip(log, log_chars_max)
    )
    match outcome:
        case Failed(error, delay_s, final):
            return _failed(lease, base, error, delay_s=delay_s, final=final, jitter=jitter)
        case TimedOut():
            return _timed_out(lease, base, outcome, final=at_most_once, jitter=jitter)
        case Snoozed(delay_s):
            return base._replace(status=Status.SCHEDULED, delay_s=_delay(delay_s))
        case Cancelled(reason):
            error = Error("Cancelled", reason)
            return _with_error(base._replace(status=Status.CANCELLED, ended=Ended.CANCELLED), error)
        case Lost():
            return _lost(lease, base, outcome, jitter=jitter)
        case Released():
            return base
        case Held(reason, held_error):
            held = base._replace(status=Status.HELD, reason=_clip(reason, reason_chars_max) or "held")
            return held if held_error is None else _with_error(held._replace(ended=Ended.HELD), held_error)
        case _:
            assert_never(outcome)


_GROWTH_MAX: Final = 700.0  # e to this power is about the largest float


def backoff(failures: int, policy: RetryPolicy, *, jitter: float) -> float:
    """Seconds to wait after the n-th failure. Jitter is applied after the cap, or a herd re-forms at the cap."""
    return _backoff_bare(failures, policy) * (1 + policy.jitter * (2 * jitter - 1))


def _backoff_bare(failures: int, policy: RetryPolicy) -> float:
    doublings = max(0, failures - 1)
    if policy.base_s <= 0 or policy.cap_s <= 0:
        return 0.0
    # Compared as logarithms: factor ** 1000 overflows, also where a tiny base keeps the delay itself small.
    growth = doublings * math.log(policy.factor)
    if math.log(policy.base_s) + growth >= math.log(policy.cap_s):
        return policy.cap_s
    if growth > _GROWTH_MAX:
        return min(policy.cap_s, math.exp(math.log(policy.base_s) + growth))
    return min(policy.cap_s, policy.base_s * policy.factor**doublings)


def _completed(lease: Lease, outcome: Completed, execution_s: float | None, log: str | None) -> Settlement:
    result = error = mark = None
    if outcome.result is not None:
        result, problem = outcome.result if type(outcome.result) is Written else written(outcome.result)
        if problem is not None:
            # The work was done: failing it here would run it again. It finishes, and says why there is no result.
            lack = Error("ResultNotStored", problem)
            error, mark = error_document(lack), fingerprint(lack)
    kept = log if log is None else _clip(log, log_chars_max)
    status, ended = Status.COMPLETED, Ended.COMPLETED
    # Past the constructor, because every job comes this way: it costs twice as much as all the rest of this.
    fields = (*lease[:4], status, None, False, False, False, ended, result, error, mark, execution_s, kept, None)
    return tuple.__new__(Settlement, fields)


def written(result: object, path: str = "result") -> Written:
    try:
        return Written(encode(result, path, bytes_max=result_bytes_max))
    except InvalidPayload as problem:
        return Written(None, str(problem))


def _failed(
    lease: Lease, base: Settlement, error: Error, *, delay_s: float | None, final: bool, jitter: float
) -> Settlement:
    failures = lease.failures + 1
    spent = base._replace(failed=True, ended=Ended.FAILED)
    if final or failures >= lease.max_attempts:
        return _with_error(spent._replace(status=Status.FAILED), error)
    wait_s = backoff(failures, retry_policy(lease.retry), jitter=jitter) if delay_s is None else _delay(delay_s)
    return _with_error(spent._replace(status=Status.SCHEDULED, delay_s=wait_s), error)


def _timed_out(lease: Lease, base: Settlement, outcome: TimedOut, *, final: bool, jitter: float) -> Settlement:
    """A job that forced a kill would do so at every attempt, and its neighbours would start anew each time: it is a suspect from
    now on, alone in its process, and waits longer and longer whatever its own policy says."""
    message = f"ran longer than its timeout of {lease.timeout_s:g} s (stopped after {outcome.after_s:.3f} s)"
    error = Error("TimedOut", message, outcome.traceback)
    timed_out = _failed(lease, base, error, delay_s=None, final=final, jitter=jitter)
    suspect = outcome.killed or lease.suspect
    if not suspect or timed_out.delay_s is None:
        return timed_out
    wait_s = max(timed_out.delay_s, backoff(lease.failures + 1, RetryPolicy(), jitter=jitter))
    return timed_out._replace(suspect=True, delay_s=wait_s)


def _without_another(outcome: Uncompleted) -> Uncompleted:
    """What an outcome comes to where there is no other attempt: nobody knows how far this one came."""
    match outcome:
        case Failed(error, _, _):
            return Failed(error, final=True)
        case Snoozed():
            return Failed(Error("AtMostOnce", "asked to be run again, and may be started only once"), final=True)
        case Released() | Lost():
            stopped = "was stopped or lost its worker after it began; it may have run, and is not started again"
            return Failed(Error("MayHaveRun", stopped), final=True)
        case _:
            return outcome


def _lost(lease: Lease, base: Settlement, outcome: Lost, *, jitter: float) -> Settlement:
    """A start that died under its job burns a failure: else max_attempts would not bound how often it is started. Only a crash
    while alone in its process proves something against the job."""
    blamed = outcome.crashed and outcome.begun
    spent = blamed if outcome.spent is None else outcome.spent
    crashed = blamed and lease.suspect
    crashes, failures = lease.crashes + crashed, lease.failures + spent
    suspect = blamed or outcome.isolated or base.suspect
    lost = base._replace(ended=Ended.LOST, suspect=suspect, failed=spent, crashed=crashed)
    if crashed and crashes >= crashes_max:
        error = Error("PoisonPill", f"crashed its process {crashes} times within a day")
        return _with_error(lost._replace(status=Status.FAILED), error)
    # A lease whose job row is out of sight, while its partition is removed, does not say how many attempts there may be.
    if spent and lease.max_attempts is not None and failures >= lease.max_attempts:
        error = Error(
            "MayHaveRun",
            f"its process died when it may have begun, and this was start {failures} of {lease.max_attempts}",
        )
        return _with_error(lost._replace(status=Status.FAILED), error)
    if not crashed:
        return _with_error(lost, Error("Lost", "its process died or its lease was lost before the attempt ended"))
    error = Error("Crashed", f"crashed its process ({crashes} of {crashes_max} within a day)")
    wait_s = backoff(crashes, RetryPolicy(), jitter=jitter)
    return _with_error(lost._replace(status=Status.SCHEDULED, delay_s=wait_s), error)


def retry_policy(text: str | None) -> RetryPolicy:
    return RetryPolicy(**json.loads(text)) if text else RetryPolicy()


def _delay(delay_s: float) -> float:
    """A handler may ask for anything; what an interval cannot hold would wedge the settle batch."""
    return min(delay_s, delay_s_max) if delay_s > 0 else 0.0


# Errors as they are kept. -----------------------------------------------------------------------------------------

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_VARIABLE: Final = re.compile(
    r"0x[0-9a-fA-F]+"
    r"|[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}"
    r"|\b(?=[a-fA-F]*\d)[0-9a-fA-F]{8,}\b"
    r"|[-+]?\d+(?:[.,_:]\d+)*(?:[eE][-+]?\d+)?"
    r"|(?<!\w)'[^']*'"  # not the apostrophe of "can't"
    r'|"[^"]*"'
)


def fingerprint(error: Error) -> str:
    """The same for failures with the same cause: numbers, addresses, ids and quoted values are left out."""
    shape = f"{error.type}\n{_VARIABLE.sub('?', error.message[:error_chars_max])}"
    return hashlib.sha256(shape.encode(errors="replace")).hexdigest()[:16]


def error_document(error: Error) -> str:
    """An error as it is kept: JSON text, clipped, without what PostgreSQL cannot store."""
    kept = {
        "type": _clip(error.type, 200),
        "message": _clip(error.message, error_chars_max),
        "traceback": _clip_front(error.traceback, error_chars_max),
    }
    return json.dumps(kept, ensure_ascii=False)


def _with_error(settlement: Settlement, error: Error) -> Settlement:
    return settlement._replace(error=error_document(error), fingerprint=fingerprint(error))


def storable(text: str) -> str:
    """The text without what PostgreSQL cannot store."""
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _clip(text: str | None, most: int) -> str | None:
    if text is None:
        return None
    clean = _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)
    return clean if len(clean) <= most else clean[: most - 1] + "…"


def _clip_front(text: str, most: int) -> str | None:
    """Keep the end: a traceback's last lines say what went wrong."""
    clean = _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)
    return clean if len(clean) <= most else "…" + clean[-(most - 1) :]


# The moves that exist. --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Move:
    """One allowed change of state. `source` is None for a job that enters."""

    source: Status | None
    verb: str
    target: Status


MOVES: Final = (
    Move(None, "enqueue", Status.READY),
    Move(None, "enqueue later", Status.SCHEDULED),
    Move(None, "hand over", Status.RUNNING),
    Move(Status.SCHEDULED, "promote · run now", Status.READY),
    Move(Status.READY, "hold", Status.HELD),
    Move(Status.HELD, "admit · run now · decide", Status.READY),
    Move(Status.READY, "claim", Status.RUNNING),
    Move(Status.RUNNING, "settle as completed", Status.COMPLETED),
    Move(Status.RUNNING, "settle as failed for good · poison · may have run", Status.FAILED),
    Move(Status.RUNNING, "settle as cancelled · cancel heeded", Status.CANCELLED),
    Move(Status.RUNNING, "settle as failed · snoozed · crashed", Status.SCHEDULED),
    Move(Status.RUNNING, "settle as released · lost", Status.READY),
    Move(Status.RUNNING, "settle as held", Status.HELD),
    Move(Status.READY, "give up as too wide", Status.FAILED),
    Move(Status.SCHEDULED, "cancel", Status.CANCELLED),
    Move(Status.HELD, "cancel", Status.CANCELLED),
    Move(Status.READY, "cancel", Status.CANCELLED),
    Move(Status.COMPLETED, "retry", Status.READY),
    Move(Status.FAILED, "retry · replay", Status.READY),
    Move(Status.FAILED, "discard", Status.CANCELLED),
    Move(Status.CANCELLED, "retry", Status.READY),
)

TRANSITIONS: Final = {
    status: frozenset(move.target for move in MOVES if move.source is status) for status in (None, *Status)
}


def diagram() -> str:
    """The moves as a Mermaid state diagram; docs/lifecycle.md holds it and a test compares."""
    lines = ["stateDiagram-v2"]
    lines += [f"    {move.source or '[*]'} --> {move.target}: {move.verb}" for move in MOVES]
    return "\n".join(lines)

"""Why a job does not run yet, in words: facts the store gathered, judged. Pure.

Every obstacle has a stable code, what it means for this very job, and what would help. The first one is the one to
remove first: while a queue is paused it does not matter how many jobs are ahead.
"""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from windlass.model import FINISHED, Error, Job, Status, needs_decision, needs_newer_worker, unknown_type
from windlass.quotas import SubmitterUse

ahead_max: Final = 1_000  # nobody waits differently behind more
_LATE_S: Final = 10.0
_MESSAGE_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One reason: a stable code, what it means here, and what would help, if anything would."""

    code: str
    detail: str
    cure: str | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job is where it is. `ahead`: how many of its queue go first, counted up to `ahead_max`.

    `workers_able`: living workers that could run it when nothing else did; `workers_free`: of these, with room now.
    `submitter`: whose quotas it counts against while it is unfinished; None: nobody's.
    """

    job_id: UUID
    status: Status
    summary: str
    obstacles: tuple[Obstacle, ...] = ()
    ahead: int | None = None
    workers_able: int = 0
    workers_free: int = 0
    submitter: SubmitterUse | None = None


@dataclass(frozen=True, slots=True)
class Hand:
    """A living worker, as this job sees it. `lost_threads` are among the busy ones, and do not come back."""

    worker_id: UUID
    name: str
    threads: int
    busy: int
    lost_threads: int
    serves: bool
    knows: bool
    draining: bool
    reserved_for: UUID | None

    @property
    def free(self) -> int:
        return max(0, self.threads - self.busy)

    @property
    def widest(self) -> int:
        return self.threads - self.lost_threads


@dataclass(frozen=True, slots=True)
class Facts:
    """What is so, at one moment of the database.

    `set_aside`: the job has left the line. `thread_demand`: as it waits, which may be less than it asked for. `age_s`:
    how long ago it was due if it waits (below zero: not yet), began if it runs, ended if it has. `ended`, `error`: of the attempt
    before, if that is on record. `led`: some worker leads, and does what nobody else does. `undecided`: the effects of it that a
    person must decide about.
    """

    job: Job
    paused: bool
    set_aside: bool
    thread_demand: int
    age_s: float
    ended: str | None
    error: Error | None
    led: bool
    ahead: int | None
    hands: Sequence[Hand]
    undecided: Sequence[str] = ()


def explain(facts: Facts) -> Explanation:
    """Every obstacle in the way of this job, the first to be removed first."""
    job = facts.job
    able, free = _able(facts), _free(facts)
    obstacles = tuple(_obstacles(facts))
    if obstacles:
        summary = f"{job.status}: {obstacles[0].detail}"
    else:
        summary = f"{job.status}: nothing is in its way; {_count(len(free), 'worker')} can start it now"
    return Explanation(job.id, job.status, summary, obstacles, facts.ahead, len(able), len(free))


def _obstacles(facts: Facts) -> Iterable[Obstacle]:
    if facts.job.status in FINISHED:
        return [_finished(facts)]
    if facts.job.status is Status.RUNNING:
        return _running(facts)
    if facts.job.status is Status.SCHEDULED:
        return _scheduled(facts)
    return _waiting(facts)


# Not in the line. ---------------------------------------------------------------------------------------------------


def _finished(facts: Facts) -> Obstacle:
    job, ago = facts.job, _span(facts.age_s)
    if job.status is Status.COMPLETED:
        return Obstacle("finished_completed", f"completed {ago} ago", f"to run it again: windlass jobs retry {job.id}")
    if job.status is Status.CANCELLED:
        return Obstacle(
            "finished_cancelled",
            f"cancelled {ago} ago{_why(job.error)}",
            f"to run it after all: windlass jobs retry {job.id}",
        )
    tried = f"after {_count(job.attempt, 'attempt')}" if job.attempt else "before it began"
    replay = f"windlass dead-letters replay {job.id}"
    if job.error is not None and job.error.type == "MayHaveRun":  # a replay without a look would do its work twice
        discard = f"windlass dead-letters discard {job.id}"
        help_ = f"find out whether its work was done; if it was: {discard}; if not: {replay}"
    else:
        help_ = f"remove the cause, then: {replay}"
    return Obstacle("finished_failed", f"failed for good {ago} ago, {tried}{_why(job.error)}", help_)


def _running(facts: Facts) -> Iterable[Obstacle]:
    job = facts.job
    where = next((hand for hand in facts.hands if hand.worker_id == job.worker_id), None)
    if where is None:
        detail = f"worker {job.worker_id} that runs it does not live any more; the leader gives the job back"
        yield Obstacle("worker_lost", detail, None if facts.led else _NO_LEADER)
        return
    if job.cancel_requested:
        yield Obstacle("cancelling", f"was asked to stop; its worker {where.name} stops it, or lets it end")
    yield Obstacle(
        "running",
        f"runs on {where.name} since {_span(facts.age_s)}, attempt {job.attempt} of at most {job.max_attempts};"
        f" it may take {_span(job.timeout_s)}",
        None if job.cancel_requested else f"to stop it: windlass jobs cancel {job.id}",
    )


def _scheduled(facts: Facts) -> Iterable[Obstacle]:
    job = facts.job
    sooner = f"to run it at once: windlass jobs run-now {job.id}"
    if facts.age_s > 0:
        detail = f"has been due for {_span(facts.age_s)}; the leader makes it ready"
        yield Obstacle("due", detail, None if facts.led or facts.age_s < _LATE_S else _NO_LEADER)
    elif job.attempt == 0:
        yield Obstacle("scheduled", f"is to run in {_span(-facts.age_s)}", sooner)
    elif facts.ended is None:
        yield Obstacle("snoozed", f"its handler asked to be run again in {_span(-facts.age_s)}", sooner)
    else:
        how = "crashed" if facts.ended == "lost" else "failed"
        yield Obstacle(
            "backing_off",
            f"attempt {job.attempt} {how}{_why(facts.error)}; the next one begins in {_span(-facts.age_s)}"
            f" ({job.failures} of {job.max_attempts} failures)",
            sooner,
        )
    yield from _paused(facts)
    yield from (each for each in _unserved(facts) if each.code != "draining")


_START: Final = "windlass worker --app MODULE:APP"
_BUILT_IN: Final = "windlass.jobs:app"
_NO_LEADER: Final = "no worker leads just now; start one, or look at the logs of those that run"


# In the line. -------------------------------------------------------------------------------------------------------


def _waiting(facts: Facts) -> Iterable[Obstacle]:
    job = facts.job
    if facts.set_aside and job.reason == needs_decision:
        yield _undecided(facts)
        return
    yield from _paused(facts)
    unserved = list(_unserved(facts))
    if unserved:
        yield from unserved
        return
    if facts.set_aside and job.reason is not None and job.reason.startswith(needs_newer_worker):
        yield _needs_newer_worker(facts)
        return
    if facts.set_aside and job.reason not in {None, unknown_type}:
        yield Obstacle("held", f"is held: {job.reason}{_why(facts.error)}", f"windlass jobs run-now {job.id}")
        return
    if facts.set_aside:
        detail = "was set aside while no worker knew its type; the leader puts it back in line"
        yield Obstacle("set_aside", detail, f"windlass jobs run-now {job.id}" if facts.led else _NO_LEADER)
        return
    if facts.thread_demand > (widest := max(hand.threads for hand in facts.hands if _would(hand))):
        yield _too_wide(facts, widest)
        return
    if not _free(facts):
        yield _threads(facts)
    if facts.ahead:
        some = f"{ahead_max:,} or more jobs" if facts.ahead >= ahead_max else _count(facts.ahead, "job")
        yield Obstacle(
            "behind_others",
            f"{some} of queue {job.queue} come first",
            "start more workers; or submit what is urgent with a higher priority, or to a queue of its own",
        )


def _needs_newer_worker(facts: Facts) -> Obstacle:
    job = facts.job
    fields = (job.reason or "").removeprefix(needs_newer_worker).removeprefix(": ")
    return Obstacle(
        "needs_newer_worker",
        f"its payload has fields that the worker which claimed it does not know ({fields}), and another version of {job.type}"
        " does; it goes to a worker of that version, within seconds once there is one",
        f"start workers of the version that knows them: {_START}; or, if there will be none: windlass jobs cancel {job.id}",
    )


def _undecided(facts: Facts) -> Obstacle:
    job, keys = facts.job, facts.undecided
    named = "an effect" if not keys else f"its effect{'' if len(keys) == 1 else 's'} {' and '.join(map(repr, keys))}"
    which = f" --effect {shlex.quote(keys[0])}" if len(keys) > 1 else ""
    return Obstacle(
        "needs_decision",
        f"waits for a person to say whether {named} happened{_why(facts.error)}",
        f"find out, then: windlass jobs decide {job.id} done{which} (it happened), or: windlass jobs decide {job.id} redo{which}"
        " (it did not, do it again)",
    )


def _paused(facts: Facts) -> Iterable[Obstacle]:
    if facts.paused:
        queue = facts.job.queue
        yield Obstacle("queue_paused", f"queue {queue} is paused", f"windlass queues resume {queue}")


def _unserved(facts: Facts) -> Iterable[Obstacle]:
    """Nobody would run it, however long it waits."""
    job, hands = facts.job, facts.hands
    if not hands:
        yield Obstacle("no_workers", "no worker lives", f"start one, with an app that declares {job.type}: {_START}")
        return
    knows, serves = any(hand.knows for hand in hands), any(hand.serves for hand in hands)
    if not knows:
        detail = f"no living worker, of {len(hands):,}, knows the type {job.type}"
        cure = f"start a worker with an app that declares {job.type}: {_START} (the built-in types: {_BUILT_IN})"
        yield Obstacle("type_unknown", detail, cure)
    if not serves:
        detail = f"no living worker, of {len(hands):,}, serves the queue {job.queue}"
        yield Obstacle("queue_unserved", detail, f"start a worker with --queues {job.queue}")
    if not (knows and serves):
        return
    if not any(_would(hand) for hand in hands):
        detail = f"no worker both serves the queue {job.queue} and knows the type {job.type}"
        yield Obstacle("queue_unserved", detail, f"let workers of {job.type} serve {job.queue} too: --queues")
    elif all(hand.draining for hand in hands if _would(hand)):
        yield Obstacle("draining", "all workers that could run it are shutting down", "wait for new ones, or start one")


def _would(hand: Hand) -> bool:
    return hand.serves and hand.knows


def _able(facts: Facts) -> list[Hand]:
    return [hand for hand in facts.hands if _would(hand) and not hand.draining and hand.widest >= facts.thread_demand]


def _free(facts: Facts) -> list[Hand]:
    ours = (None, facts.job.id)
    return [hand for hand in _able(facts) if hand.free >= facts.thread_demand and hand.reserved_for in ours]


def _too_wide(facts: Facts, widest: int) -> Obstacle:
    becomes = {
        "narrow": "it will soon be run on one thread instead",
        "wait": "it waits for a wider one, as it asked to",
        "fail": "it will soon be failed, as it asked to",
    }[facts.job.if_too_wide]
    return Obstacle(
        "too_wide",
        f"asks for {facts.thread_demand} threads, and the widest worker for it has {widest}; {becomes}",
        f"start a worker with --threads {facts.thread_demand} or more",
    )


def _threads(facts: Facts) -> Obstacle:
    threads = _count(facts.thread_demand, "free thread")
    able = _able(facts)
    if not able:
        return Obstacle(
            "waits_for_threads",
            f"waits for {threads} on one worker; those that have as many are shutting down, or have lost some of them to"
            " handlers that cannot be stopped",
            "wait: they are being replaced",
        )
    kept = next((hand for hand in able if hand.reserved_for == facts.job.id), None)
    if kept is not None:
        return Obstacle(
            "waits_for_threads",
            f"waits for {threads}; {kept.name} keeps what becomes free for it, {kept.free} so far",
            "wait: it is next there",
        )
    denied = next((hand for hand in able if hand.free >= facts.thread_demand), None)
    if denied is not None:
        return Obstacle(
            "waits_for_threads",
            f"waits for {threads}; {denied.name} has {denied.free}, and keeps them for job {denied.reserved_for}, which needs"
            " more and is first there",
            "wait until that job has begun; or start more workers",
        )
    most = max(hand.free for hand in able)
    return Obstacle(
        "waits_for_threads",
        f"waits for {threads} on one worker; of {_count(len(able), 'worker')} able to run it none has more than {most}",
        "start more workers, or wider ones",
    )


# Words. -------------------------------------------------------------------------------------------------------------


def _why(error: Error | None) -> str:
    if error is None:
        return ""
    message = " ".join(error.message.split())
    return f": {error.type}: {message if len(message) <= _MESSAGE_MAX else message[: _MESSAGE_MAX - 1] + '…'}"


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def _span(span_s: float) -> str:
    """A duration as people say it, in its two largest units."""
    whole = max(0, round(span_s))
    if whole < 1:
        return "less than a second"
    parts = [(whole // 86_400, "d"), (whole % 86_400 // 3600, "h"), (whole % 3600 // 60, "min"), (whole % 60, "s")]
    first = next(n for n, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count)

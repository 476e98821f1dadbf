"""What the store offers, as small protocols by consumer: callers, workers, upkeep, people, wake-ups; and their values.

They exist for typed slices, and for wrappers that fail on purpose in tests; not to make PostgreSQL replaceable.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Literal, NamedTuple, Protocol
from uuid import UUID

from windlass.errors import WindlassError
from windlass.lifecycle import Settlement
from windlass.model import Attempt, Enqueued, Job, Lease, NewJob, NewWorker, Queue, Status, TooWide, Want, Worker
from windlass.placement import Reservation, Room, Wide


class Intake(Protocol):
    """What callers do to jobs."""

    async def enqueue(self, jobs: Sequence[NewJob], *, connection: Any = None) -> list[Enqueued]:
        """Store all or none, in order. A job whose id or idempotency key is there already is answered as duplicate.
        With `connection`, inside the caller's transaction."""

    async def enqueue_each(self, jobs: Sequence[NewJob]) -> list[Enqueued | WindlassError]:
        """Store independent jobs together; one that cannot be stored gets its error, and the others are stored."""

    async def cancel(self, job_id: UUID, reason: str = ...) -> Status:
        """Cancelled if it was waiting; running if its worker was asked. Raises JobNotFound, NotPossible."""

    async def retry(self, job_id: UUID) -> Status:
        """Make a finished job ready again, with its attempts kept and its failures at zero."""

    async def run_now(self, job_id: UUID) -> Status:
        """Make a scheduled or held job ready."""

    async def cancel_many(self, job_ids: Iterable[UUID], reason: str = ...) -> dict[UUID, Status | WindlassError]: ...

    async def retry_many(self, job_ids: Iterable[UUID]) -> dict[UUID, Status | WindlassError]: ...

    async def run_now_many(self, job_ids: Iterable[UUID]) -> dict[UUID, Status | WindlassError]: ...

    async def set_paused(self, queue: str, *, paused: bool) -> None:
        """Stop or resume claims from a queue; what runs goes on, and nothing moves."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a worker wants: jobs of its queues and types, each at most `free` threads wide.

    `budget`: threads of all of them together; more than `free` fills a buffer. `busy`: threads in use now.
    """

    worker_id: UUID
    queues: Sequence[str]
    types: Sequence[str]
    free: int
    busy: int = 0
    budget: int | None = None
    most: int = 1_000


class Progress(NamedTuple):
    """How far an attempt has come: a fraction from 0 to 1, and a word about it."""

    lease: Lease
    fraction: float
    note: str | None = None


class Settled(Enum):
    """What became of one settlement."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"  # it had been written before, and only the answer was lost
    REFUSED = "refused"  # the lease was lost: nothing was written


@dataclass(frozen=True, slots=True)
class Receipt:
    """The answer to a batch. `moved`: where each accepted job now is (cancelled, if that was asked for)."""

    moved: dict[UUID, Status]
    repeated: frozenset[UUID] = frozenset()
    refused: frozenset[UUID] = frozenset()

    def of(self, job_id: UUID) -> Settled:
        if job_id in self.moved:
            return Settled.ACCEPTED
        return Settled.REPEATED if job_id in self.repeated else Settled.REFUSED


def merged(receipts: Iterable[Receipt]) -> Receipt:
    """One answer for a batch that was written in parts."""
    moved: dict[UUID, Status] = {}
    repeated: set[UUID] = set()
    refused: set[UUID] = set()
    for receipt in receipts:
        moved |= receipt.moved
        repeated |= receipt.repeated
        refused |= receipt.refused
    return Receipt(moved, frozenset(repeated), frozenset(refused))


class Claims(Protocol):
    """What one worker does with jobs. Every write after a claim is fenced by (job, attempt, token, worker)."""

    async def claim(self, ask: Ask) -> list[Lease]:
        """Take ready jobs, lowest rank first, while they fit. Never hands out one job twice."""

    def look_afresh(self) -> None:
        """Make the next claim a full look: after a wake-up, a pause or a release."""

    async def settle(self, settlements: Iterable[Settlement]) -> Receipt:
        """Write what became of attempts, in one round trip. Safe to repeat when the answer was lost."""

    async def release(self, leases: Iterable[Lease]) -> Receipt:
        """Give jobs back untouched: they keep their rank and burn nothing."""

    async def give_back_strays(
        self, worker_id: UUID, held: Collection[UUID], *, older_than_s: float = ...
    ) -> list[UUID]:
        """Release running rows of this worker that it does not hold: claims whose answer was lost."""

    async def held(self, worker_id: UUID) -> set[tuple[UUID, UUID]]:
        """The leases of this worker, as job and token, as far as the database knows."""

    async def overlooked(self, ask: Ask, *, waited_s: float) -> bool:
        """Whether this worker, with the room it says it has, should have claimed a job long ago."""

    async def report_progress(self, reports: Iterable[Progress]) -> None:
        """Show how far attempts have come."""

    async def step(self, lease: Lease, key: str) -> str | None:
        """What a step of this job returned before, as JSON text."""

    async def keep_step(self, lease: Lease, key: str, result: str) -> None:
        """Keep what a step returned, so that no later attempt does it again. Raises LeaseLost."""

    def finishing(self, decide: Callable[[], Settlement], connection: Any = None) -> AbstractAsyncContextManager[Any]:
        """A transaction that ends by writing what `decide` then says. Raises LeaseLost, and everything in it is undone.

        With `connection` it is the caller's own, which the caller commits."""

    async def reconnect(self) -> None:
        """Have new connections made for what follows."""


Cause = Literal["left", "crashed"]


@dataclass(frozen=True, slots=True)
class LostLease:
    """A lease whose worker is dead. `crashed`: by itself, as far as the database can tell."""

    lease: Lease
    crashed: bool


@dataclass(frozen=True, slots=True)
class WideJob:
    """A job wider than any worker, and what it would rather have done about it."""

    job_id: UUID
    queue: str
    type: str
    thread_demand: int
    if_too_wide: TooWide


@dataclass(frozen=True, slots=True)
class Rolled:
    """What one roll of the partitions did. `waiting`: held up by open transactions; the next roll goes on with them."""

    made: list[str]
    removed: list[str]
    waiting: list[str]


class Upkeep(Protocol):
    """What supervisors and the leader do. Everything may be repeated, or done by two at once."""

    async def register(self, worker: NewWorker, *, lease_ttl_s: float) -> None: ...

    async def renew(
        self, worker_ids: Collection[UUID], *, lease_ttl_s: float, lost_threads: Mapping[UUID, int] = ...
    ) -> dict[UUID, bool]:
        """Push out leases; says of each living worker whether it should drain. One that is missing must stop.
        `lost_threads`: held by handlers that cannot be stopped."""

    async def held_by(self, worker_ids: Collection[UUID], *, limit: int = ...) -> list[Lease]:
        """The leases these workers hold, dead or alive."""

    async def cancels(self, worker_ids: Collection[UUID]) -> dict[UUID, dict[UUID, UUID]]:
        """By worker: the jobs that were asked to cancel, with their tokens."""

    async def drain(self, worker_ids: Collection[UUID]) -> set[UUID]:
        """Let workers claim no more; what they run goes on under their leases."""

    async def bury(self, worker_ids: Collection[UUID], cause: Cause) -> set[UUID]:
        """Say that workers are dead: they left, or their supervisor saw them crash. What they hold can be reaped."""

    async def bury_expired(self) -> set[UUID]:
        """Bury every worker whose lease has ended."""

    async def lost(self, *, limit: int = ...) -> list[LostLease]:
        """The leases of dead workers, to be settled as Lost; not those that an open transaction holds just now."""

    async def forget_workers(self, *, older_than_s: float = ...) -> set[UUID]: ...

    async def forget_idle(self) -> set[UUID]:
        """Remove what workers that are gone said of their idleness."""

    async def rooms(self, *, lately_s: float = ...) -> list[Room]:
        """Every living worker, how full it is, and how far back in the line it has reached lately."""

    async def promote(self, *, limit: int = ...) -> list[Want]:
        """Make due jobs ready; returns how many of each shape. A full page means: call again."""

    async def unknown_types(self) -> set[str]:
        """Types with ready jobs that no live worker knows; none while no worker lives."""

    async def hold_unknown(self, *, after_s: float, types: Collection[str] | None = ..., limit: int = ...) -> int:
        """Set aside jobs that have waited and whose type no live worker knows: of these types, or of all."""

    async def admit_known(self, *, limit: int = ...) -> list[Want]:
        """Give back held jobs whose type some worker now knows; returns how many of each shape."""

    async def waiting_wide(
        self,
        widest: Mapping[tuple[str, str], int],
        *,
        waited_s: float,
        known: Collection[UUID] = ...,
        limit: int = ...,
    ) -> list[Wide]:
        """Jobs of several threads, but no more than the widest worker of their queue and type has, that have waited: up
        to `limit` of each queue and width, and the `known` that still wait, in rank order."""

    async def too_wide(
        self, widest: Mapping[tuple[str, str], int], *, waited_s: float, limit: int = ...
    ) -> list[WideJob]:
        """Jobs of more threads than the widest worker of their queue and type has, that have waited and will not wait
        on. One look sees a thousand jobs of each queue and width; the next goes on behind them, after the last anew."""

    async def narrow(self, jobs: Iterable[WideJob]) -> set[UUID]:
        """Let too wide jobs run on one thread."""

    async def give_up(self, jobs: Iterable[WideJob], *, widest: int) -> set[UUID]:
        """Fail too wide jobs that asked for it."""

    async def reserve(self, wanted: Collection[Reservation], *, ttl_s: float) -> set[Reservation]:
        """Make these the reservations, and no others; returns those that hold."""

    async def reservations(self) -> list[Reservation]: ...

    async def take_term(self, holder: UUID, *, ttl_s: float) -> int | None:
        """Become or stay leader; returns the term's number, or None while another holds it."""

    async def leave_term(self, holder: UUID) -> None: ...

    async def fold_counts(self) -> bool:
        """Fold the deltas of finished transactions into the tally. False: another is at it."""

    async def expire_keys(self, *, limit: int = ...) -> int:
        """Forget idempotency keys past their time whose job has finished."""

    async def sweep_steps(self, *, limit: int = ...) -> int:
        """Forget the steps of jobs that finished more than a day ago, or are gone."""

    async def roll_partitions(self) -> Rolled:
        """Make partitions ahead, remove old ones without losing a live job, and sweep what was kept long enough."""


@dataclass(frozen=True, slots=True)
class JobQuery:
    """What to list. No statuses means all. Times are those in the jobs' ids; `created_after` is included, the other not."""

    statuses: Collection[Status] = ()
    type: str | None = None
    queue: str | None = None
    tag: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    cursor: str | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs, newest first. `next_cursor` is None at the end; a page may be short and still have one."""

    jobs: Sequence[Job]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Check:
    """What must never be seen: jobs in no table, in two, keys without a job, counts that differ from the rows."""

    nowhere: int
    twice: int
    homeless: int
    miscounted: int

    @property
    def clean(self) -> bool:
        return self.nowhere == self.twice == self.homeless == self.miscounted == 0


class Views(Protocol):
    """What people look at. Reads only."""

    async def job(self, job_id: UUID) -> Job:
        """One job wherever it is. Raises JobNotFound."""

    async def attempts(self, job_id: UUID) -> list[Attempt]:
        """The attempts of a job that have ended, oldest first."""

    async def jobs(self, query: JobQuery | None = None) -> Page:
        """One page of a list."""

    async def counts(self) -> dict[tuple[str, str, Status], int]:
        """Exact numbers of jobs by queue, type and status, whatever their number."""

    async def queues(self) -> list[Queue]:
        """Every queue that has jobs or settings."""

    async def workers(self) -> list[Worker]:
        """Every worker, the living first, then the dead that are not forgotten yet."""

    async def check(self) -> Check:
        """Look for what must never be seen. Reads everything."""


def channel(owner_id: UUID) -> str:
    """Where one worker or supervisor is woken."""
    return f"windlass_{owner_id.hex}"


def broadcast_channel(schema: str) -> str:
    """Where every worker is woken."""
    return f"{schema}_all"


class Hints(Protocol):
    """Who rests, and how to wake them. Nothing is correct because of it: whatever is hinted is also polled."""

    async def rest(
        self, worker_id: UUID, *, queues: Sequence[str], types: Sequence[str], free: int, worked: bool = False
    ) -> None:
        """Stand in line to be woken, and claim once more before sleeping. A worker that is in line keeps its place, or
        goes to the end if it has had work since (`worked`). Never waits for those who wake."""

    async def leave(self, worker_id: UUID) -> None:
        """Leave the line: busy, or gone."""

    async def rouse(self, wants: Iterable[Want]) -> list[UUID]:
        """Wake the least recently used idle workers with room for these jobs; returns whom. Call after the commit."""

    async def call_all(self, *, connection: Any = None) -> None:
        """Wake every worker that listens; with `connection`, when the caller's transaction commits."""

    async def nudge(self, job_ids: Collection[UUID]) -> set[UUID]:
        """Tell the supervisors of those who run these jobs to look for cancel requests; returns which."""

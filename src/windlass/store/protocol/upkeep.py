"""What supervisors and the leader do, and the values of it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol
from uuid import UUID

from windlass.model import (
    Declared,
    Lease,
    NewWorker,
    TooWide,
    Want,
)
from windlass.placement import Reservation, Room, Wide

Cause = Literal["left", "crashed"]


@dataclass(frozen=True, slots=True)
class LostLease:
    """A lease whose worker is dead. `crashed`: by itself, as far as the database can tell. `begun`: the job may have begun;
    certainly not if its start had to be recorded, and is not."""

    lease: Lease
    crashed: bool
    begun: bool = True


@dataclass(frozen=True, slots=True)
class Leaving:
    """A worker that was asked to leave. `drains`: it finishes its jobs, and is not replaced; `stops`: it gives them back at once."""

    worker_id: UUID
    drains: bool
    stops: bool


@dataclass(frozen=True, slots=True)
class WideJob:
    """A job wider than any worker, and what it would rather have done about it."""

    job_id: UUID
    queue: str
    type: str
    thread_demand: int
    if_too_wide: TooWide


@dataclass(frozen=True, slots=True)
class WideQueues:
    """Some queues with wide jobs. `end`: the queue and width behind which others may follow."""

    queues: Sequence[str]
    end: tuple[str, int]


@dataclass(frozen=True, slots=True)
class WaitingForNewer:
    """Held jobs of a type whose payload has fields that their worker did not know; `reason` names them. Some living worker
    knows them now. `contested`: another living worker does not, and may get them first. `takers`: workers that know them."""

    type: str
    reason: str
    contested: bool
    takers: Sequence[UUID] = ()


@dataclass(frozen=True, slots=True)
class Rolled:
    """What one roll of the partitions did. `waiting`: held up by open transactions; the next roll goes on with them."""

    made: list[str]
    removed: list[str]
    waiting: list[str]


class Upkeep(Protocol):
    """What supervisors and the leader do. Everything may be repeated, or done by two at once."""

    async def register(self, worker: NewWorker, *, lease_ttl_s: float) -> None: ...

    async def declare(self, types: Collection[Declared]) -> int:
        """Say what types there are, and their defaults; returns how many of them are new or have changed. What is as it
        was is not written: a thousand workers that restart must not bloat the table."""

    async def add_versions(self, types: Collection[Declared]) -> None:
        """Say which versions of types a program has that does not run them: it may submit what no worker takes yet."""

    async def forget_types(self) -> set[str]:
        """Forget types that no worker has declared for long. Those of living workers are declared, whenever that was said."""

    async def keep_names(self, *, unused_s: float = ...) -> set[str]:
        """Note queues and types that have jobs, and forget those that have had none for a while. Returns what was
        forgotten."""

    async def forget_tags(self, *, unused_s: float = ...) -> int:
        """Forget tags that no job has any more."""

    async def renew(
        self,
        worker_ids: Collection[UUID],
        *,
        lease_ttl_s: float,
        lost_threads: Mapping[UUID, int] = ...,
        memory_bytes: Mapping[UUID, int] = ...,
    ) -> dict[UUID, bool]:
        """Push out leases; says of each living worker whether it was asked to leave. One that is missing must stop.
        `lost_threads`: held by handlers that cannot be stopped."""

    async def leaving(self, worker_ids: Collection[UUID]) -> list[Leaving]:
        """Those of the workers that were asked to leave, and how."""

    async def unstarted(self, job_ids: Collection[UUID]) -> set[UUID]:
        """Those of the jobs that are started once at most and have certainly not begun: no start of theirs is recorded."""

    async def held_by(self, worker_ids: Collection[UUID], *, limit: int = ...) -> list[Lease]:
        """The leases these workers hold, dead or alive."""

    async def cancels(self, worker_ids: Collection[UUID]) -> dict[UUID, dict[UUID, UUID]]:
        """By worker: the jobs that were asked to cancel, with their tokens."""

    async def drain(self, worker_ids: Collection[UUID]) -> set[UUID]:
        """Let workers claim no more; what they run goes on under their leases."""

    async def bury(self, worker_ids: Collection[UUID], cause: Cause) -> set[UUID]:
        """Say that workers have ended: they left as they were told, or crashed or were killed. What they hold can be reaped."""

    async def bury_expired(self) -> set[UUID]:
        """Bury every worker whose lease has ended by the clock that granted it; after a restart or a failover of the server only
        those that had the whole length of their lease to renew it."""

    async def overdue(self, *, after_s: float) -> bool:
        """Whether the leader is late with a worker whose lease has ended: it may be dead itself."""

    async def lost(self, *, limit: int = ...) -> list[LostLease]:
        """The leases of dead workers, to be settled as Lost; not those that an open transaction holds just now."""

    async def forget_workers(self, *, older_than_s: float = ...) -> set[UUID]: ...

    async def forget_idle(self) -> set[UUID]:
        """Remove what workers that are gone said of their idleness."""

    async def rooms(self, *, lately_s: float = ...) -> list[Room]:
        """Every living worker, how full it is, and how far back in the line it has reached lately."""

    async def wide_queues(self, prefixes: Sequence[str], after: WideQueues | None = ...) -> WideQueues:
        """Queues with these prefixes that have ready jobs of several threads: up to a hundred, those behind `after`, and from the
        first again after the last."""

    async def promote(self, *, limit: int = ...) -> list[Want]:
        """Make due jobs ready; returns how many of each shape. A full page means: call again."""

    async def unknown_types(self) -> set[str]:
        """Types with ready jobs that no live worker knows; none while no worker lives."""

    async def hold_unknown(self, *, after_s: float, types: Collection[str] | None = ..., limit: int = ...) -> int:
        """Set aside jobs that have waited and whose type no live worker knows: of these types, or of all."""

    async def admit_known(self, *, limit: int = ...) -> list[Want]:
        """Give back held jobs whose type some worker now knows; returns how many of each shape."""

    async def waiting_for_newer(self) -> list[WaitingForNewer]:
        """Held jobs with fields that their worker did not know, which some living worker would take now."""

    async def admit_waiting(self, waiting: WaitingForNewer, *, limit: int = ...) -> list[Want]:
        """Give these jobs back; returns how many of each shape."""

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

    async def take_term(
        self, holder: UUID, *, ttl_s: float, since_last_s: float | None = ..., gap_s: float = ...
    ) -> int | None:
        """Become or stay leader; returns the term's number, or None while another holds it. Notes by the way what server it is.

        `since_last_s`: since this leader did so last, by its own clock. The server was out of reach, or its clock has jumped, if
        `gap_s` more have passed.
        """

    async def leave_term(self, holder: UUID) -> None: ...

    async def fold_rollups(self, *, limit: int = ...) -> bool:
        """Add a page of what was recorded lately to its minutes and hours, for charts. True: the page was full."""

    async def expire_rollups(self) -> int:
        """Forget minutes after two days and hours after sixty."""

    async def fold_counts(self) -> bool:
        """Fold the deltas of finished transactions into the tally. False: another is at it."""

    async def expire_keys(self, *, limit: int = ...) -> int:
        """Forget idempotency keys past their time whose job has finished."""

    async def forget_followed_logs(self) -> int:
        """Forget the logs of running attempts that nobody follows any more."""

    async def sweep_effects(self, *, limit: int = ...) -> int:
        """Forget the effects of jobs that are gone."""

    async def sweep_steps(self, *, limit: int = ...) -> int:
        """Forget the steps of jobs that finished more than a day ago, or are gone."""

    async def sweep_charges(self) -> None:
        """Forget the finished jobs of subjects that have had a quota: those who still submit do so themselves."""

    async def sweep_tokens(self, *, limit: int = ...) -> int:
        """Forget spent and revoked tokens that are past their time: they are refused without being remembered."""

    async def expire_audit(self, *, limit: int = ...) -> int:
        """Remove one page of entries of the audit that were kept long enough; returns how many."""

    async def expire_dead_letters(self, *, limit: int = ...) -> int:
        """Remove one page of jobs that failed longer ago than dead letters are kept; returns how many."""

    async def roll_partitions(self) -> Rolled:
        """Make partitions ahead, remove old ones without losing a live job, and sweep what was kept long enough."""

    async def partition_problem(self) -> str | None:
        """Why this role could not make or remove partitions; None if it could."""

    async def partition_days_ahead(self) -> int:
        """For how many days from today, today included, jobs can be stored in the partitions there are."""

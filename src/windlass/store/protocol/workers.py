"""What one worker does with jobs, and what it is told."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from windlass.lifecycle import Settlement
from windlass.model import (
    Lease,
    Status,
)
from windlass.rollups import Tally
from windlass.store.protocol.effects import EffectWriter


@dataclass(frozen=True, slots=True)
class Ask:
    """What a worker wants: jobs of its queues and types, each at most `free` threads wide.

    `budget`: threads of all of them together; more than `free` fills a buffer. `busy`: threads in use now.
    `in_line`: it stands in line to be woken, which it leaves if it gets something.
    """

    worker_id: UUID
    queues: Sequence[str]
    types: Sequence[str]
    free: int
    busy: int = 0
    budget: int | None = None
    most: int = 1_000
    in_line: bool = False


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


class Claims(EffectWriter, Protocol):
    """What one worker does with jobs. Every write after a claim is fenced by (job, attempt, token, worker)."""

    async def claim(self, ask: Ask) -> list[Lease]:
        """Take ready jobs, lowest rank first, while they fit. Never hands out one job twice."""

    def look_afresh(self) -> None:
        """Make the next claim a full look: after a wake-up, a pause or a release."""

    async def settle(self, settlements: Iterable[Settlement]) -> Receipt:
        """Write what became of attempts, in one round trip. Safe to repeat when the answer was lost."""

    async def release(self, leases: Iterable[Lease]) -> Receipt:
        """Give jobs back untouched: they keep their rank and burn nothing."""

    async def strays(self, worker_id: UUID, held: Collection[UUID], *, older_than_s: float) -> list[Lease]:
        """Leases of this worker that it does not hold: claims whose answer was lost, hand-overs it was not told of. For release
        only: what they are about is left out."""

    async def held(self, worker_id: UUID) -> set[tuple[UUID, UUID]]:
        """The leases of this worker, as job and token, as far as the database knows."""

    async def taken_by_other_version(self, type_: str, digest: str, fields: Sequence[str]) -> bool:
        """Whether another version of this type than the one with this digest takes these fields: one that a living worker
        has, or one that was first declared later."""

    async def overlooked(self, ask: Ask, *, waited_s: float) -> bool:
        """Whether this worker, with the room it says it has, should have claimed a job long ago."""

    async def report_progress(self, reports: Iterable[Progress]) -> None:
        """Show how far attempts have come."""

    async def followed(self, job_ids: Collection[UUID]) -> set[UUID]:
        """Those of the jobs whose logs somebody follows."""

    async def show_logs(self, logs: Iterable[tuple[Lease, str]]) -> None:
        """Show what followed attempts have written so far."""

    async def record_rollups(self, tallies: Mapping[tuple[str, str], Tally]) -> None:
        """Tell what was counted by queue and type, for charts."""

    async def step(self, lease: Lease, key: str) -> str | None:
        """What a step of this job returned before, as JSON text."""

    async def keep_step(self, lease: Lease, key: str, result: str) -> None:
        """Keep what a step returned, so that no later attempt does it again. Raises LeaseLost."""

    def finishing(self, decide: Callable[[], Settlement], connection: Any = None) -> AbstractAsyncContextManager[Any]:
        """A transaction that ends by writing what `decide` then says. Raises LeaseLost, and everything in it is undone.

        With `connection` it is the caller's own, which the caller commits."""

    async def reconnect(self) -> None:
        """Have new connections made for what follows."""

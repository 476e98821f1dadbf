"""What a worker does with jobs: claim, settle, release, find strays.

A claim hands out no job twice. Every write after it is fenced by (job, attempt, token, worker): a settlement of a
lease that was lost changes nothing and is reported.
"""

import logging
import time
from collections.abc import Collection, Iterable
from operator import itemgetter
from typing import Final
from uuid import UUID, uuid4

import asyncpg
from asyncpg import PostgresError, UniqueViolationError

from windlass.errors import Corrupt, WindlassError
from windlass.lifecycle import Released, Settlement, error_document, settle
from windlass.model import Error, Lease, Status, thread_demand_max
from windlass.store.floors import Floors
from windlass.store.postgres import Postgres
from windlass.store.protocol import Ask, Receipt, merged

_LOWEST: Final = -(2**63)
_BATCH_CHARS_MAX: Final = 16_000_000
# Data that cannot be what it should, a constraint, a limit of the server: the row's fault, not the moment's.
_BAD_ROW: Final = ("22", "23", "54")
_log: Final = logging.getLogger(__name__)

Looks = dict[tuple[str, int], int]


class Claims:
    """One worker's way to the store: it remembers that worker's floors."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self._floors: Floors[tuple[str, int], int] = Floors()

    def look_afresh(self) -> None:
        """Make the next claim a full look: after a wake-up, a pause or a release."""
        self._floors.forget()

    async def claim(self, ask: Ask) -> list[Lease]:
        """Take ready jobs, lowest rank first, while they fit. One wide job at the head may end the answer early:
        what is left of the budget can be asked for again."""
        began_s = time.monotonic()
        floors = {
            key: floor for key, floor in self._floors.at(began_s).items() if key[0] in ask.queues and key[1] <= ask.free
        }
        widest = min(ask.free, thread_demand_max)
        looks = floors or {(queue, demand): _LOWEST for queue in ask.queues for demand in range(1, widest + 1)}
        try:
            rows = await self._take(ask, looks)
        except WindlassError:
            self._floors.forget()
            raise
        leases = [Lease._make(row) for row in rows]
        self._learn(ask, leases, full=not floors, began_s=began_s)
        orphans = [lease for lease in leases if lease.payload is None]
        if orphans:
            # A job row is out of sight for a moment while its partition is removed: such a job goes back.
            await self.release(orphans)
            return [lease for lease in leases if lease.payload is not None]
        return leases

    async def _take(self, ask: Ask, looks: Looks) -> list[asyncpg.Record]:
        queues, demands = [queue for queue, _ in looks], [demand for _, demand in looks]
        args = (queues, demands, list(looks.values()), ask.types, _budget(ask), ask.busy, ask.most)
        try:
            return await self._postgres.fetch("claim", ask.worker_id, uuid4(), *args)
        except UniqueViolationError as error:
            if not await self._mend():
                raise Corrupt(f"claiming from {queues}: {error}") from error
        return await self._postgres.fetch("claim", ask.worker_id, uuid4(), *args)

    def _learn(self, ask: Ask, leases: list[Lease], *, full: bool, began_s: float) -> None:
        if len(leases) < ask.most and sum(lease.threads for lease in leases) < _budget(ask):
            self._floors.forget()  # came back short
            return
        seen = (((lease.queue, lease.threads), lease.rank) for lease in leases)
        self._floors.learn(seen, full=full, began_s=began_s, ended_s=time.monotonic())

    async def settle(self, settlements: Iterable[Settlement]) -> Receipt:
        """Write what became of attempts, in one round trip. Safe to repeat when the answer was lost."""
        batch = sorted(settlements, key=itemgetter(0))  # by job id: two batches lock in the same order
        if not batch:
            return Receipt({})
        if len(batch) > 1 and sum(len(s.result or "") + len(s.log or "") for s in batch) > _BATCH_CHARS_MAX:
            half = (
                len(batch) // 2
            )  # PostgreSQL takes no message above a gigabyte, and long before that it takes too long
            return merged([await self.settle(batch[:half]), await self.settle(batch[half:])])
        try:
            ((count, moved_ids, cancelled_ids),) = await self._postgres.fetch("settle", *zip(*batch, strict=True))
        except PostgresError as error:
            return await self._one_by_one(batch, error)
        moved: dict[UUID, Status] = {settlement[0]: settlement[4] for settlement in batch}
        if cancelled_ids:
            moved |= dict.fromkeys(cancelled_ids, Status.CANCELLED)
        if count == len(batch):
            return Receipt(moved)
        ours = frozenset(moved_ids or ())
        moved = {job_id: status for job_id, status in moved.items() if job_id in ours}
        left = [settlement for settlement in batch if settlement.job_id not in ours]
        return await self._read_back(moved, left) if left else Receipt(moved)

    async def _one_by_one(self, batch: list[Settlement], error: PostgresError) -> Receipt:
        """Something in the batch cannot be stored: only that row may suffer. The work was done, so it is settled all the
        same, with the reason in place of what could not be kept."""
        if (error.sqlstate or "")[:2] not in _BAD_ROW:
            raise error
        doubled = isinstance(error, UniqueViolationError)
        if doubled and not await self._mend():
            raise Corrupt(f"settling jobs {[str(s.job_id) for s in batch]}: {error}") from error
        if doubled or len(batch) > 1:
            return merged([await self.settle([settlement]) for settlement in batch])
        (settlement,) = batch
        note = error_document(Error("NotStored", str(error)))
        if settlement.error == note:
            raise error
        bare = settlement._replace(result=None, log=None, execution_s=None, error=note)
        return await self.settle([bare])

    async def _mend(self) -> bool:
        """Jobs in two tables: a fault of ours, or someone's own SQL. Put right, and never silently."""
        mended = [str(row["job_id"]) for row in await self._postgres.pinned("mend")]
        if mended:
            _log.error("jobs that sat in two tables were put right: %s", ", ".join(mended))
        return bool(mended)

    async def _read_back(self, moved: dict[UUID, Status], left: list[Settlement]) -> Receipt:
        written = zip(*((s.job_id, s.attempt, s.token, s.status, s.ended, s.fingerprint) for s in left), strict=True)
        repeated = frozenset(row["job_id"] for row in await self._postgres.pinned("settled_by", *written))
        return Receipt(moved, repeated, frozenset(s.job_id for s in left) - repeated)

    async def release(self, leases: Iterable[Lease]) -> Receipt:
        """Give jobs back untouched: they keep their rank and burn nothing."""
        self._floors.forget()
        return await self.settle([settle(lease, Released(), jitter=0) for lease in leases])

    async def give_back_strays(
        self, worker_id: UUID, held: Collection[UUID], *, older_than_s: float = 5.0
    ) -> list[UUID]:
        """Release running rows of this worker that it does not hold: claims whose answer was lost."""
        rows = await self._postgres.pinned("strays", worker_id, older_than_s, list(held))
        if not rows:
            return []
        return list((await self.release([Lease._make(row) for row in rows])).moved)

    async def cancel_requests(self, worker_id: UUID) -> dict[UUID, UUID]:
        """The jobs of this worker that were asked to cancel, with their tokens."""
        return {row["job_id"]: row["token"] for row in await self._postgres.pinned("cancel_requests", worker_id)}


def _budget(ask: Ask) -> int:
    return ask.free if ask.budget is None else ask.budget

"""What keeps the cluster whole: workers and their leases, the leader's term, and its chores.

Nothing here is correct because only one leader does it: every statement may be repeated, or run by two at once.
"""

import time
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from windlass.errors import NotPossible
from windlass.lifecycle import error_document, fingerprint
from windlass.model import Error, Lease, NewWorker, check_new_worker
from windlass.placement import Reservation
from windlass.store import partitions
from windlass.store.floors import Floors
from windlass.store.postgres import Postgres, patiently
from windlass.store.protocol import Cause, LostLease, Rolled, WideJob

_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PAGE: Final = 1_000
_LINE: Final = 50  # wide jobs looked at in one tick


class Upkeep:
    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self._due: Floors[None, datetime] = Floors()

    # Workers. -------------------------------------------------------------------------------------------------------

    async def register(self, worker: NewWorker, *, lease_ttl_s: float) -> None:
        check_new_worker(worker)
        row = await self._postgres.fetchrow(
            "register", worker.id, worker.supervisor_id, lease_ttl_s, worker.threads, worker.name, list(worker.queues),
            list(worker.types),
        )  # fmt: skip
        if row is None:
            raise NotPossible(f"worker {worker.id} has died; an id is never used again")

    async def renew(self, worker_ids: Collection[UUID], *, lease_ttl_s: float) -> dict[UUID, bool]:
        """Push out leases; says of each living worker whether it should drain. One that is missing must stop."""
        rows = await self._postgres.fetch("renew", sorted(worker_ids), lease_ttl_s)
        return {row["id"]: row["draining"] for row in rows}

    async def drain(self, worker_ids: Collection[UUID]) -> set[UUID]:
        """Let workers claim no more; what they run goes on under their leases."""
        return {row["id"] for row in await self._postgres.fetch("drain", sorted(worker_ids))}

    async def bury(self, worker_ids: Collection[UUID], cause: Cause) -> set[UUID]:
        """Say that workers are dead: they left, or their supervisor saw them crash. What they hold can be reaped."""
        return {row["id"] for row in await self._postgres.fetch("bury", sorted(worker_ids), cause)}

    async def bury_expired(self) -> set[UUID]:
        """Bury every worker whose lease has ended."""
        return {row["id"] for row in await self._postgres.fetch("bury_expired")}

    async def lost(self, *, limit: int = _PAGE) -> list[LostLease]:
        """The leases of dead workers, to be settled as Lost."""
        rows = await self._postgres.pinned("lost", limit)
        return [LostLease(Lease(*tuple(row)[:-1]), crashed=row["crashed"]) for row in rows]

    async def forget_workers(self, *, older_than_s: float = 86_400.0) -> set[UUID]:
        return {row["id"] for row in await self._postgres.fetch("forget_workers", older_than_s)}

    # Jobs that wait. ------------------------------------------------------------------------------------------------

    async def promote(self, *, limit: int = _PAGE) -> dict[str, int]:
        """Make due jobs ready; returns how many each queue gained. A full page means: call again."""
        began_s = time.monotonic()
        floors = self._due.at(began_s)
        rows = await self._postgres.pinned("promote", limit, floors.get(None, _LONG_AGO))
        if sum(row["jobs"] for row in rows) < limit:
            self._due.forget()
        else:
            least = min(row["least"] for row in rows)
            self._due.learn([(None, least)], full=not floors, began_s=began_s, ended_s=time.monotonic())
        return {row["queue"]: row["jobs"] for row in rows}

    async def hold_unknown(self, *, after_s: float, limit: int = _PAGE) -> int:
        """Set aside jobs whose type no live worker knows."""
        types = [row["type"] for row in await self._postgres.fetch("unknown_types")]
        return len(await self._postgres.pinned("hold_unknown", after_s, limit, types)) if types else 0

    async def admit_known(self, *, limit: int = _PAGE) -> dict[str, int]:
        """Give back held jobs whose type some worker now knows."""
        return {row["queue"]: row["jobs"] for row in await self._postgres.pinned("admit_known", limit)}

    # Wide jobs. -----------------------------------------------------------------------------------------------------

    async def waiting_wide(
        self, queues: Sequence[str], *, widest: int, waited_s: float, limit: int = _LINE
    ) -> list[WideJob]:
        """Jobs of 2 to `widest` threads that have waited, in rank order."""
        rows = await self._postgres.pinned("waiting_wide", list(queues), widest, waited_s, limit)
        return [WideJob(*row) for row in rows]

    async def too_wide(
        self, queues: Sequence[str], *, widest: int, waited_s: float, limit: int = _LINE
    ) -> list[WideJob]:
        """Jobs of more threads than any worker has, that have waited."""
        return [WideJob(*row) for row in await self._postgres.pinned("too_wide", list(queues), widest, waited_s, limit)]

    async def narrow(self, jobs: Iterable[WideJob]) -> set[UUID]:
        """Let too wide jobs run on one thread."""
        ids, demands = _wide_arrays(jobs)
        return {row["job_id"] for row in await self._postgres.pinned("narrow", ids, demands)}

    async def give_up(self, jobs: Iterable[WideJob], *, widest: int) -> set[UUID]:
        """Fail too wide jobs that asked for it."""
        ids, demands = _wide_arrays(jobs)
        error = Error("TooWide", f"asks for more threads than any worker has ({widest})")
        rows = await self._postgres.pinned("give_up", ids, demands, error_document(error), fingerprint(error))
        return {row["job_id"] for row in rows}

    async def reserve(self, wanted: Collection[Reservation], *, ttl_s: float) -> set[Reservation]:
        """Make these the reservations, and no others; returns those that hold."""
        workers = [r.worker_id for r in wanted]
        jobs = [r.job_id for r in wanted]
        threads = [r.threads for r in wanted]

        async def run() -> set[tuple[UUID, UUID]]:
            async with self._postgres.transaction() as connection:
                await self._postgres.fetch("release_reservations", workers, jobs, connection=connection)
                rows = await self._postgres.fetch("reserve", workers, jobs, threads, ttl_s, connection=connection)
                return {(row["worker_id"], row["job_id"]) for row in rows}

        held = await patiently(run)
        return {r for r in wanted if (r.worker_id, r.job_id) in held}

    async def reservations(self) -> list[Reservation]:
        return [Reservation(*row) for row in await self._postgres.fetch("reservations")]

    # The leader. ----------------------------------------------------------------------------------------------------

    async def take_term(self, holder: UUID, *, ttl_s: float) -> int | None:
        """Become or stay leader; returns the term's number, or None while another holds it."""
        row = await self._postgres.fetchrow("take_term", holder, ttl_s)
        return None if row is None else int(row["term"])

    async def leave_term(self, holder: UUID) -> None:
        await self._postgres.fetch("leave_term", holder)

    async def fold_counts(self) -> bool:
        """Fold the deltas of finished transactions into the tally. False: another is at it."""
        async with self._postgres.transaction() as connection:
            row = await self._postgres.fetch("fold_lock", self._postgres.config.schema, connection=connection)
            if row[0]["mine"]:
                await self._postgres.fetch("fold", connection=connection)
            return bool(row[0]["mine"])

    async def expire_keys(self, *, limit: int = _PAGE) -> int:
        """Forget idempotency keys past their time whose job has finished."""
        expired, after = 0, (_LONG_AGO, "")
        while True:
            page = await self._postgres.pinned("old_keys", self._postgres.config.key_ttl_s, *after, limit)
            expired += len(await self._postgres.pinned("expire_keys", [row["key"] for row in page]))
            if len(page) < limit:
                return expired
            after = (page[-1]["created_at"], page[-1]["key"])

    async def roll_partitions(self) -> Rolled:
        """Make partitions ahead, remove old ones without losing a live job, and sweep what was kept long enough."""
        rolled = await partitions.roll(self._postgres.config)
        while len(await self._postgres.fetch("sweep_kept", self._postgres.config.retention_s, _PAGE)) == _PAGE:
            pass
        return rolled


def _wide_arrays(jobs: Iterable[WideJob]) -> tuple[list[UUID], list[int]]:
    ordered = sorted(jobs, key=lambda job: job.job_id)
    return [job.job_id for job in ordered], [job.thread_demand for job in ordered]

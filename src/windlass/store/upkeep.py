"""What keeps the cluster whole: workers and their leases, the leader's term, and its chores.

Nothing here is correct because only one leader does it: every statement may be repeated, or run by two at once.
"""

import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from asyncpg import Record

from windlass.errors import NotPossible
from windlass.lifecycle import error_document, fingerprint
from windlass.model import Declared, Error, Lease, NewWorker, Want, check_new_worker, thread_demand_max
from windlass.placement import Reservation, Room, Wide
from windlass.store import partitions
from windlass.store.catalogue import declared_row, version_row
from windlass.store.floors import Floors
from windlass.store.lines import BEFORE_ALL, Line, page_of_lines
from windlass.store.names import Names
from windlass.store.postgres import Postgres, patiently
from windlass.store.protocol import Cause, Leaving, LostLease, Rolled, WaitingForNewer, WideJob, WideQueues
from windlass.store.series import PAIRS_MAX

_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PAGE: Final = 1_000
_NONE: Final[Mapping[UUID, int]] = {}
_LINE: Final = 50  # wide jobs looked at in one tick
_DAY_S: Final = 86_400.0
# Lines looked at in one tick to find the queues that they wait in, where some are served by pattern.
_WIDE_STEPS: Final = 1_000
_WIDE_QUEUES: Final = 100  # of those: each is asked for by type
_NAMES_KEPT_S: Final = 3600.0
_STEPS_KEPT_S: Final = _DAY_S
_FIRST: Final = UUID(int=0)
_LAST_RANK: Final = 2**63 - 1


class Upkeep:
    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self._names = Names(postgres)
        self._due: Floors[None, datetime] = Floors()
        self._looked: dict[tuple[str, int], tuple[int, int]] = {}  # by queue and width: the last job looked at

    # Workers. -------------------------------------------------------------------------------------------------------

    async def register(self, worker: NewWorker, *, lease_ttl_s: float) -> None:
        check_new_worker(worker)
        row = await self._postgres.fetchrow(
            "register", worker.id, worker.supervisor_id, lease_ttl_s, worker.threads, worker.name, list(worker.queues),
            list(worker.types), None if worker.digests is None else list(worker.digests), worker.version,
        )  # fmt: skip
        if row is None:
            raise NotPossible(f"worker {worker.id} has died; an id is never used again")

    async def declare(self, types: Collection[Declared]) -> int:
        """Say what types there are, and their defaults; returns how many of them are new or have changed."""
        if not types:
            return 0
        rows = [declared_row(one) for one in types]
        changed = await self._postgres.fetch("declare", json.dumps(rows))
        if types:
            await self._postgres.fetch("declare_versions", _version_rows(types))
        await self._postgres.fetch("refresh_types", sorted(one.name for one in types))
        return len(changed)

    async def add_versions(self, types: Collection[Declared]) -> None:
        """Say which versions of types a program has that does not run them: it may submit what no worker takes yet."""
        if types:
            await self._postgres.fetch("add_versions", _version_rows(types))

    async def forget_types(self) -> set[str]:
        """Forget types that no worker has declared for long. Those of living workers are declared, whenever that was said."""
        await self._postgres.fetch("refresh_types", [])
        await self._postgres.fetch("refresh_versions")
        kept_s = self._postgres.config.type_retention_days * _DAY_S
        await self._postgres.fetch("forget_versions", kept_s)
        return {row["name"] for row in await self._postgres.fetch("forget_types", kept_s)}

    async def drain(self, worker_ids: Collection[UUID]) -> set[UUID]:
        """Let workers claim no more; what they run goes on under their leases."""
        return {row["id"] for row in await self._postgres.fetch("drain", sorted(worker_ids))}

    async def bury(self, worker_ids: Collection[UUID], cause: Cause) -> set[UUID]:
        """Say that workers have ended: they left as they were told, or crashed or were killed. What they hold can be reaped."""
        return {row["id"] for row in await self._postgres.fetch("bury", sorted(worker_ids), cause)}

    async def bury_expired(self) -> set[UUID]:
        """Bury every worker whose lease has ended by the clock that granted it; after a restart or a failover of the server only
        those that had the whole length of their lease to renew it."""
        return {row["id"] for row in await self._postgres.fetch("bury_expired")}

    async def overdue(self, *, after_s: float) -> bool:
        """Whether the leader is late with a worker whose lease has ended: it may be dead itself."""
        ((overdue,),) = await self._postgres.fetch("overdue", after_s)
        return bool(overdue)

    async def lost(self, *, limit: int = _PAGE) -> list[LostLease]:
        """The leases of dead workers, to be settled as Lost; not those that an open transaction holds just now."""
        rows = await self._postgres.pinned("lost", limit)
        return [LostLease(Lease(*tuple(row)[:-2]), crashed=row["crashed"], begun=row["begun"]) for row in rows]

    async def forget_workers(self, *, older_than_s: float = 86_400.0) -> set[UUID]:
        return {row["id"] for row in await self._postgres.fetch("forget_workers", older_than_s)}

    async def forget_idle(self) -> set[UUID]:
        """Remove what workers that are gone said of their idleness."""
        return {row["worker_id"] for row in await self._postgres.fetch("forget_idle")}

    async def rooms(self, *, lately_s: float = 2.0) -> list[Room]:
        """Every living worker, how full it is, and how far back in the line it has reached lately."""
        return [
            Room(
                row["id"], row["threads"], row["busy"], frozenset(row["queues"]), frozenset(row["types"]),
                row["last_claim"], row["latest_rank"], row["lost_threads"], row["draining"],
            )
            for row in await self._postgres.pinned("rooms", lately_s)
        ]  # fmt: skip

    async def wide_queues(self, prefixes: Sequence[str], after: WideQueues | None = None) -> WideQueues:
        """Queues with these prefixes that have ready jobs of several threads."""
        begin = BEFORE_ALL if after is None else Line(*after.end)
        page = await page_of_lines(self._postgres, prefixes, begin, steps=_WIDE_STEPS)
        queues = list(dict.fromkeys(line.queue for line in page.lowest if line.demand > 1))
        if len(queues) > _WIDE_QUEUES:
            return WideQueues(queues[:_WIDE_QUEUES], Line(queues[_WIDE_QUEUES - 1], thread_demand_max))
        return WideQueues(queues, page.end)

    # Jobs that wait. ------------------------------------------------------------------------------------------------

    async def promote(self, *, limit: int = _PAGE) -> list[Want]:
        """Make due jobs ready; returns how many of each shape. A full page means: call again."""
        began_s = time.monotonic()
        floors = self._due.at(began_s)
        rows = await self._postgres.pinned("promote", limit, floors.get(None, _LONG_AGO))
        if sum(row["jobs"] for row in rows) < limit:
            self._due.forget()
        else:
            least = min(row["least"] for row in rows)
            self._due.learn([(None, least)], full=not floors, began_s=began_s, ended_s=time.monotonic())
        return _gained(rows)

    async def unknown_types(self) -> set[str]:
        """Types with ready jobs that no live worker knows; none while no worker lives."""
        return {row["type"] for row in await self._postgres.fetch("unknown_types")}

    async def hold_unknown(self, *, after_s: float, types: Collection[str] | None = None, limit: int = _PAGE) -> int:
        """Set aside jobs that have waited and whose type no live worker knows: of these types, or of all."""
        wanted = sorted(await self.unknown_types() if types is None else types)
        return len(await self._postgres.pinned("hold_unknown", after_s, limit, wanted)) if wanted else 0

    async def admit_known(self, *, limit: int = _PAGE) -> list[Want]:
        """Give back held jobs whose type some worker now knows; returns how many of each shape."""
        ((held,),) = await self._postgres.fetch("anything_held")
        return _gained(await self._postgres.pinned("admit_known", limit)) if held else []

    async def waiting_for_newer(self) -> list[WaitingForNewer]:
        """Held jobs with fields that their worker did not know, which some living worker would take now."""
        return [WaitingForNewer(*row) for row in await self._postgres.fetch("waiting_for_newer")]

    async def admit_waiting(self, waiting: WaitingForNewer, *, limit: int = _PAGE) -> list[Want]:
        """Give these jobs back; returns how many of each shape."""
        return _gained(await self._postgres.pinned("admit_waiting", waiting.type, waiting.reason, limit))

    # Wide jobs. -----------------------------------------------------------------------------------------------------

    async def waiting_wide(
        self,
        widest: Mapping[tuple[str, str], int],
        *,
        waited_s: float,
        known: Collection[UUID] = (),
        limit: int = _LINE,
    ) -> list[Wide]:
        """Jobs of several threads, but no more than the widest worker of their queue and type has, that have waited: up
        to `limit` of each queue and width, and the `known` that still wait, in rank order."""
        queues, types = [queue for queue, _ in widest], [type_ for _, type_ in widest]
        widths = list(widest.values())
        rows = await self._postgres.pinned("waiting_wide", queues, types, widths, waited_s, list(known), limit)
        return [Wide(*row) for row in rows]

    async def too_wide(
        self, widest: Mapping[tuple[str, str], int], *, waited_s: float, limit: int = _LINE
    ) -> list[WideJob]:
        """Jobs of more threads than the widest worker of their queue and type has, that have waited and will not wait
        on. One look sees a thousand jobs of each queue and width; the next goes on behind them, after the last anew."""
        asked = [
            (queue, type_, width, *self._looked.get((queue, width), (width, _LAST_RANK)))
            for (queue, type_), width in widest.items()
        ]
        columns = zip(*asked, strict=True) if asked else [()] * 5
        rows = await self._postgres.pinned("too_wide", *map(list, columns), waited_s, limit)
        jobs = [WideJob(*tuple(row)[:5]) for row in rows if row["job_id"] is not None]
        if len(jobs) < limit:  # a page that was cut is looked at again: what was found will be gone by then
            ends = [row for row in rows if row["job_id"] is None]
            self._looked = {(row["queue"], row["widest"]): (row["thread_demand"], row["rank"]) for row in ends}
        return jobs

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
            async with self._postgres.transaction(brief=True) as connection:
                await self._postgres.fetch("release_reservations", workers, jobs, connection=connection)
                rows = await self._postgres.fetch("reserve", workers, jobs, threads, ttl_s, connection=connection)
                return {(row["worker_id"], row["job_id"]) for row in rows}

        held = await patiently(run)
        return {r for r in wanted if (r.worker_id, r.job_id) in held}

    async def reservations(self) -> list[Reservation]:
        return [Reservation(*row) for row in await self._postgres.fetch("reservations")]

    # The leader. ----------------------------------------------------------------------------------------------------

    async def take_term(
        self, holder: UUID, *, ttl_s: float, since_last_s: float | None = None, gap_s: float = 6.0
    ) -> int | None:
        """Become or stay leader; returns the term's number, or None while another holds it."""
        row = await self._postgres.fetchrow("take_term", holder, ttl_s, since_last_s, gap_s)
        return None if row is None else int(row["term"])

    async def leave_term(self, holder: UUID) -> None:
        await self._postgres.fetch("leave_term", holder)

    async def fold_counts(self) -> bool:
        """Fold the deltas of finished transactions into the tally. False: another is at it."""
        oldest = await self._postgres.fetchrow("foldable")
        if oldest is None or not oldest["due"]:
            return True
        async with self._postgres.transaction(brief=True) as connection:
            row = await self._postgres.fetch("fold_lock", self._postgres.config.schema, connection=connection)
            if row[0]["mine"]:
                await self._postgres.fetch("fold", connection=connection)
            return bool(row[0]["mine"])

    async def fold_rollups(self, *, limit: int = _PAGE) -> bool:
        """Add a page of what was recorded lately to its minutes and hours, for charts. True: the page was full."""
        async with self._postgres.transaction(brief=True) as connection:
            row = await self._postgres.fetch(
                "fold_lock", f"{self._postgres.config.schema} rollups", connection=connection
            )
            if not row[0]["mine"]:
                return False
            page = await self._postgres.fetch("fold_rollups", PAIRS_MAX, limit, connection=connection)
            return bool(page[0]["folded"] >= limit)

    async def expire_rollups(self) -> int:
        """Forget minutes after two days and hours after sixty."""
        return len(await self._postgres.fetch("expire_rollups"))

    async def expire_keys(self, *, limit: int = _PAGE) -> int:
        """Forget idempotency keys past their time whose job has finished."""
        expired, after = 0, (_LONG_AGO, "")
        while True:
            page = await self._postgres.pinned("old_keys", self._postgres.config.key_ttl_s, *after, limit)
            expired += len(await self._postgres.pinned("expire_keys", [row["key"] for row in page]))
            if len(page) < limit:
                return expired
            after = (page[-1]["created_at"], page[-1]["key"])

    async def keep_names(self, *, unused_s: float = _NAMES_KEPT_S) -> set[str]:
        """Note queues and types that have jobs, and forget those that have had none for a while. Returns what was
        forgotten."""
        return await self._names.keep(unused_s=unused_s)

    async def forget_tags(self, *, unused_s: float = _NAMES_KEPT_S) -> int:
        """Forget tags that no job has any more."""
        return await self._names.forget_tags(unused_s=unused_s)

    async def forget_followed_logs(self) -> int:
        """Forget the logs of running attempts that nobody follows any more."""
        return len(await self._postgres.fetch("forget_followed_logs"))

    async def sweep_steps(self, *, limit: int = _PAGE) -> int:
        """Forget the steps of jobs that finished more than a day ago, or are gone."""
        swept, after = 0, _FIRST
        while True:
            page = await self._postgres.pinned("old_steps", _STEPS_KEPT_S, after, limit)
            old = [row["job_id"] for row in page if row["old"]]
            if old:
                swept += len(await self._postgres.pinned("sweep_steps", _STEPS_KEPT_S, old))
            if len(page) < limit:
                return swept
            after = page[-1]["job_id"]

    async def sweep_effects(self, *, limit: int = _PAGE) -> int:
        """Forget the effects of jobs that are gone."""
        swept, after = 0, _FIRST
        while True:
            page = [row["job_id"] for row in await self._postgres.pinned("old_effects", after, limit)]
            if page:
                swept += len(await self._postgres.pinned("sweep_effects", page, self._postgres.config.schema))
            if len(page) < limit:
                return swept
            after = page[-1]

    async def sweep_charges(self) -> None:
        """Forget the finished jobs of subjects that have had a quota."""
        for row in await self._postgres.pinned("charged_subjects"):
            await self._postgres.pinned("count_charges", row["subject"])

    async def sweep_tokens(self, *, limit: int = _PAGE) -> int:
        """Forget spent and revoked tokens that are past their time: they are refused without being remembered."""
        swept = len(await self._postgres.fetch("sweep_revoked"))
        while True:
            page = len(await self._postgres.pinned("sweep_spent", limit))
            swept += page
            if page < limit:
                return swept

    async def expire_audit(self, *, limit: int = _PAGE) -> int:
        """Remove one page of entries of the audit that were kept long enough; returns how many."""
        kept_s = self._postgres.config.audit_retention_days * _DAY_S
        if not kept_s:
            return 0
        return int((await self._postgres.fetchrow("expire_audit", kept_s, limit) or {"gone": 0})["gone"])

    async def expire_dead_letters(self, *, limit: int = _PAGE) -> int:
        """Remove one page of jobs that failed longer ago than dead letters are kept; returns how many."""
        kept_s = self._postgres.config.dead_letter_retention_s
        if kept_s is None:
            return 0
        page = await self._postgres.pinned("old_dead_letters", kept_s, limit)
        ids = sorted(row["job_id"] for row in page)
        return len(await self._postgres.pinned("expire_dead_letters", ids, kept_s)) if ids else 0

    async def roll_partitions(self) -> Rolled:
        """Make partitions ahead, remove old ones without losing a live job, and sweep what was kept long enough."""
        rolled = await partitions.roll(self._postgres.config)
        while len(await self._postgres.fetch("sweep_kept", self._postgres.config.retention_s, _PAGE)) == _PAGE:
            pass
        return rolled

    async def partition_problem(self) -> str | None:
        """Why this role could not make or remove partitions; None if it could."""
        async with self._postgres.connection() as connection:
            return await partitions.rights_problem(connection, self._postgres.config.schema)

    async def partition_days_ahead(self) -> int:
        """For how many days from today, today included, jobs can be stored in the partitions there are."""
        async with self._postgres.connection() as connection:
            today, until = await partitions.made_until(connection, self._postgres.config.schema)
        return (until - today).days

    # Supervisors. ---------------------------------------------------------------------------------------------------

    async def renew(
        self,
        worker_ids: Collection[UUID],
        *,
        lease_ttl_s: float,
        lost_threads: Mapping[UUID, int] = _NONE,
        memory_bytes: Mapping[UUID, int] = _NONE,
    ) -> dict[UUID, bool]:
        """Push out leases; says of each living worker whether it was asked to leave. One that is missing must stop."""
        ids = sorted(worker_ids)
        lost, memory = [lost_threads.get(one, 0) for one in ids], [memory_bytes.get(one) for one in ids]
        rows = await self._postgres.fetch("renew", ids, lease_ttl_s, lost, memory)
        return {row["id"]: row["leaving"] for row in rows}

    async def leaving(self, worker_ids: Collection[UUID]) -> list[Leaving]:
        """Those of the workers that were asked to leave, and how."""
        return [Leaving(*row) for row in await self._postgres.fetch("leaving", sorted(worker_ids))]

    async def unstarted(self, job_ids: Collection[UUID]) -> set[UUID]:
        """Those of the jobs that are started once at most and have certainly not begun: no start of theirs is recorded."""
        return {row["job_id"] for row in await self._postgres.pinned("unstarted", sorted(job_ids))}

    async def held_by(self, worker_ids: Collection[UUID], *, limit: int = _PAGE) -> list[Lease]:
        """The leases these workers hold, dead or alive."""
        return [Lease._make(row) for row in await self._postgres.pinned("held_by", sorted(worker_ids), limit)]

    async def cancels(self, worker_ids: Collection[UUID]) -> dict[UUID, dict[UUID, UUID]]:
        """By worker: the jobs that were asked to cancel, with their tokens."""
        asked: dict[UUID, dict[UUID, UUID]] = {}
        for row in await self._postgres.pinned("cancels", sorted(worker_ids)):
            asked.setdefault(row["worker_id"], {})[row["job_id"]] = row["token"]
        return asked


def _gained(rows: Iterable[Record]) -> list[Want]:
    return sorted(Want(row["queue"], row["type"], row["thread_demand"], row["jobs"]) for row in rows)


def _wide_arrays(jobs: Iterable[WideJob]) -> tuple[list[UUID], list[int]]:
    ordered = sorted(jobs, key=lambda job: job.job_id)
    return [job.job_id for job in ordered], [job.thread_demand for job in ordered]


def _version_rows(types: Collection[Declared]) -> str:
    return json.dumps([version_row(one) for one in types])

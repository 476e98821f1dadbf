"""What a worker does with jobs: claim, settle, release, find strays.

A claim hands out no job twice. Every write after it is fenced by (job, attempt, token, worker): a settlement of a
lease that was lost changes nothing and is reported.
"""

import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from operator import itemgetter
from typing import Any, Final
from uuid import UUID, uuid4

import asyncpg
from asyncpg import PostgresError, UniqueViolationError

from windlass.errors import Corrupt, LeaseLost, WindlassError
from windlass.lifecycle import Released, Settlement, error_document, settle
from windlass.model import Error, Lease, Status, thread_demand_max
from windlass.queue_names import is_pattern, prefixes, serves
from windlass.rollups import Tally
from windlass.store.effects import EffectLedger
from windlass.store.floors import Floors
from windlass.store.foreign import adapted
from windlass.store.lines import BEFORE_ALL, Line, page_of_lines
from windlass.store.postgres import Postgres
from windlass.store.protocol import Ask, Progress, Receipt, merged
from windlass.store.series import record

_LOWEST: Final = -(2**63)
_PAGES: Final = 16  # of lines, in one claim: 4,096 lines, 20 to 30 ms
_FEW_LINES: Final = 16
_SHARE: Final = 4
_SHARE_LEAST: Final = 4
_BATCH_CHARS_MAX: Final = 16_000_000
# Data that cannot be what it should, a constraint, a limit of the server: the row's fault, not the moment's.
_BAD_ROW: Final = ("22", "23", "54")
_log: Final = logging.getLogger(__name__)

Looks = dict[tuple[str, int], int]


class Claims(EffectLedger):
    """One worker's way to the store: it remembers that worker's floors."""

    def __init__(self, postgres: Postgres) -> None:
        super().__init__(postgres)
        self._floors: Floors[tuple[str, int], int] = Floors()
        self._next_page: dict[tuple[str, ...], Line] = {}  # by patterns: where the next look at their lines begins
        self._overlooked_page = BEFORE_ALL

    def look_afresh(self) -> None:
        """Make the next claim a full look: after a wake-up, a pause or a release."""
        self._floors.forget()

    async def claim(self, ask: Ask) -> list[Lease]:
        """Take ready jobs, lowest rank first, while they fit. One wide job at the head may end the answer early:
        what is left of the budget can be asked for again."""
        began_s = time.monotonic()
        floors = {
            key: floor
            for key, floor in self._floors.at(began_s).items()
            if (key[0] in ask.queues or serves(ask.queues, key[0])) and key[1] <= ask.free
        }
        patterns = [] if floors else prefixes(ask.queues)
        try:
            if patterns:
                rows, saw_all = await self._take_by_pages(ask, patterns)
            else:
                rows, saw_all = await self._take(ask, floors or _named_lines(ask)), True
        except WindlassError:
            self._floors.forget()
            raise
        leases = [Lease._make(row) for row in rows]
        if saw_all:
            self._learn(ask, leases, full=not floors, began_s=began_s)
        return await self._whole(leases)

    async def _take_by_pages(self, ask: Ask, patterns: list[str]) -> tuple[list[asyncpg.Record], bool]:
        """A full look for a worker that serves queues by pattern: at its named queues, and at the next page of lines that match. A
        page that leaves room is followed by the next, up to `_PAGES`, so that a claim never costs more than that. Also returns whether
        one page had all lines: only then may the next claims begin at floors, or they would pass over the other pages."""
        place = tuple(patterns)
        began_at = self._next_page.get(place, BEFORE_ALL)
        taken: list[asyncpg.Record] = []
        left, looks = ask, _named_lines(ask)
        for n in range(_PAGES):
            after = self._next_page.get(place, BEFORE_ALL)
            try:
                page = await page_of_lines(self._postgres, patterns, after, widest=ask.free)
                rows = await self._take_shares(left, looks | page.lowest, lines=len(page.lowest))
            except WindlassError:
                if taken:
                    break  # what was claimed before must be begun; whatever is wrong shows at the next claim
                raise
            self._next_page[place] = page.end
            if after == page.end == BEFORE_ALL:
                return taken + rows, n == 0
            taken += rows
            left, looks = _after(left, rows), {}
            if left.most <= 0 or _budget(left) <= 0 or (page.end == BEFORE_ALL and began_at == BEFORE_ALL):
                break
        return taken, False

    async def _whole(self, leases: list[Lease]) -> list[Lease]:
        orphans = [lease for lease in leases if lease.payload is None]
        if orphans:
            # A job row is out of sight for a moment while its partition is removed: such a job goes back.
            await self.release(orphans)
            return [lease for lease in leases if lease.payload is not None]
        return leases

    async def _take_shares(self, ask: Ask, looks: Looks, *, lines: int) -> list[asyncpg.Record]:
        """`lines`: how many of the looks are at lines that were found by pattern. Of hundreds each gives a share, because every row
        that is looked at is locked. Those that gave all of theirs are asked again while there is room: beside hundreds of lines that
        give nothing, of paused queues or of types we do not know, a long one would be left with a few jobs a claim."""
        if lines <= _FEW_LINES:
            return await self._take(ask, looks)
        each = max(_SHARE_LEAST, _SHARE * min(ask.most, _budget(ask)) // lines)
        rows = await self._take(ask, looks, each)
        given = Counter((row["queue"], row["threads"]) for row in rows)
        longer = {line: rank for line, rank in looks.items() if given[line] >= each}
        left = _after(ask, rows)
        if longer and left.most > 0 and _budget(left) > 0:
            try:
                rows += await self._take(left, longer)
            except (
                WindlassError
            ) as error:  # what was claimed before must be begun; whatever is wrong shows at the next claim
                _log.debug("claiming more from long queues: %s", error)
        return rows

    async def _take(self, ask: Ask, looks: Looks, each: int | None = None) -> list[asyncpg.Record]:
        """`each`: the most from one line."""
        queues, demands = [queue for queue, _ in looks], [demand for _, demand in looks]
        each = ask.most if each is None else each
        args = (queues, demands, list(looks.values()), ask.types, _budget(ask), ask.busy, ask.most, each)
        statement = "claim_leaving" if ask.in_line else "claim"
        try:
            return await self._postgres.fetch(statement, ask.worker_id, uuid4(), *args)
        except UniqueViolationError as error:
            if not await self._mend():
                raise Corrupt(f"claiming from {queues}: {error}") from error
        return await self._postgres.fetch(statement, ask.worker_id, uuid4(), *args)

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
            ((count, moved_ids, cancelled_ids),) = await self._postgres.fetch(*_settle_call(batch))
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

    async def strays(self, worker_id: UUID, held: Collection[UUID], *, older_than_s: float) -> list[Lease]:
        """Leases of this worker that it does not hold: claims whose answer was lost, hand-overs it was not told of. For release
        only: what they are about is left out."""
        rows = await self._postgres.pinned("strays", worker_id, older_than_s, list(held))
        return [Lease._make(row) for row in rows]

    async def held(self, worker_id: UUID) -> set[tuple[UUID, UUID]]:
        """The leases of this worker, as job and token, as far as the database knows."""
        return {(row["job_id"], row["token"]) for row in await self._postgres.pinned("held", worker_id)}

    async def taken_by_other_version(self, type_: str, digest: str, fields: Sequence[str]) -> bool:
        """Whether another version of this type than the one with this digest takes these fields: one that a living worker
        has, or one that was first declared later."""
        ((taken,),) = await self._postgres.fetch("taken_by_other_version", type_, digest, list(fields))
        return bool(taken)

    async def overlooked(self, ask: Ask, *, waited_s: float) -> bool:
        """Whether this worker, with the room it says it has, should have claimed a job long ago."""
        lines = list(_named_lines(ask))
        if patterns := prefixes(ask.queues):
            page = await page_of_lines(self._postgres, patterns, self._overlooked_page, widest=ask.free)
            self._overlooked_page = page.end
            lines += page.lowest
        queues, demands = [queue for queue, _ in lines], [demand for _, demand in lines]
        args = (ask.worker_id, queues, demands, list(ask.types), waited_s)
        return bool((await self._postgres.pinned("overlooked", *args))[0]["waits"])

    async def report_progress(self, reports: Iterable[Progress]) -> None:
        """Show how far attempts have come."""
        if rows := [(*report.lease[:4], report.fraction, report.note) for report in reports]:
            await self._postgres.pinned("report_progress", *zip(*rows, strict=True))

    async def record_rollups(self, tallies: Mapping[tuple[str, str], Tally]) -> None:
        """Tell what was counted by queue and type, for charts."""
        await record(self._postgres, tallies)

    async def followed(self, job_ids: Collection[UUID]) -> set[UUID]:
        """Those of the jobs whose logs somebody follows."""
        return {row["job_id"] for row in await self._postgres.pinned("followed", list(job_ids))}

    async def show_logs(self, logs: Iterable[tuple[Lease, str]]) -> None:
        """Show what followed attempts have written so far."""
        if rows := [(*lease[:4], text) for lease, text in logs]:
            await self._postgres.pinned("show_logs", *zip(*rows, strict=True))

    async def step(self, lease: Lease, key: str) -> str | None:
        """What a step of this job returned before, as JSON text."""
        row = await self._postgres.fetchrow("step", lease.job_id, key)
        return None if row is None else row["result"]

    async def keep_step(self, lease: Lease, key: str, result: str) -> None:
        """Keep what a step returned, so that no later attempt does it again. Raises LeaseLost."""
        if not await self._postgres.pinned("keep_step", *lease[:4], key, result):
            raise LeaseLost(lease.job_id)

    @asynccontextmanager
    async def finishing(self, decide: Callable[[], Settlement], connection: Any = None) -> AsyncIterator[Any]:
        """A transaction that ends by writing what `decide` then says. Raises LeaseLost, and everything in it is undone."""
        if connection is not None:
            within = await adapted(connection)
            yield connection
            await self._settle_within(decide(), within)
            return
        raised: BaseException | None = None
        try:
            async with self._postgres.transaction() as own:
                try:
                    yield own
                except BaseException as error:
                    raised = error
                    raise
                await self._settle_within(decide(), own)
        except WindlassError:
            if raised is not None:  # the handler's own, a missing file say: no fault of the database
                raise raised from None
            raise

    async def _settle_within(self, settlement: Settlement, connection: Any) -> None:
        fields = [[value] for value in settlement]
        (answer,) = await self._postgres.fetch("settle", *fields, connection=connection)
        if answer["moved"] == 0:
            raise LeaseLost(settlement.job_id)

    async def reconnect(self) -> None:
        """Have new connections made for what follows."""
        await self._postgres.reconnect()


def _settle_call(batch: list[Settlement]) -> tuple[Any, ...]:
    """The statement for a batch, and its arguments."""
    worker_id = batch[0].worker_id
    if not all(s[4] is Status.COMPLETED and s[11] is None and s[3] == worker_id for s in batch):  # by place: hot
        return ("settle", *zip(*batch, strict=True))
    jobs, attempts, tokens, _, _, _, _, _, _, _, results, _, _, executions_s, logs, _ = zip(*batch, strict=True)
    return (
        "settle_completed", jobs, attempts, tokens, worker_id, executions_s,
        results if any(result is not None for result in results) else None,
        logs if any(log is not None for log in logs) else None,
    )  # fmt: skip


def _named_lines(ask: Ask) -> Looks:
    """Every line there may be in the queues that are served by name, from its beginning."""
    widths = range(1, min(ask.free, thread_demand_max) + 1)
    return {(queue, width): _LOWEST for queue in ask.queues if not is_pattern(queue) for width in widths}


def _after(ask: Ask, rows: list[asyncpg.Record]) -> Ask:
    """What is still asked for when these have been claimed."""
    threads = sum(row["threads"] for row in rows)
    return replace(ask, busy=ask.busy + threads, budget=_budget(ask) - threads, most=ask.most - len(rows))


def _budget(ask: Ask) -> int:
    return ask.free if ask.budget is None else ask.budget

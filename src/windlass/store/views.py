"""What people look at: a job with its attempts wherever it is, lists, exact counts, queues, workers. Reads only."""

from collections.abc import Collection
from dataclasses import replace
from typing import Final
from uuid import UUID

import asyncpg

from windlass.errors import InvalidQuery, JobNotFound, WorkerNotFound
from windlass.explanation import Explanation, ahead_max, explain
from windlass.model import Attempt, Job, KnownType, Queue, Status, Worker, scoped_key
from windlass.queue_names import serves
from windlass.store import migrate
from windlass.store.catalogue import known_type
from windlass.store.listing import Line, Search, id_range, ids_max, lines_max
from windlass.store.postgres import Connection, Postgres
from windlass.store.protocol import (
    Check,
    ClusterState,
    DeadLetterGroup,
    DeadLetterGroups,
    DeadLetterSize,
    Found,
    JobQuery,
    Page,
    RunningLog,
    SeriesData,
    Summary,
    WorkerThreads,
)
from windlass.store.series import read
from windlass.store.shown import facts, submitter_use, to_error, to_job, to_queue, to_thread_map
from windlass.store.statements import in_schema

_PLACES: Final = 1_000  # jobs one statement looks for
_GROUPS: Final = 200
_FOLLOWED_S: Final = 10.0
_SIZED: Final = 100  # dead letters whose size is looked at
_ROW_BYTES: Final = 250  # of a row beside its long values, with its share of the indexes
_LOOKED_AT_MAX: Final = 100_000
_MAPPED_WORKERS: Final = 200
_MAPPED_JOBS: Final = 4_096


class Views:
    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def job(self, job_id: UUID) -> Job:
        """One job wherever it is. Raises JobNotFound."""
        async with self._postgres.transaction(pinned=True) as connection:
            return await self._one(job_id, connection)

    async def _one(self, job_id: UUID, connection: Connection) -> Job:
        rows = await connection.fetch(self._page_sql("jobs", "select $1::uuid as job_id"), job_id)
        if not rows:
            raise JobNotFound(job_id)
        return self._to_job(rows[0])

    def _to_job(self, row: asyncpg.Record) -> Job:
        return to_job(row, self._postgres.config.dead_letter_retention_s)

    async def explain(self, job_id: UUID) -> Explanation:
        """Why a job is where it is, and what would help. Raises JobNotFound."""
        sql = self._postgres.sql
        async with self._postgres.transaction(pinned=True, snapshot=True) as connection:
            job = await self._one(job_id, connection)
            (standing,) = await connection.fetch(sql["standing"], job_id, ahead_max)
            hands = await connection.fetch(sql["hands"], job.queue, job.type)
            quota = await connection.fetchrow(sql["quota_of"], job_id)
        return replace(explain(facts(job, standing, hands)), submitter=submitter_use(quota))

    async def attempts(self, job_id: UUID, *, limit: int | None = None) -> list[Attempt]:
        """The attempts of a job that have ended, oldest first; of more than `limit`, the newest."""
        rows = await self._postgres.pinned("attempts", job_id, limit)
        return [Attempt(**{**dict(row), "error": to_error(row["error"])}) for row in rows]

    async def follow_log(self, job_id: UUID) -> RunningLog | None:
        """What the running attempt has written so far; its worker is asked to show it for the next seconds."""
        rows = await self._postgres.pinned("follow_log", job_id, _FOLLOWED_S)
        return RunningLog(rows[0]["attempt"], rows[0]["log"]) if rows else None

    async def jobs(self, query: JobQuery | None = None) -> Page:
        """One page of a list."""
        query = query or JobQuery()
        id_range(query)  # refuses what cannot be asked before anything is
        rows, bound = await self._listed("jobs", query)
        jobs = [self._to_job(row) for row in rows]
        if len(jobs) > query.limit:
            return Page(jobs[: query.limit], str(jobs[query.limit - 1].id))
        return Page(jobs, None if bound is None else str(bound))

    async def ids(self, query: JobQuery, *, limit: int = ids_max) -> Found:
        """What a list would show, as ids alone: up to 10,000, for actions on many."""
        query = replace(query, limit=limit)
        id_range(query, ids_max)
        rows, bound = await self._listed("ids", query)
        ids = [row["job_id"] for row in rows]
        if len(ids) > limit:
            return Found(ids[:limit], str(ids[limit - 1]))
        return Found(ids, None if bound is None else str(bound))

    async def _listed(self, name: str, query: JobQuery) -> tuple[list[asyncpg.Record], UUID | None]:
        """The rows of a page and one more if others follow; and where the look ended, if it had to end."""
        async with self._postgres.transaction(pinned=True, snapshot=True) as connection:
            lines = await self._lines(query, connection)
            search = Search(query, lines)
            if search.finds_nothing:
                return [], None
            bound = await self._bound(Search(query, lines), connection)
            page = search.page(bound)
            sql = self._page_sql(name, page, search.most() if name == "jobs" else "")
            return await connection.fetch(sql, *search.args), bound

    async def places(self, job_ids: Collection[UUID]) -> dict[UUID, Status]:
        """Where jobs are, as they are shown; those that are nowhere are left out."""
        ordered = sorted(set(job_ids))
        found: dict[UUID, Status] = {}
        for start in range(0, len(ordered), _PLACES):
            rows = await self._postgres.pinned("places", ordered[start : start + _PLACES])
            found |= {row["job_id"]: Status(row["status"]) for row in rows}
        return found

    async def dead_letter_groups(
        self,
        *,
        type: str | None = None,  # noqa: A002, as the job's field
        queue: str | None = None,
        looked_at: int = 10_000,
    ) -> DeadLetterGroups:
        """The newest failed jobs, by type and kind of error."""
        id_range(JobQuery(type=type, queue=queue))
        if not 1 <= looked_at <= _LOOKED_AT_MAX:
            raise InvalidQuery("looked_at", f"must be from 1 to {_LOOKED_AT_MAX:,}")
        rows = await self._postgres.pinned("dead_letter_groups", looked_at, type, queue, _GROUPS)
        groups = [DeadLetterGroup(*tuple(row)[:8]) for row in rows if row["type"] is not None]
        complete = rows[0]["looked"] <= looked_at and rows[0]["groups"] <= _GROUPS
        return DeadLetterGroups(groups, rows[0]["jobs"], complete=complete)

    async def dead_letter_size(self) -> DeadLetterSize:
        """The age of the oldest failed job, and what the newest ones take on disk."""
        ((oldest_at,),) = await self._postgres.pinned("dead_letter_age")
        ((jobs, size),) = (
            await self._postgres.pinned("dead_letter_size", _SIZED, _ROW_BYTES) if oldest_at else ((0, 0),)
        )
        return DeadLetterSize(oldest_at, size / jobs if jobs else 0.0, self._postgres.config.dead_letter_retention_days)

    async def types(self) -> list[KnownType]:
        """Every type that was ever declared, by name."""
        return [known_type(row) for row in await self._postgres.fetch("types")]

    async def is_key_taken(self, namespace: str | None, key: str) -> bool:
        """Whether the idempotency key belongs to a job, in this namespace."""
        plain = None if namespace is None else key
        return bool(await self._postgres.fetch("key_holders", [scoped_key(namespace, key)], [plain]))

    async def _lines(self, query: JobQuery, connection: Connection) -> list[Line] | None:
        if query.type is None and query.queue is None:
            return None
        sql = self._postgres.sql["finished_lines"]
        rows = await connection.fetch(sql, query.type, query.queue, lines_max + 1)
        return [(row["type"], row["queue"]) for row in rows] if len(rows) <= lines_max else None

    async def _bound(self, search: Search, connection: Connection) -> UUID | None:
        sql = search.bound()
        if sql is None:
            return None
        bound: UUID | None = await connection.fetchval(self._in_schema(sql), *search.args)
        return bound

    async def counts(self) -> dict[tuple[str, str, Status], int]:
        """Exact numbers of jobs by queue, type and status, whatever their number."""
        found: dict[tuple[str, str, Status], int] = {}
        for row in await self._postgres.pinned("counts"):
            key = (row["queue"], row["type"], Status(row["status"]))
            found[key] = found.get(key, 0) + row["n"]
        return found

    async def count_undecided(self) -> int:
        """How many jobs wait for a person to decide."""
        return int((await self._postgres.pinned("count_undecided"))[0]["n"])

    async def summary(self, *, lines: int) -> Summary:
        """The exact numbers of jobs by status, and the largest by queue, type and status."""
        statuses, largest = dict.fromkeys(Status, 0), {}
        for row in await self._postgres.pinned("summary", lines):
            if row["queue"] is None:
                statuses[Status(row["status"])] = row["n"]
            else:
                largest[row["queue"], row["type"], Status(row["status"])] = row["n"]
        return Summary(statuses, largest)

    async def queues(self, *, after: str = "", limit: int | None = None) -> list[Queue]:
        """Queues that have jobs or settings, by name: those behind `after`, up to `limit`."""
        return await self._queues(after, limit, None)

    async def queue(self, name: str) -> Queue:
        """One queue, whether it has jobs and settings or not."""
        return (await self._queues("", 1, [name]))[0]

    async def _queues(self, after: str, limit: int | None, names: list[str] | None) -> list[Queue]:
        rows = await self._postgres.pinned("queues", after, limit, names)
        served = [(row["queues"], row["workers"]) for row in await self._postgres.fetch("served_queues")]
        return [to_queue(row, sum(n for queues, n in served if serves(queues, row["name"]))) for row in rows]

    async def workers(self) -> list[Worker]:
        """Every worker, the living first, then the dead that are not forgotten yet."""
        return [Worker(**dict(row)) for row in await self._postgres.pinned("workers", None)]

    async def worker(self, worker_id: UUID) -> Worker:
        """One worker. Raises WorkerNotFound."""
        for row in await self._postgres.pinned("workers", worker_id):
            return Worker(**dict(row))
        raise WorkerNotFound(worker_id)

    async def thread_map(self) -> list[WorkerThreads]:
        """Which jobs hold the threads of living workers."""
        return to_thread_map(await self._postgres.pinned("thread_map", _MAPPED_WORKERS, _MAPPED_JOBS))

    async def ready(self) -> None:
        """Reach the database, and find its schema as this code needs it. Raises Unavailable, SchemaMismatch."""
        async with self._postgres.connection() as connection:
            await migrate.check(connection, self._postgres.config.schema)

    async def series(
        self, *, span_s: float, by: str | None = None, queue: str | None = None, type_: str | None = None
    ) -> SeriesData:
        """What has happened in the newest `span_s` seconds; with `by`, a line for each queue or type."""
        return await read(self._postgres, span_s=span_s, by=by, queue=queue, type_=type_)

    async def cluster_state(self) -> ClusterState:
        """What the database says of the cluster: its own version and connections, the leader, the living workers."""
        return ClusterState(*(await self._postgres.fetch("cluster_state"))[0])

    async def check(self) -> Check:
        """Look for what must never be seen. Reads everything."""
        return Check(**dict((await self._postgres.fetch("check"))[0]))

    def _page_sql(self, name: str, page: str, most: str = "null::bigint") -> str:
        return self._postgres.sql[name].replace("{page}", self._in_schema(page)).replace("{most}", most)

    def _in_schema(self, sql: str) -> str:
        return in_schema(sql, self._postgres.config.schema)

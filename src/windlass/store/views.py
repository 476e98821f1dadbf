"""What people look at: a job with its attempts wherever it is, lists, exact counts, queues, workers. Reads only."""

import json
from typing import Any
from uuid import UUID

import asyncpg

from windlass.errors import JobNotFound
from windlass.lifecycle import retry_policy
from windlass.model import Attempt, Error, Job, Queue, Status, Worker
from windlass.store.listing import Line, Search, id_range, lines_max
from windlass.store.postgres import Connection, Postgres
from windlass.store.protocol import Check, JobQuery, Page
from windlass.store.statements import in_schema


class Views:
    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def job(self, job_id: UUID) -> Job:
        """One job wherever it is. Raises JobNotFound."""
        sql = self._jobs_sql("select $1::uuid as job_id")
        async with self._postgres.transaction(pinned=True) as connection:
            rows = await connection.fetch(sql, job_id)
        if not rows:
            raise JobNotFound(job_id)
        return _job(rows[0])

    async def attempts(self, job_id: UUID) -> list[Attempt]:
        """The attempts of a job that have ended, oldest first."""
        rows = await self._postgres.pinned("attempts", job_id)
        return [Attempt(**{**dict(row), "error": _error(row["error"])}) for row in rows]

    async def jobs(self, query: JobQuery | None = None) -> Page:
        """One page of a list."""
        query = query or JobQuery()
        id_range(query)  # refuses what cannot be asked before anything is
        async with self._postgres.transaction(pinned=True) as connection:
            lines = await self._lines(query, connection)
            search = Search(query, lines)
            if search.finds_nothing:
                return Page((), None)
            bound = await self._bound(Search(query, lines), connection)
            sql = self._jobs_sql(search.page(bound))
            jobs = [_job(row) for row in await connection.fetch(sql, *search.args)]
        if len(jobs) > query.limit:
            return Page(jobs[: query.limit], str(jobs[query.limit - 1].id))
        return Page(jobs, None if bound is None else str(bound))

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

    async def queues(self) -> list[Queue]:
        """Every queue that has jobs or settings."""
        counts: dict[str, dict[Status, int]] = {}
        for (queue, _, status), n in (await self.counts()).items():
            of_queue = counts.setdefault(queue, {})
            of_queue[status] = of_queue.get(status, 0) + n
        rows = await self._postgres.pinned("queues", list(counts))
        return [
            Queue(
                row["name"],
                row["paused"],
                row["depth"],
                row["oldest_age_s"],
                counts.get(row["name"], {}),
            )
            for row in rows
        ]

    async def workers(self) -> list[Worker]:
        """Every worker, the living first, then the dead that are not forgotten yet."""
        return [Worker(**dict(row)) for row in await self._postgres.pinned("workers")]

    async def check(self) -> Check:
        """Look for what must never be seen. Reads everything."""
        return Check(**dict((await self._postgres.fetch("check"))[0]))

    def _jobs_sql(self, page: str) -> str:
        return self._postgres.sql["jobs"].replace("{page}", self._in_schema(page))

    def _in_schema(self, sql: str) -> str:
        return in_schema(sql, self._postgres.config.schema)


def _job(row: asyncpg.Record) -> Job:
    fields: dict[str, Any] = dict(row)
    fields["status"] = Status(row["status"])
    fields["retry"] = retry_policy(row["retry"]) if row["retry"] else None
    fields["tags"] = tuple(row["tags"] or ())
    fields["error"] = _error(row["error"])
    return Job(**fields)


def _error(text: str | None) -> Error | None:
    if text is None:
        return None
    document = json.loads(text)
    return Error(document["type"], document["message"], document.get("traceback") or "")

"""A database whose time stands still until the test moves it, and the store on it, to be used again and again.

The database finds a `now()` and a `statement_timestamp()` of ours before PostgreSQL's, in every statement and inside
the functions of the migrations. So leases end, back-offs pass and days go by when the test says so, and moments can be
compared exactly.
"""

import asyncio
import types
from typing import Any, Final
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.conftest import database_url
from tests.contract.reference_values import SECOND, Seen
from tests.factory import present
from windlass.config import StoreConfig
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.model import Enqueued, Lease, NewJob, NewWorker, Status
from windlass.store import claims, migrate, upkeep
from windlass.store.protocol import channel
from windlass.store.protocol.hand_over import handed
from windlass.store.store import Store, open_store

TABLES: Final = (
    "job", "job_kept", "tag", "tag_kept", "scheduled", "held", "ready", "running", "outcome", "outcome_kept", "attempt",
    "attempt_kept", "worker", "reservation", "queue", "idempotency", "counter", "tally", "leader",
)  # fmt: skip
CLOCK: Final = """
create schema clock;
create table clock.moment as select date_trunc('second', now()) as at;
create function clock.now() returns timestamptz language sql stable return (select at from clock.moment);
create function clock.statement_timestamp() returns timestamptz language sql stable return clock.now();
"""
TICK: Final = "with tick as (update clock.moment set at = at + interval '1 ms')"
SEEN: Final = """
select job_id, 'scheduled' as status, rank, windlass.microseconds(ready_at) as ready_at, attempt, failures, suspect,
  thread_demand, coalesce(cardinality(crashed_at), 0) as crashes, null::uuid, null::uuid, false from windlass.scheduled
union all select job_id, 'held', rank, windlass.microseconds(ready_at), attempt, failures, suspect, thread_demand,
  coalesce(cardinality(crashed_at), 0), null, null, false from windlass.held
union all select job_id, 'ready', rank, windlass.microseconds(ready_at), attempt, failures, suspect, thread_demand,
  coalesce(cardinality(crashed_at), 0), null, null, false from windlass.ready
union all select job_id, 'running', rank, windlass.microseconds(ready_at), attempt, failures, suspect, thread_demand,
  coalesce(cardinality(crashed_at), 0), worker_id, token, cancel_requested is not null from windlass.running
union all select job_id, status, null, windlass.microseconds(ready_at), attempt, failures, null, null, null, worker_id,
  token, false from windlass.outcome
union all select job_id, status, null, windlass.microseconds(ready_at), attempt, failures, null, null, null, worker_id,
  token, false from windlass.outcome_kept
"""


class World:
    """A database with a clock of its own, the store on it, and one event loop, for all examples."""

    def __init__(self, server: EmbeddedPostgres, runner: asyncio.Runner) -> None:
        self.run = runner.run
        self.monotonic_s = 0.0
        self.steps = 0
        self.run(self._open(server.url))

    async def _open(self, server_url: str) -> None:
        name = f"still_{uuid4().hex[:8]}"
        admin = await asyncpg.connect(server_url)
        await admin.execute(f"create database {name}")
        await admin.execute(f"alter database {name} set search_path = clock, pg_catalog")
        await admin.close()
        url = database_url(server_url, name)
        self.sql = await asyncpg.connect(url)
        await self.sql.execute(CLOCK)
        await migrate.upgrade(self.sql)
        self.start: int = await self.sql.fetchval("select windlass.microseconds(now())")
        self._opened = open_store(StoreConfig(database_url=url, pool_min=0, pool_max=2))
        self.store: Store = await self._opened.__aenter__()

    async def close(self) -> None:
        await self._opened.__aexit__(None, None, None)
        await self.sql.close()

    def hold_floors(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the floors of claims and promotions, which last some milliseconds, last by our time too."""
        clock = types.SimpleNamespace(monotonic=lambda: self.monotonic_s)
        for module in (claims, upkeep):
            monkeypatch.setattr(module, "time", clock)

    async def reset(self) -> None:
        """As a new database, only a hundred times sooner."""
        await self.sql.execute("".join(f"delete from windlass.{table};" for table in TABLES))
        await self.sql.execute("update clock.moment set at = to_timestamp($1::float8)", self.start / SECOND)

    async def hand_over(self, worker: NewWorker, job: NewJob) -> tuple[Enqueued, Lease | None]:
        """Store a job while this worker rests, which hears of nothing else; and the lease that it is handed, if it is."""
        key, heard = uuid4(), []
        name = channel(key)

        def hear(_connection: Any, _pid: int, _name: str, said: Any) -> None:
            heard.append(said)

        await self.sql.add_listener(name, hear)
        await present(self.sql, key)
        try:
            hints = self.store.hints
            said: dict[str, Any] = {"queues": worker.queues, "types": worker.types, "free": worker.threads}
            await hints.rest(worker.id, **said, hand_key=key, hand_for_s=60)
            (stored,) = await self.store.intake.enqueue([job])
            await hints.leave(worker.id)
            await self.sql.execute("select")  # its answer comes after what was said before
            await asyncio.sleep(0)
        finally:
            await self.sql.remove_listener(name, hear)
            await self.sql.execute("select pg_advisory_unlock_all()")
        return stored, handed(heard[0], worker.id) if heard else None

    async def advance(self, seconds: float) -> None:
        self.monotonic_s += seconds
        await self.sql.execute("update clock.moment set at = at + make_interval(secs => $1)", seconds)

    async def look(self, *, tick: bool = True) -> list[tuple[UUID, Seen]]:
        """Every row a job has anywhere. A millisecond has gone by afterwards: no two steps are at once."""
        rows = await self.sql.fetch(TICK + SEEN if tick else SEEN)
        self.monotonic_s += 0.001 * tick
        return [(row[0], Seen(Status(row[1]), *tuple(row)[2:])) for row in rows]

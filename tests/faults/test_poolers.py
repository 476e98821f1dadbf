"""Behind a pooler in transaction mode everything works without a setting: what it breaks is found out and gone without.

On a pooler of our own, which is as hard as one can be; and on PgBouncer, where it is installed.
"""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

from tests.eventually import aeventually
from tests.faults.node import Node
from tests.faults.pgbouncer import pgbouncer, program, version
from tests.faults.pooler import Pooler, pooled
from windlass.bus.postgres import Listener
from windlass.config import StoreConfig
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.model import NewJob, Status
from windlass.store import connections, migrate
from windlass.store.connections import connect, route_of
from windlass.store.ids import Ids
from windlass.store.partitions import Bounds, _create
from windlass.store.pooler import Route
from windlass.store.store import open_store

DIRECT = Route()
SESSION = Route(pooled=True)
KEEPS = Route(pooled=True, shared=True)
FORGETS = Route(pooled=True, shared=True, keeps_statements=False)


@pytest.fixture(autouse=True)
def _not_said_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_said", [])


@pytest.fixture
async def pooler(url: str) -> AsyncIterator[Pooler]:
    async with pooled(url) as pooler:
        yield pooler


async def route(url: str) -> Route:
    config = StoreConfig(database_url=url)
    connection = await connect(config)
    try:
        return await route_of(connection, config)
    finally:
        await connection.close()


# What lies between. ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("servers", [1, 2, 4])
async def test_a_pooler_is_known_by_what_it_does(url: str, servers: int) -> None:
    assert await route(url) == DIRECT
    async with pooled(url, servers=servers) as pooler:
        assert await route(pooler.url) == FORGETS
    async with pooled(url, servers=max(2, servers), shared=False) as pooler:
        assert await route(pooler.url) == SESSION


async def test_a_statement_made_to_find_out_is_not_left_behind(pooler: Pooler) -> None:
    await route(pooler.url)
    connection = await asyncpg.connect(pooler.url, statement_cache_size=0)
    for _ in range(4):
        assert await connection.fetchval("select count(*) from pg_prepared_statements where name ~ '^windlass'") == 0
    await connection.close()


# Work. ----------------------------------------------------------------------------------------------------------------


async def test_a_store_goes_without_prepared_statements_and_says_so_once(
    config: StoreConfig, pooler: Pooler, caplog: pytest.LogCaptureFixture
) -> None:
    through = replace(config, database_url=pooler.url, pool_max=5)
    async with open_store(through) as one, open_store(through) as two:
        for store in (one, two):
            await asyncio.gather(*(store.intake.enqueue([NewJob("echo", tags=["t"])]) for _ in range(20)))
        assert await one.views.counts() == {("default", "echo", Status.READY): 40}
        assert (await two.views.check()).clean
    said = [record.message for record in caplog.records]
    assert len(said) == 1
    assert "does not keep prepared statements" in said[0]


async def test_a_pooler_that_comes_later_is_noticed(
    config: StoreConfig, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        pooled(url, servers=12, shared=False) as pooler,
        open_store(replace(config, database_url=pooler.url, pool_max=5)) as store,
    ):
        await store.intake.enqueue([NewJob("echo")])
        assert not caplog.records
        pooler.shared = True
        for _ in range(10):
            await store.intake.enqueue([NewJob("echo")])
        assert await store.views.counts() == {("default", "echo", Status.READY): 11}
    assert ["does not keep" in record.message for record in caplog.records] == [True]


async def test_nothing_of_a_session_is_left_on_connections_of_others(
    config: StoreConfig, pooler: Pooler, sql: "asyncpg.Connection[asyncpg.Record]", caplog: pytest.LogCaptureFixture
) -> None:
    through = replace(config, database_url=pooler.url, pool_max=5)
    day = datetime.now(UTC).date() - timedelta(days=20)
    for table in ("attempt", "outcome", "tag", "job"):
        await _create(sql, "windlass", table, Bounds(day, day + timedelta(days=1)))
    async with open_store(through) as store:
        noon = int(datetime(day.year, day.month, day.day, 12, tzinfo=UTC).timestamp() * 1000)
        store.intake._ids = Ids(lambda: noon)
        (old,) = await store.intake.enqueue([NewJob("echo")])
        async with Listener(through, ["windlass_a"], lambda *_: None) as listener:
            assert not listener.listening
        rolled = await store.upkeep.roll_partitions()
        assert (len(rolled.removed), rolled.waiting) == (1, [])
        assert await store.views.job(old.id) is not None  # unfinished, so it was kept
    assert [record.message for record in caplog.records if "WINDLASS_DIRECT_URL" in record.message]
    look = await asyncpg.connect(pooler.url, statement_cache_size=0)
    for _ in range(8):
        assert await look.fetch("select pg_listening_channels()") == []
        assert await look.fetchval("show lock_timeout") == "0"
        assert await look.fetchval("select count(*) from pg_prepared_statements") == 0
    await look.close()
    assert await sql.fetchval("select count(*) from pg_locks where locktype = 'advisory'") == 0


async def run_jobs(url: str, ledger: Path, **settings: str) -> list[dict[str, object]]:
    """Let two nodes run a hundred jobs between them; what they logged."""
    config = StoreConfig(database_url=url, pool_min=0)
    nodes = [Node(url, ledger, threads=4, **settings) for _ in range(2)]
    try:
        for node in nodes:
            await asyncio.to_thread(node.ready)
        async with open_store(config) as store:
            for _ in range(5):
                await store.intake.enqueue([NewJob("work")] * 10 + [NewJob("toil")] * 10)

            async def done() -> bool:
                done = {("default", each, Status.COMPLETED): 50 for each in ("work", "toil")}
                return await store.views.counts() == done

            await aeventually(done, timeout_s=60)
            assert (await store.views.check()).clean
    finally:
        for node in nodes:
            node.signal()
        for node in nodes:
            await asyncio.to_thread(node.ended)
    return [json.loads(line) for node in nodes for line in node.log.read_text().splitlines()]


async def test_workers_run_behind_a_pooler_that_forgets_statements(pooler: Pooler, tmp_path: Path) -> None:
    lines = await run_jobs(pooler.url, tmp_path / "ledger")
    assert not [line for line in lines if line["level"] in {"error", "critical"} or "exception" in line]
    said = [line for line in lines if "does not keep prepared statements" in str(line)]
    assert len(said) == 4  # two supervisors and two workers, once each


async def test_workers_behind_a_pooler_listen_past_it(pooler: Pooler, url: str, tmp_path: Path) -> None:
    lines = await run_jobs(pooler.url, tmp_path / "ledger", direct_url=url)
    assert not [line for line in lines if "wake-ups are not heard" in str(line)]


# PgBouncer. -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """One that PgBouncer can enter as another user."""
    folder = Path(tempfile.mkdtemp(prefix="pgbouncer-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def tcp_url(in_memory: Path) -> Iterator[str]:
    program()

    async def upgrade(url: str) -> None:
        connection = await asyncpg.connect(url)
        await migrate.upgrade(connection)
        await connection.close()

    with EmbeddedPostgres(in_memory / "behind-pgbouncer", listen="tcp", settings={"fsync": "off"}) as server:
        asyncio.run(upgrade(server.url))
        yield server.url


async def test_pgbouncer_is_known_in_every_mode(tcp_url: str, folder: Path) -> None:
    with pgbouncer(tcp_url, folder, mode="session") as url:
        assert await route(url) == SESSION
    statements: dict[str, object] = {"max_prepared_statements": 100} if version() >= (1, 21) else {}
    with pgbouncer(tcp_url, folder, settings=statements) as url:
        assert await route(url) == (KEEPS if statements else FORGETS)
    if statements:
        with pgbouncer(tcp_url, folder, settings={"max_prepared_statements": 0}) as url:
            assert await route(url) == FORGETS


async def test_workers_run_behind_pgbouncer_in_transaction_mode(tcp_url: str, folder: Path, tmp_path: Path) -> None:
    with pgbouncer(tcp_url, folder) as url:
        lines = await run_jobs(url, tmp_path / "ledger")
    assert not [line for line in lines if line["level"] in {"error", "critical"} or "exception" in line]
    assert [line for line in lines if "WINDLASS_DIRECT_URL" in str(line)]

"""A locked table, or a database that hangs without closing its connections: whoever waits is answered in time.

The bound is half a second here, and all that is asked must be answered within ten, while the lock is still held, or the
database still hangs: without a bound it took thirty, or as long as it lasted.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import asyncpg
import httpx2
import psutil
import pytest

from tests.api.conftest import SECRET
from tests.eventually import aeventually
from windlass.api.app import build, opened
from windlass.app import App
from windlass.auth.tokens import Signer
from windlass.config import ApiConfig, AuthConfig, Config, StoreConfig
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.errors import Unavailable
from windlass.model import Declared
from windlass.store import migrate
from windlass.store.store import Store, open_store

BOUND_S = 0.5
IN_TIME_S = 10.0


@pytest.fixture(scope="module")
def server(in_memory: Path) -> Iterator[EmbeddedPostgres]:
    async def upgrade(url: str) -> None:
        connection = await asyncpg.connect(url)
        await migrate.upgrade(connection)
        await connection.close()

    with EmbeddedPostgres(in_memory / f"hung-{uuid4().hex[:6]}", settings={"fsync": "off"}) as server:
        asyncio.run(upgrade(server.url))
        yield server


@dataclass(frozen=True, slots=True)
class Door:
    """The API in this process, over a real store."""

    http: httpx2.AsyncClient
    store: Store

    async def submit(self, **fields: object) -> httpx2.Response:
        return await self.http.post("/v1/jobs", json={"type": "echo", "payload": {}, **fields})

    async def works_again(self) -> bool:
        return all(answer.status_code == 202 for answer in await asyncio.gather(*(self.submit() for _ in range(20))))


@pytest.fixture
def config(server: EmbeddedPostgres) -> StoreConfig:
    return StoreConfig(database_url=server.url, pool_min=0, pool_max=4, request_timeout_s=BOUND_S)


@asynccontextmanager
async def served(config: StoreConfig, of_store: StoreConfig) -> AsyncIterator[Door]:
    settings = Config(store=config, auth=AuthConfig(auth_secret=SECRET), api=ApiConfig(port=0, unready_s=0))
    token = Signer.of(settings.auth).sign("tester", ["submit", "read"], 600)
    async with open_store(of_store) as store:
        await store.upkeep.declare([Declared("echo")])
        async with opened(store.intake, store.views, store.accounts, settings) as parts:
            transport = httpx2.ASGITransport(app=build(parts), raise_app_exceptions=True)
            headers = {"authorization": f"Bearer {token}"}
            async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
                yield Door(http, store)


@pytest.fixture
async def door(config: StoreConfig) -> AsyncIterator[Door]:
    async with served(config, config.for_callers()) as door:
        yield door


@asynccontextmanager
async def locked(server: EmbeddedPostgres, *tables: str) -> AsyncIterator[None]:
    connection = await asyncpg.connect(server.url)
    try:
        async with connection.transaction():
            for table in tables:
                await connection.execute(f"lock table windlass.{table} in access exclusive mode")
            yield
    finally:
        await connection.close()


@asynccontextmanager
async def frozen(server: EmbeddedPostgres) -> AsyncIterator[None]:
    """Nothing of PostgreSQL runs: connections are open, and new ones are made by the kernel, and nothing answers."""
    postmaster = psutil.Process(server.pid)
    everyone = [postmaster, *postmaster.children(recursive=True)]
    for process in everyone:
        process.suspend()
    try:
        yield
    finally:
        for process in everyone:
            process.resume()


def assert_all_refused(answers: list[httpx2.Response]) -> None:
    for answer in answers:
        assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
        assert answer.json()["code"] == "unavailable"
        assert int(answer.headers["retry-after"]) >= 1


async def asked_for_everything(door: Door, job_id: str) -> list[httpx2.Response]:
    """More callers than there are connections, of all kinds, at once; and a second round of submissions behind them."""
    async with asyncio.timeout(IN_TIME_S):
        first = await asyncio.gather(
            *(door.submit() for _ in range(20)),
            *(door.submit(idempotency_key=f"key-{n}") for n in range(10)),
            door.submit(queue=f"new-{uuid4().hex[:6]}", tags=[uuid4().hex]),
            door.http.post("/v1/jobs/bulk", json=[{"type": "echo", "payload": {}}] * 50),
            *(door.http.get(f"/v1/jobs/{job_id}") for _ in range(10)),
            door.http.get("/v1/jobs"),
        )
        return first + await asyncio.gather(*(door.submit() for _ in range(20)))


async def test_submissions_and_looks_are_refused_in_time_while_a_table_is_locked(
    door: Door, server: EmbeddedPostgres
) -> None:
    job_id = (await door.submit()).json()["id"]
    async with locked(server, "job"):
        assert_all_refused(await asked_for_everything(door, job_id))
        async with asyncio.timeout(IN_TIME_S):
            answer = await door.http.get("/v1/workers")  # of another table: no connection is lost to those that wait
        assert answer.status_code == 200
    await aeventually(door.works_again)
    assert (await door.http.get(f"/v1/jobs/{job_id}")).status_code == 200


async def test_whoever_stands_behind_a_group_that_hangs_does_not_wait_for_its_end(
    config: StoreConfig, server: EmbeddedPostgres
) -> None:
    async with served(config, config) as door, locked(server, "job"):  # the group may wait for half a minute
        async with asyncio.timeout(IN_TIME_S):
            assert_all_refused(list(await asyncio.gather(*(door.submit() for _ in range(20)))))
            assert_all_refused([await door.submit(), await door.submit()])


async def test_no_statement_is_left_behind_on_the_server(door: Door, server: EmbeddedPostgres) -> None:
    assert await door.works_again()
    async with locked(server, "job"):
        await asyncio.gather(*(door.submit() for _ in range(20)))
        watcher = await asyncpg.connect(server.url)

        async def nobody_waits() -> bool:
            waiting = (
                "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'windlass'"
            )
            return not await watcher.fetchval(waiting)

        await aeventually(nobody_waits)  # while the lock is held: they would take all connections of the server
        idle = (
            "select count(*) from pg_stat_activity"
            " where state like 'idle in transaction%' and application_name = 'windlass'"
        )
        assert await watcher.fetchval(idle) == 0
        await watcher.close()


async def test_submissions_and_looks_are_refused_in_time_while_the_database_hangs(
    door: Door, server: EmbeddedPostgres
) -> None:
    job_id = (await door.submit()).json()["id"]
    async with frozen(server):
        assert_all_refused(await asked_for_everything(door, job_id))
        answers = await asked_for_everything(door, job_id)  # no connection is left by now: new ones are tried
        assert_all_refused(answers)
        assert (await door.http.get("/livez")).status_code == 200
    await aeventually(door.works_again)
    assert (await door.store.views.check()).clean


async def test_python_is_told_in_time_that_the_database_hangs(config: StoreConfig, server: EmbeddedPostgres) -> None:
    app = App("hung", config=config)

    @app.job
    def echo() -> None: ...

    async with app:
        handle = await echo.aenqueue()
        async with frozen(server), asyncio.timeout(IN_TIME_S):
            for call in (echo.aenqueue(), handle.astatus(), handle.aresult()):
                with pytest.raises(Unavailable):
                    await call

        async def can_be_enqueued() -> bool:
            try:
                return bool(await echo.aenqueue())
            except Unavailable:
                return False

        await aeventually(can_be_enqueued)


async def test_a_result_is_not_waited_for_longer_than_was_said(config: StoreConfig, server: EmbeddedPostgres) -> None:
    app = App("hung", config=StoreConfig(database_url=config.database_url, pool_min=0))

    @app.job
    def echo() -> None: ...

    async with app:
        handle = await echo.aenqueue()
        async with locked(server, "job"), asyncio.timeout(4):  # the bound is five
            with pytest.raises(TimeoutError):
                await handle.aresult(timeout_s=0.1)

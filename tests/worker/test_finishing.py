"""Handlers that finish in a transaction, and handlers that enqueue: over the worker that runs them."""

from typing import Any

import asyncpg
import psycopg
import pytest

from tests.eventually import aeventually
from tests.worker.placed import Placed, placed
from windlass import App, AsyncContext, Context
from windlass.config import StoreConfig
from windlass.model import RetryPolicy, Status
from windlass.store.store import Store

Sql = asyncpg.Connection

app = App("finishing", config=StoreConfig(database_url="postgresql://nobody@localhost:1/none"))
later = RetryPolicy(base_s=3600, cap_s=3600)


@app.job(retry=later)
async def with_ours(ctx: AsyncContext, order_id: int, fail: bool = False) -> str:
    async with ctx.transaction() as connection:
        await connection.execute("insert into paid values ($1)", order_id)
        ctx.finish({"paid": order_id})
        if fail:
            raise ValueError("no")
    return "not what counts"


@app.job(retry=later)
def with_psycopg(ctx: Context, order_id: int, url: str, fail: bool = False) -> str:
    with psycopg.connect(url) as connection:
        with ctx.transaction(connection):
            connection.execute("insert into paid values (%s)", [order_id])
            ctx.finish({"paid": order_id})
        if fail:
            raise ValueError("no")
    return "not what counts"


@app.job(retry=later)
async def with_asyncpg(ctx: AsyncContext, order_id: int, url: str, fail: bool = False) -> str:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            async with ctx.transaction(connection):
                await connection.execute("insert into paid values ($1)", order_id)
                ctx.finish({"paid": order_id})
            if fail:
                raise ValueError("no")
    finally:
        await connection.close()
    return "not what counts"


@app.job
def follows() -> None: ...


@app.job
def enqueues_blocking() -> str:
    return str(follows.enqueue().id)


@app.job
async def enqueues_awaiting() -> str:
    return str((await follows.aenqueue()).id)


@pytest.mark.parametrize("handler", ["with_ours", "with_psycopg", "with_asyncpg"])
async def test_the_work_and_the_end_of_the_job_commit_together_or_not_at_all(
    config: StoreConfig, store: Store, url: str, sql: Sql, handler: str
) -> None:
    await sql.execute("create table paid (order_id int)")
    more: dict[str, Any] = {} if handler == "with_ours" else {"url": url}
    async with placed(config, app.types) as worker:
        done = await worker.run(handler, {"order_id": 1, **more})
        assert (done.status, done.result, done.attempt) == (Status.COMPLETED, '{"paid":1}', 1)
        failed = await worker.enqueue(handler, {"order_id": 2, "fail": True, **more}, retry=later)
        job = await worker.reaches(failed, Status.SCHEDULED)
        assert job.failures == 1
        assert [row["order_id"] for row in await sql.fetch("select order_id from paid")] == [1]
        await aeventually(lambda: _idle(worker))


@pytest.mark.parametrize("handler", ["enqueues_blocking", "enqueues_awaiting"])
async def test_a_handler_enqueues_through_its_workers_store(config: StoreConfig, store: Store, handler: str) -> None:
    async with placed(config, app.types) as worker:
        app.attach(worker.store.intake, worker.store.views)
        try:
            first = await worker.run(handler)
            assert first.status is Status.COMPLETED, first.error
            (second,) = [job for job in (await store.views.jobs()).jobs if job.type == "follows"]
            assert first.result == f'"{second.id}"'
            await worker.reaches(second.id, Status.COMPLETED)
        finally:
            app.detach()


async def _idle(worker: Placed) -> bool:
    return worker.worker.desk.busy == 0

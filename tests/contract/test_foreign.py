"""Enqueue inside the caller's transaction, over every driver a caller may have: all with it, or none."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import psycopg
import psycopg2.extras
import pytest
from psycopg.rows import namedtuple_row
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from tests.addresses import sqlalchemy_url
from tests.factory import Rig
from windlass.errors import IdTaken, KeyReused, LeaseLost, RequestError, Unavailable
from windlass.lifecycle import Completed, Settlement, settle
from windlass.model import Enqueued, Lease, NewJob, RetryPolicy, Status
from windlass.store.foreign import PsycopgConnection, adapted
from windlass.store.store import Store

Sql = asyncpg.Connection
Open = Callable[[str], AbstractAsyncContextManager["Caller"]]


class Caller:
    """One driver's connection in the caller's hands: what is passed as `connection`, and how the caller ends it."""

    def __init__(
        self, connection: Any, execute: Callable[[str], Any], commit: Callable[[], Any], rollback: Callable[[], Any]
    ) -> None:
        self.connection = connection
        self._execute, self._commit, self._rollback = execute, commit, rollback

    async def execute(self, statement: str) -> None:
        await _done(self._execute(statement))

    async def commit(self) -> None:
        await _done(self._commit())

    async def rollback(self) -> None:
        await _done(self._rollback())


async def _done(answer: Any) -> None:
    if isinstance(answer, Awaitable):
        await answer


@asynccontextmanager
async def with_asyncpg(url: str) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    yield Caller(connection, connection.execute, transaction.commit, transaction.rollback)
    await connection.close()


@asynccontextmanager
async def with_asyncpg_pool(url: str) -> AsyncIterator[Caller]:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield Caller(connection, connection.execute, transaction.commit, transaction.rollback)


@asynccontextmanager
async def with_psycopg(url: str) -> AsyncIterator[Caller]:
    with psycopg.connect(url) as connection:
        yield Caller(connection, connection.execute, connection.commit, connection.rollback)


@asynccontextmanager
async def with_psycopg_async(url: str) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield Caller(connection, connection.execute, connection.commit, connection.rollback)


@asynccontextmanager
async def with_psycopg2(url: str) -> AsyncIterator[Caller]:
    connection = psycopg2.connect(url)
    yield Caller(connection, connection.cursor().execute, connection.commit, connection.rollback)
    connection.close()


@asynccontextmanager
async def with_psycopg2_taught(url: str) -> AsyncIterator[Caller]:
    """With its own cursors and types, as callers set them up."""
    connection = psycopg2.connect(url, cursor_factory=psycopg2.extras.RealDictCursor)
    psycopg2.extras.register_uuid(conn_or_curs=connection)  # type: ignore[no-untyped-call]
    psycopg2.extras.register_default_json(connection, loads=lambda _: "decoded")
    yield Caller(connection, connection.cursor().execute, connection.commit, connection.rollback)
    connection.close()


def with_sqlalchemy_connection(driver: str) -> Open:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Caller]:
        engine = create_engine(sqlalchemy_url(url, driver), poolclass=NullPool)
        with engine.connect() as connection:
            yield Caller(connection, lambda sql: connection.execute(text(sql)), connection.commit, connection.rollback)
        engine.dispose()

    return opened


def with_sqlalchemy_session(driver: str) -> Open:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Caller]:
        engine = create_engine(sqlalchemy_url(url, driver), poolclass=NullPool)
        with Session(engine) as session:
            yield Caller(session, lambda sql: session.execute(text(sql)), session.commit, session.rollback)
        engine.dispose()

    return opened


@asynccontextmanager
async def with_sqlalchemy_scoped_session(url: str) -> AsyncIterator[Caller]:
    engine = create_engine(sqlalchemy_url(url, "psycopg"), poolclass=NullPool)
    session = scoped_session(sessionmaker(engine))
    yield Caller(session, lambda sql: session.execute(text(sql)), session.commit, session.rollback)
    session.remove()
    engine.dispose()


def with_sqlalchemy_async(driver: str, kind: str) -> Open:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Caller]:
        engine = create_async_engine(sqlalchemy_url(url, driver), poolclass=NullPool)
        if kind == "connection":
            async with engine.connect() as used:
                yield Caller(used, lambda sql: used.execute(text(sql)), used.commit, used.rollback)
        elif kind == "session":
            async with AsyncSession(engine) as session:
                yield Caller(session, lambda sql: session.execute(text(sql)), session.commit, session.rollback)
        else:
            scoped = async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 1)
            yield Caller(scoped, lambda sql: scoped.execute(text(sql)), scoped.commit, scoped.rollback)
            await scoped.remove()
        await engine.dispose()

    return opened


DRIVERS: dict[str, Open] = {
    "asyncpg": with_asyncpg,
    "asyncpg pool": with_asyncpg_pool,
    "psycopg": with_psycopg,
    "psycopg async": with_psycopg_async,
    "psycopg2": with_psycopg2,
    "psycopg2 with its own cursors and types": with_psycopg2_taught,
    "sqlalchemy connection": with_sqlalchemy_connection("psycopg"),
    "sqlalchemy connection over psycopg2": with_sqlalchemy_connection("psycopg2"),
    "sqlalchemy session": with_sqlalchemy_session("psycopg"),
    "sqlalchemy session over psycopg2": with_sqlalchemy_session("psycopg2"),
    "sqlalchemy scoped session": with_sqlalchemy_scoped_session,
    **{
        f"sqlalchemy async {kind} over {driver}": with_sqlalchemy_async(driver, kind)
        for kind in ("connection", "session", "scoped session")
        for driver in ("asyncpg", "psycopg")
    },
}

each_driver = pytest.mark.parametrize("opened", DRIVERS.values(), ids=DRIVERS.keys())

FULL = NewJob(
    "echo",
    {"näme": [1, 2.5, None, True, 2**80, "50 % of \\ and %(p1)s, {$1}"]},
    name='a "name", it\'s 100 %s',
    queue="mail",
    priority=-3,
    thread_demand=4,
    delay_s=60.0,
    max_attempts=7,
    timeout_s=1.5,
    retry=RetryPolicy(base_s=2),
    tags=["a", 'q"{}'],
    if_too_wide="wait",
    trace="00-abc",
)


FULL_TEXT = '{"näme":[1,2.5,null,true,1208925819614629174706176,"50 % of \\\\ and %(p1)s, {$1}"]}'


async def stored(sql: Sql) -> int:
    count: int = await sql.fetchval("select count(*) from windlass.job")
    return count


@each_driver
async def test_what_the_caller_commits_is_stored_as_it_was_said(store: Store, sql: Sql, url: str, opened: Open) -> None:
    moment = datetime.now(UTC) + timedelta(hours=1)
    async with opened(url) as caller:
        answers = await store.intake.enqueue(
            [FULL, NewJob("echo"), NewJob("echo", scheduled_at=moment)], connection=caller.connection
        )
        assert await stored(sql) == 0
        await caller.commit()
    job, plain, later = [await store.views.job(answer.id) for answer in answers]
    same = ("type", "name", "queue", "priority", "thread_demand", "max_attempts", "timeout_s", "retry", "trace")
    assert [getattr(job, field) for field in same] == [getattr(FULL, field) for field in same]
    assert (job.payload, list(job.tags)) == (FULL_TEXT, ["a", 'q"{}'])
    assert (plain.status, later.scheduled_at) == ("ready", moment)


@each_driver
async def test_what_the_caller_rolls_back_leaves_no_job_and_no_key(
    store: Store, sql: Sql, url: str, opened: Open
) -> None:
    async with opened(url) as caller:
        # The keyed one first: its savepoint must not be what begins, and so ends, the transaction.
        await store.intake.enqueue([NewJob("echo", idempotency_key="k")], connection=caller.connection)
        await store.intake.enqueue([NewJob("echo")], connection=caller.connection)
        await caller.rollback()
    assert await stored(sql) == 0
    (again,) = await store.intake.enqueue([NewJob("echo", idempotency_key="k")])
    assert not again.duplicate


@each_driver
async def test_a_repeated_key_or_id_gives_the_first_job_and_a_refusal_leaves_the_transaction_usable(
    store: Store, sql: Sql, url: str, opened: Open
) -> None:
    (keyed,) = await store.intake.enqueue([NewJob("echo", 1, idempotency_key="k")])
    (full,) = await store.intake.enqueue([FULL])
    await sql.execute("create table orders (id int)")
    async with opened(url) as caller:

        async def enqueue(*jobs: NewJob) -> list[Enqueued]:
            return await store.intake.enqueue(jobs, connection=caller.connection)

        assert await enqueue(NewJob("echo", 1, idempotency_key="k")) == [Enqueued(keyed.id, duplicate=True)]
        assert await enqueue(FULL._replace(id=full.id)) == [Enqueued(full.id, duplicate=True)]
        with pytest.raises(KeyReused):
            await enqueue(NewJob("echo", 3), NewJob("echo", 2, idempotency_key="k"))
        with pytest.raises(IdTaken):
            await enqueue(NewJob("echo", 4), FULL._replace(id=full.id, payload=3))
        await caller.execute("insert into orders values (1)")
        await caller.commit()
    assert await stored(sql) == 2
    assert await sql.fetchval("select count(*) from orders") == 1


@each_driver
async def test_a_job_finishes_with_the_handlers_own_transaction_or_not_at_all(
    store: Store, rig: Rig, url: str, opened: Open
) -> None:
    worker = await rig.worker()
    kept, undone, stale = await rig.enqueue(3)
    leases = await worker.claim()

    def decide(lease: Lease) -> Callable[[], Settlement]:
        return lambda: settle(lease, Completed({"paid": True}), jitter=0, execution_s=0.5, log="done")

    for lease in leases:
        async with opened(url) as caller:
            if lease.job_id == stale:
                await worker.claims.release([lease])
                with pytest.raises(LeaseLost):
                    async with worker.claims.finishing(decide(lease), caller.connection):
                        pass
            else:
                async with worker.claims.finishing(decide(lease), caller.connection) as own:
                    assert own is caller.connection
            await (caller.commit() if lease.job_id == kept else caller.rollback())
    job = await store.views.job(kept)
    assert (job.status, job.result) == (Status.COMPLETED, '{"paid":true}')
    assert [await rig.status(each) for each in (undone, stale)] == [Status.RUNNING, Status.READY]


async def test_many_jobs_go_through_the_callers_connection_in_pages(store: Store, sql: Sql, url: str) -> None:
    with psycopg.connect(url) as connection:
        answers = await store.intake.enqueue([NewJob("echo", n) for n in range(5_001)], connection=connection)
    assert len(answers) == await stored(sql) == 5_001


async def test_a_pipeline_and_a_callers_own_row_factory_do_not_matter(store: Store, sql: Sql, url: str) -> None:
    with psycopg.connect(url, row_factory=namedtuple_row) as connection, connection.pipeline():
        connection.execute("select 1")
        for job in (NewJob("echo"), NewJob("echo", idempotency_key="k"), NewJob("echo", idempotency_key="k")):
            await store.intake.enqueue([job], connection=connection)
    assert await stored(sql) == 2


async def test_codecs_of_the_callers_connection_do_not_matter(store: Store, sql: Sql) -> None:
    await sql.set_type_codec("json", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    (first,) = await store.intake.enqueue([FULL])
    async with sql.transaction():
        (again,) = await store.intake.enqueue([FULL._replace(id=first.id)], connection=sql)
        assert again.duplicate


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_sync_session_over_an_async_driver_is_refused_and_still_usable(
    store: Store, sql: Sql, url: str, driver: str
) -> None:
    engine = create_async_engine(sqlalchemy_url(url, driver), poolclass=NullPool)

    def enqueue(session: Session) -> None:
        with pytest.raises(RequestError, match="its driver is async"):
            store.intake.enqueue([NewJob("echo")], connection=session).send(None)

    async with AsyncSession(engine) as session:
        await session.run_sync(enqueue)
        await store.intake.enqueue([NewJob("echo")], connection=session)
        await session.commit()
    await engine.dispose()
    assert await stored(sql) == 1


async def test_a_connection_without_a_transaction_is_refused(store: Store, sql: Sql, url: str) -> None:
    engine = create_engine(sqlalchemy_url(url, "psycopg"), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    async_engine = create_async_engine(sqlalchemy_url(url, "asyncpg"), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    old = psycopg2.connect(url)
    old.autocommit = True
    with psycopg.connect(url, autocommit=True) as plain, engine.connect() as over_psycopg:
        async with async_engine.connect() as over_asyncpg:
            for connection in (sql, plain, old, over_psycopg, over_asyncpg):
                with pytest.raises(RequestError, match="connection: is in no transaction"):
                    await store.intake.enqueue([NewJob("echo")], connection=connection)
        with plain.transaction():
            await store.intake.enqueue([NewJob("echo")], connection=plain)
    old.close()
    await async_engine.dispose()
    assert await stored(sql) == 1


async def test_what_is_no_connection_is_refused_by_its_class(store: Store, url: str) -> None:
    engine = create_engine(sqlalchemy_url(url, "psycopg"))
    for thing in (url, engine, 3):
        with pytest.raises(RequestError, match=f"connection: must be .* not a .*{type(thing).__name__}"):
            await store.intake.enqueue([NewJob("echo")], connection=thing)


async def test_a_connection_the_server_ended_is_unavailable(store: Store, sql: Sql, url: str) -> None:
    with psycopg.connect(url) as connection:
        await sql.execute("select pg_terminate_backend($1)", connection.info.backend_pid)
        with pytest.raises(Unavailable):
            await store.intake.enqueue([NewJob("echo")], connection=connection)


async def test_a_psycopg2_connection_the_server_ended_is_unavailable(store: Store, sql: Sql, url: str) -> None:
    connection = psycopg2.connect(url)
    await sql.execute("select pg_terminate_backend($1)", connection.get_backend_pid())
    for _ in range(2):  # as it ends, and once that is known
        with pytest.raises(Unavailable):
            await store.intake.enqueue([NewJob("echo")], connection=connection)
    connection.close()


@pytest.mark.parametrize("connect", [psycopg.connect, psycopg2.connect])
async def test_a_sync_connection_never_waits_for_a_loop(store: Store, url: str, connect: Callable[[str], Any]) -> None:
    with connect(url) as connection:
        work = store.intake.enqueue([FULL, NewJob("echo", idempotency_key=str(uuid4()))], connection=connection)
        with pytest.raises(StopIteration) as ended:
            work.send(None)
        assert [answer.duplicate for answer in ended.value.value] == [False, False]


async def test_an_adapted_connection_is_adapted_once(url: str) -> None:
    with psycopg.connect(url) as connection:
        once = await adapted(connection)
        assert isinstance(once, PsycopgConnection)
        assert await adapted(once) is once


async def test_a_pool_or_a_cursor_is_no_connection(url: str) -> None:
    async with asyncpg.create_pool(url, min_size=0, max_size=1) as pool:
        with pytest.raises(RequestError, match=r"must be .*, not a asyncpg\.pool\.Pool; acquire one"):
            await adapted(pool)
        async with pool.acquire() as lent, lent.transaction():
            assert await adapted(lent) is lent
    with (
        psycopg.connect(url) as connection,
        connection.cursor() as cursor,
        pytest.raises(RequestError, match=r"must be .*, not a psycopg\.Cursor; give the connection itself"),
    ):
        await adapted(cursor)

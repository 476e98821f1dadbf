"""How jobs are tested that are stored, and finished, together with rows of one's own."""

import asyncio
from collections.abc import AsyncIterator, Callable

import asyncpg
import pytest

from examples.orders import app, charge
from windlass import App, JobCancelled
from windlass.testing import adrain, aenqueued, assert_enqueued, assert_not_enqueued

Connection = asyncpg.Connection
TABLE = "create table example_order (id serial primary key, cents integer not null, paid_at timestamptz)"
ORDER = "insert into example_order (cents) values (1999) returning id"


@pytest.fixture(scope="session")
def windlass_app_under_test() -> App:
    return app


@pytest.fixture(scope="session")
def windlass_prepare_database() -> Callable[[str], None]:
    """The table of orders is in the template, and so in the database of every test."""

    async def make_table(url: str) -> None:
        connection = await asyncpg.connect(url)
        await connection.execute(TABLE)
        await connection.close()

    return lambda url: asyncio.run(make_table(url))


@pytest.fixture
async def connection(windlass_database_url: str) -> AsyncIterator[Connection]:
    made = await asyncpg.connect(windlass_database_url)
    yield made
    await made.close()


async def test_an_order_is_charged_once_it_is_stored(windlass_app: App, connection: Connection) -> None:
    async with connection.transaction():
        order_id = await connection.fetchval(ORDER)
        handle = await charge.options(connection=connection).aenqueue(order_id)
        assert_not_enqueued(charge)  # nobody else sees it yet
        assert len(await aenqueued(charge, connection=connection, order_id=order_id)) == 1
    assert_enqueued(charge, order_id=order_id)
    await adrain()
    assert await handle.aresult() == {"charged": 1999}
    assert await connection.fetchval("select paid_at from example_order") is not None


async def test_an_order_that_was_paid_already_is_not_charged_again(windlass_app: App, connection: Connection) -> None:
    order_id = await connection.fetchval(ORDER)
    first, second = await charge.aenqueue(order_id), await charge.aenqueue(order_id)
    await adrain()
    assert await first.aresult() == {"charged": 1999}
    with pytest.raises(JobCancelled, match="paid already"):
        await second.aresult()

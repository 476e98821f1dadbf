"""What was enqueued, and what is said when it was not."""

from datetime import date

import asyncpg
import psycopg
import pytest

from tests.testing import shop
from windlass import App
from windlass.errors import RequestError
from windlass.testing import aenqueued, assert_enqueued, assert_not_enqueued, enqueued


def test_a_job_is_found_by_its_arguments_and_its_options(windlass_app: App) -> None:
    shop.send.options(delay_s=60, priority=5, tags=["a"], idempotency_key="k").enqueue("ann", day=date(2026, 5, 6))
    found = assert_enqueued(
        shop.send, to="ann", copies=1, day=date(2026, 5, 6), queue="mail", priority=5, delay_s=60, tags=["a"],
        idempotency_key="k", threads=1,
    )  # fmt: skip
    assert found.arguments == {"to": "ann", "copies": 1, "day": date(2026, 5, 6)}
    assert found.payload == {"to": "ann", "day": "2026-05-06"}
    assert_enqueued("send", to="ann")
    assert_not_enqueued(shop.send, to="bob")
    assert_not_enqueued(shop.resize)
    assert enqueued(shop.send, copies=2) == []


def test_jobs_are_listed_in_the_order_they_were_enqueued(windlass_app: App) -> None:
    windlass_app.enqueue_many([shop.send.job(to) for to in ("b", "a", "c")])
    windlass_app.enqueue_named("elsewhere", {"x": [1]})
    assert [job.arguments["to"] for job in enqueued(shop.send)] == ["b", "a", "c"]
    assert [job.type for job in enqueued()] == ["send", "send", "send", "elsewhere"]
    assert assert_enqueued("elsewhere", x=[1]).payload == {"x": [1]}


def test_the_message_says_what_there_was_instead(windlass_app: App) -> None:
    with pytest.raises(AssertionError, match="nothing was enqueued, or its transaction has not committed"):
        assert_enqueued(shop.send)
    shop.send.enqueue("bob")
    shop.resize.enqueue("a.png")
    with pytest.raises(AssertionError) as caught:
        assert_enqueued(shop.send, to="ann", queue="fast")
    assert str(caught.value).splitlines() == [
        "send(to='ann', queue='fast') was not enqueued",
        "  send(copies=1, day=None, to='bob') in queue mail: to is 'bob', queue is 'mail'",
        "  of other types: 1 of resize",
    ]
    with pytest.raises(AssertionError, match=r"send\(to='bob'\) was enqueued, 1 times"):
        assert_not_enqueued(shop.send, to="bob")


def test_a_misspelt_name_is_refused(windlass_app: App) -> None:
    with pytest.raises(
        TypeError, match=r"send has no parameter 'copys', and no job has such a field; did you mean copies\?"
    ):
        assert_not_enqueued(shop.send, copys=1)


def test_a_blocking_transaction_is_looked_into_and_leaves_nothing_when_rolled_back(
    windlass_app: App, windlass_database_url: str
) -> None:
    with psycopg.connect(windlass_database_url) as connection:
        shop.send.options(connection=connection).enqueue("ann")
        assert_not_enqueued(shop.send)
        assert_enqueued(shop.send, connection=connection, to="ann")
        connection.rollback()
    assert_not_enqueued(shop.send)


async def test_an_async_transaction_is_looked_into_and_counts_when_it_has_committed(
    windlass_app: App, windlass_database_url: str
) -> None:
    connection = await asyncpg.connect(windlass_database_url)
    async with connection.transaction():
        await shop.send.options(connection=connection).aenqueue("ann")
        assert enqueued() == []
        assert [job.type for job in await aenqueued(shop.send, connection=connection, to="ann")] == ["send"]
        with pytest.raises(RequestError, match="await aenqueued"):
            enqueued(connection=connection)
    assert_enqueued(shop.send, to="ann")
    await connection.close()

"""Twenty thousand made-up queues keep `windlass up` from nothing: it starts, and all that lists queues answers."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import httpx2
import pytest

from tests.conftest import database
from tests.e2e.commands import command
from tests.e2e.household import Up, up
from windlass.cli.up import _is_healthy
from windlass.config import StoreConfig
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.model import NewJob
from windlass.store.store import Store, open_store

QUEUES = 20_000


@pytest.fixture(scope="module")
def running(postgres_server: EmbeddedPostgres, in_memory: Path) -> Iterator[Up]:
    with database(postgres_server, "up_on_many_queues") as url:
        asyncio.run(_fill(url))
        with up(folder=in_memory / "many-queues", WINDLASS_DATABASE_URL=url) as made:
            yield made


async def _fill(url: str) -> None:
    async with open_store(StoreConfig(database_url=url)) as store:
        await store.intake.enqueue([NewJob("echo", queue=f"made-up-{n}") for n in range(QUEUES)])


def test_it_starts_and_runs_what_others_submit(running: Up) -> None:
    assert running.report["healthy"] is True
    assert running.report["jobs"]["ready"] == QUEUES
    assert running.until(running.submit("add_numbers", a=2, b=3), "completed")["result"] == 5


def test_queues_are_listed_paused_and_resumed(running: Up) -> None:
    page = running.asked("GET", "/v1/queues").json()
    assert len(page["queues"]) == 1_000
    assert page["next_cursor"] == page["queues"][-1]["name"]
    for word, paused in (("pause", True), ("resume", False)):
        queue = running.asked("POST", f"/v1/queues/made-up-9/{word}").json()
        assert (queue["name"], queue["paused"], queue["depth"]) == ("made-up-9", paused, 1)


def test_the_command_lists_every_queue(running: Up) -> None:
    done = command("queues", "list", "--json", WINDLASS_URL=running.url, WINDLASS_TOKEN=running.token())
    listed = {queue["name"] for queue in json.loads(done.stdout)["queues"]}
    assert {f"made-up-{n}" for n in range(QUEUES)} <= listed


def test_an_event_stream_tells_the_state(running: Up) -> None:
    headers = {"Authorization": f"Bearer {running.token()}"}
    told: set[str] = set()
    with httpx2.stream("GET", running.url + "/v1/events", headers=headers, timeout=30) as answer:
        for line in answer.iter_lines():
            told |= {line.removeprefix("event: ")} if line.startswith("event: ") else set()
            if told >= {"stats", "queues", "workers"}:
                break


async def test_a_start_does_not_wait_until_the_whole_store_is_read(
    store: Store, sql: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    async with sql.transaction():
        await sql.execute("lock table windlass.held in access exclusive mode")
        assert await _is_healthy(store, 0.2) is None
    assert await _is_healthy(store, None) is True

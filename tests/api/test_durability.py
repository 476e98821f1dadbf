"""What the API has promised is kept: through kill -9, and once for each key however often it is sent."""

import asyncio
from pathlib import Path
from uuid import UUID

from tests.api.hammering import hammer, judge
from tests.api.raw import Raw
from tests.api.served import served, token
from windlass.store.postgres import Connection
from windlass.store.store import Store

CALLERS = 32


async def test_every_submission_answered_2xx_is_stored_though_the_api_is_killed_under_load(
    store: Store, sql: Connection, url: str, tmp_path: Path
) -> None:
    promised: list[UUID] = []
    submitter = token("submit")
    enough = asyncio.Event()

    async def submit(port: int) -> None:
        try:
            async with Raw(port) as raw:
                while len(promised) < 10_000:
                    heard = await raw.call("POST", "/v1/jobs", {"type": "noop"}, token=submitter)
                    assert heard.status == 202, heard
                    promised.append(UUID(heard.json()["id"]))
                    if len(promised) > 7_000:
                        enough.set()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # killed: what was not answered was not promised

    with served(url, tmp_path) as api:
        callers = [asyncio.create_task(submit(api.port)) for _ in range(CALLERS)]
        await enough.wait()
        api.kill()
        await asyncio.gather(*callers)
    assert 7_000 < len(promised) < 10_000, "it was killed in the middle"
    stored = {row["id"] for row in await sql.fetch("select id from windlass.job")}
    assert set(promised) <= stored
    assert len(stored) - len(promised) <= CALLERS, "and of each caller at most the one it was not answered about"
    assert (await store.views.check()).clean


async def test_a_key_sent_fifty_times_at_once_makes_one_job(url: str, tmp_path: Path) -> None:
    """At full size, a thousand keys: `python -m tests.api.hammering`."""
    heard = await hammer(url, tmp_path, keys=40, times=50)
    await judge(url, heard, keys=40, times=50)

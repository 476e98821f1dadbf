"""One job for each key and one answer for each caller, with a Redis that is wiped and an API that is killed meanwhile."""

import asyncio
from collections import Counter
from pathlib import Path

from tests.api.raw import Raw
from tests.api.served import Served, served, token
from tests.shortcuts import client
from windlass.embedded.valkey import EmbeddedValkey
from windlass.store.postgres import Connection

KEYS, TIMES = 100, 20


async def test_every_key_is_one_job_though_redis_is_wiped_and_an_api_killed(
    sql: Connection, url: str, tmp_path: Path, valkey: EmbeddedValkey
) -> None:
    ids: dict[str, Counter[str]] = {f"order-{n}": Counter() for n in range(KEYS)}
    submitter, answered, enough = token("submit"), Counter[int](), asyncio.Event()

    async def submit(apis: list[Served], first: int) -> None:
        """Each key once, until it is answered: at the next API, if this one is gone."""
        left, at = [list(ids)[(n + first) % KEYS] for n in range(KEYS)], first
        while left:
            at += 1
            try:
                async with Raw(apis[at % len(apis)].port) as raw:
                    while left:
                        body = {"type": "noop", "payload": {"key": left[-1]}}
                        heard = await raw.call("POST", "/v1/jobs", body, token=submitter, Idempotency_Key=left[-1])
                        if heard.status in (409, 503):  # in the middle of being taken; tried again
                            continue
                        assert heard.status in (200, 202), heard
                        ids[left.pop()][heard.json()["id"]] += 1
                        answered[heard.status] += 1
                        if answered.total() > KEYS * TIMES // 3:
                            enough.set()
            except (asyncio.IncompleteReadError, ConnectionError):
                await asyncio.sleep(0.01)

    async def wipe() -> None:
        while True:
            with client(valkey.url) as connection:
                connection.flushall()
            await asyncio.sleep(0.2)

    with served(url, tmp_path, redis_url=valkey.url) as one, served(url, tmp_path, redis_url=valkey.url) as other:
        wiping = asyncio.create_task(wipe())
        callers = [asyncio.create_task(submit([one, other], n)) for n in range(TIMES)]
        await enough.wait()
        one.kill()
        await asyncio.gather(*callers)
        wiping.cancel()
        await asyncio.wait([wiping])
    assert all(len(seen) == 1 and seen.total() == TIMES for seen in ids.values()), "one id for each key, told to all"
    stored = {str(row["id"]) for row in await sql.fetch("select id from windlass.job")}
    assert stored == {next(iter(seen)) for seen in ids.values()}
    assert "Traceback" not in one.log.read_text() + other.log.read_text()

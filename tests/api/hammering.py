"""The same submissions, many times at once, at two API processes: one job for each key, whatever happens.

`python -m tests.api.hammering --keys 1000 --times 50` does it at full size, on a PostgreSQL of its own; the suite with less.
"""

import argparse
import asyncio
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg

from tests.api.raw import Raw
from tests.api.served import served, token
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.store import migrate

_NEAR = 20  # keys that are sent at about the same time, by each caller in another order


@dataclass(slots=True)
class Heard:
    """What the callers were told."""

    statuses: Counter[int] = field(default_factory=Counter)
    ids: dict[str, Counter[str]] = field(default_factory=dict)


async def hammer(url: str, folder: Path, *, keys: int, times: int) -> Heard:
    """Every key `times` times, from as many connections; two processes, so that no memory of one decides it."""
    names = [f"order-{n}" for n in range(keys)]
    heard = Heard(ids={name: Counter() for name in names})
    submitter = token("submit")

    async def submit(port: int, first: int) -> None:
        async with Raw(port) as raw:
            for n in range(keys):
                name = names[(n // _NEAR * _NEAR + (n + first) % _NEAR) % keys]
                body = {"type": "noop", "payload": {"key": name}}
                answer = await raw.call("POST", "/v1/jobs", body, token=submitter, Idempotency_Key=name)
                assert answer.status in (200, 202), answer
                assert (answer.status == 200) == (answer.headers.get("idempotency-replayed") == "true")
                heard.statuses[answer.status] += 1
                heard.ids[name][answer.json()["id"]] += 1

    with served(url, folder) as one, served(url, folder) as other:
        await asyncio.gather(*(submit((one, other)[n % 2].port, n) for n in range(times)))
    return heard


async def judge(url: str, heard: Heard, *, keys: int, times: int) -> None:
    assert heard.statuses == {202: keys, 200: keys * (times - 1)}, heard.statuses
    assert all(len(seen) == 1 and seen.total() == times for seen in heard.ids.values())
    connection = await asyncpg.connect(url)
    try:
        assert await connection.fetchval("select count(*) from windlass.job") == keys
    finally:
        await connection.close()


async def _main(keys: int, times: int) -> None:
    with TemporaryDirectory() as folder, EmbeddedPostgres(Path(folder) / "postgres") as server:
        connection = await asyncpg.connect(server.url)
        await migrate.upgrade(connection)
        await connection.close()
        heard = await hammer(server.url, Path(folder), keys=keys, times=times)
        await judge(server.url, heard, keys=keys, times=times)
    print(f"{keys * times:,} submissions of {keys:,} keys: {keys:,} jobs, each caller told the same id")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--times", type=int, default=50)
    asked = parser.parse_args()
    asyncio.run(_main(asked.keys, asked.times))

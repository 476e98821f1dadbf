"""Probes: open to anyone, true about this process and its database, and silent about the inside."""

import asyncio
from dataclasses import replace

import asyncpg
import httpx2
import pytest

from tests.faults.proxy import proxied
from windlass.api.app import build, opened
from windlass.api.parts import Parts
from windlass.bus.postgres import PostgresWaker
from windlass.bus.waking import Waking
from windlass.config import Config
from windlass.store.store import open_store


def calling(parts: Parts) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=build(parts)), base_url="http://localhost")


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/health"])
async def test_a_sound_server_says_ok_to_anyone(http: httpx2.AsyncClient, path: str) -> None:
    answer = await http.get(path)
    assert (answer.status_code, answer.text) == (200, "ok")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert (await http.head(path)).status_code == 200


async def test_readiness_names_its_checks_when_asked(http: httpx2.AsyncClient) -> None:
    assert (await http.get("/readyz?verbose")).text.splitlines() == ["serving: ok", "database: ok", "schema: ok"]
    assert (await http.get("/readyz?verbos")).status_code == 422


async def test_a_server_that_shuts_down_is_alive_but_not_ready(http: httpx2.AsyncClient, parts: Parts) -> None:
    parts.events.close()
    answer = await http.get("/readyz")
    assert (answer.status_code, answer.json()["detail"]) == (503, "serving: shutting down")
    assert answer.headers["retry-after"]
    assert (await http.get("/livez")).status_code == 200


async def test_a_schema_of_another_version_is_not_ready(
    http: httpx2.AsyncClient, sql: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await sql.execute("update windlass.migration set checksum = 'other' where number = 1")
    answer = await http.get("/readyz")
    assert (answer.status_code, answer.json()["detail"]) == (503, "schema: does not fit this version")


@pytest.mark.parametrize("fate", ["cut", "silent"])
async def test_a_database_that_is_away_is_not_ready_and_its_address_is_told_to_nobody(
    url: str, settings: Config, fate: str
) -> None:
    async with proxied(url) as proxy, open_store(replace(settings.store, database_url=proxy.url)) as store:
        waker = PostgresWaker(store.hints)
        intake = Waking(store.intake, waker, store.hints)
        async with opened(intake, store.views, store.accounts, settings) as parts, calling(parts) as http:
            assert (await http.get("/readyz")).status_code == 200
            if fate == "cut":
                await proxy.stop()
            else:
                proxy.blackhole()
            async with asyncio.timeout(5):  # as long as a prober waits
                answer = await http.get("/readyz")
                alive = await http.get("/livez")
        await waker.aclose()
    assert (answer.status_code, answer.json()["detail"]) == (503, "database: does not answer")
    assert "127.0.0.1" not in answer.text
    assert alive.status_code == 200

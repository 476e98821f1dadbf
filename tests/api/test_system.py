"""What an operator asks of the system itself: health and configuration. No secret is ever shown."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.api.conftest import Tokens
from tests.factory import Rig
from tests.faults.proxy import proxied
from windlass.api.app import build, opened
from windlass.api.system import in_effect
from windlass.bus.postgres import PostgresWaker
from windlass.bus.waking import Waking
from windlass.config import Config
from windlass.config import settings as declared
from windlass.store.store import open_store

Client = httpx2.AsyncClient


def by_name(answer: httpx2.Response) -> dict[str, dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return {part["name"]: part for part in answer.json()["parts"]}


async def test_a_sound_system_is_well_in_every_part(api: Client, rig: Rig) -> None:
    holder = uuid4()
    await rig.store.upkeep.take_term(holder, ttl_s=60)
    await rig.worker(threads=3)
    answer = await api.get("/v1/health")
    parts = by_name(answer)
    assert answer.json()["ok"]
    assert set(parts) == {"Database", "Leader", "Workers", "Connections"}
    assert all(part["ok"] for part in parts.values())
    assert parts["Database"]["detail"].startswith("PostgreSQL ")
    assert str(holder) in parts["Leader"]["detail"]
    assert parts["Workers"]["detail"] == "1 alive, 3 threads"


async def test_a_system_that_nobody_leads_is_not_well_and_says_what_waits(api: Client, rig: Rig) -> None:
    await rig.worker()
    answer = await api.get("/v1/health")
    parts = by_name(answer)
    assert not answer.json()["ok"]
    assert [name for name, part in parts.items() if not part["ok"]] == ["Leader"]
    assert "nobody leads" in parts["Leader"]["detail"]


async def test_a_system_without_workers_is_not_well(api: Client, rig: Rig) -> None:
    await rig.store.upkeep.take_term(uuid4(), ttl_s=60)
    parts = by_name(await api.get("/v1/health"))
    assert (parts["Workers"]["ok"], parts["Workers"]["detail"]) == (False, "none is alive")


@asynccontextmanager
async def cut_off(url: str, settings: Config, tokens: Tokens) -> AsyncIterator[tuple[Client, Callable[[], Any]]]:
    """An API, and what takes its database away."""
    async with proxied(url) as proxy, open_store(replace(settings.store, database_url=proxy.url)) as store:
        waker = PostgresWaker(store.hints)
        intake = Waking(store.intake, waker, store.hints)
        async with opened(intake, store.views, store.accounts, settings) as parts:
            transport = httpx2.ASGITransport(app=build(parts))
            headers = tokens.headers("read")
            async with Client(transport=transport, base_url="http://localhost", headers=headers) as client:
                yield client, proxy.stop
        await waker.aclose()


async def test_with_the_database_away_health_still_answers_and_says_so(
    url: str, settings: Config, tokens: Tokens
) -> None:
    async with cut_off(url, settings, tokens) as (client, stop):
        assert by_name(await client.get("/v1/health"))["Database"]["ok"]
        await stop()
        answer = await client.get("/v1/health")
    assert not answer.json()["ok"]
    assert [(name, part["ok"]) for name, part in by_name(answer).items()] == [("Database", False)]


async def test_each_needs_its_scope(http: Client, as_scope: Callable[..., Client]) -> None:
    async with as_scope("read") as reader, as_scope("submit") as submitter:
        assert (await reader.get("/v1/health")).status_code == 200
        assert (await submitter.get("/v1/health")).status_code == 403
        assert (await reader.get("/v1/configuration")).status_code == 403
    for path in ("/v1/health", "/v1/configuration", "/v1/series"):
        assert (await http.get(path)).status_code == 401


# Settings. ----------------------------------------------------------------------------------------------------------


async def test_every_setting_is_listed_with_its_value_and_its_meaning(api: Client, settings: Config) -> None:
    told = {each["variable"]: each for each in (await api.get("/v1/configuration")).json()["settings"]}
    assert set(told) == {each.variable for each in declared()}
    assert (told["WINDLASS_PORT"]["value"], told["WINDLASS_PORT"]["is_default"]) == ("0", False)
    assert (told["WINDLASS_HOST"]["value"], told["WINDLASS_HOST"]["is_default"]) == ("127.0.0.1", True)
    assert all(each["meaning"] for each in told.values())
    assert told["WINDLASS_AUTH_SECRET"]["value"] == "***"
    assert settings.auth.auth_secret not in {each["value"] for each in told.values()}


SECRETS = [
    "hunter2",
    "abc://hunter2",  # a secret is any text: one that looks like an address is none
    "abc://user:hunter2@host/hunter2",
    "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----",
]
URLS = [
    "postgresql://user:hunter2@host:5432/jobs?sslmode=require",
    "postgresql://host/jobs?user=u&password=hunter2",
    "postgresql://user:hunter2#@host/jobs",
    "redis://:hunter2@host:6379/0",
]


@pytest.mark.parametrize(("unit", "value"), [*(("", each) for each in SECRETS), *(("URL", each) for each in URLS)])
def test_no_secret_is_ever_shown(unit: str, value: str) -> None:
    """Every secret setting there is, set to values of the kind it takes."""
    config, count = Config(), 0
    for role in fields(config):
        if role.name == "unknown":
            continue
        found = getattr(config, role.name)
        secret = [each.name for each in fields(found) if each.metadata["rule"].secret]
        names = [name for name in secret if name.endswith("_url") == (unit == "URL")]
        config = replace(config, **{role.name: replace(found, **dict.fromkeys(names, value))})
        count += len(names)
    assert count >= 3
    shown = in_effect(config)
    assert "hunter2" not in str(shown)
    assert sum("***" in each.value for each in shown) == count


def test_the_names_of_secret_urls_are_those_whose_unit_says_so() -> None:
    for each in declared():
        if each.secret:
            assert each.unit.endswith("URL") == each.variable.endswith("_URL"), each.variable

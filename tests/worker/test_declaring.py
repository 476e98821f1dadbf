"""What a worker's app declares is in the catalogue as soon as it works, and a restart changes nothing there."""

import json

import asyncpg
import pytest

from tests.worker.supervised import supervised
from windlass.config import StoreConfig
from windlass.model import KnownType, Status
from windlass.store.store import Store

Sql = asyncpg.Connection
pytestmark = pytest.mark.filterwarnings("default::ResourceWarning")


async def known(store: Store) -> dict[str, KnownType]:
    return {one.declared.name: one for one in await store.views.types()}


async def test_a_worker_declares_its_types_before_it_works(config: StoreConfig, store: Store, sql: Sql) -> None:
    rows = "select name, xmin::text, ctid::text from windlass.job_type order by name"
    async with supervised(config, processes=2) as crew:
        await crew.until(await crew.enqueue("echo"), Status.COMPLETED)
        types = await known(store)
        crew.signals.raise_to(1)
    before = await sql.fetch(rows)
    assert types["echo"].alive
    wait = types["wait"].declared
    assert wait.description == "Until the file is there. Heeds requests to stop."
    schema = json.loads(wait.schema or "")
    assert (schema["required"], schema["properties"]["begun"]) == (["file"], {"type": "string", "default": ""})
    assert not (await known(store))["echo"].alive, "nobody lives any more"
    async with supervised(config) as crew:
        await crew.until(await crew.enqueue("echo"), Status.COMPLETED)
        crew.signals.raise_to(1)
    assert await sql.fetch(rows) == before

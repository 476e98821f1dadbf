"""Notes every SQL text the contract tests send, for test_statements.py, which is run last."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.shortcuts import Behind, behind, client
from windlass.embedded.valkey import EmbeddedValkey
from windlass.store.store import Store

_METHODS = ("fetch", "fetchrow", "fetchval", "execute")
_SENT: set[str] = set()
_DESELECTED: list[pytest.Item] = []


@pytest.fixture(autouse=True)
def _note_sql(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the driver: some statements do not pass through Postgres.fetch. Pools call these methods of the class, too."""
    for name in _METHODS:
        monkeypatch.setattr(asyncpg.Connection, name, _noting(getattr(asyncpg.Connection, name)))


def _noting(method: Any) -> Any:
    async def noting(self: Any, query: str, *args: Any, **options: Any) -> Any:
        _SENT.add(query)
        return await method(self, query, *args, **options)

    return noting


@pytest.fixture
def sent_sql(request: pytest.FixtureRequest) -> set[str] | None:
    """Every SQL text sent so far; None unless the whole folder is being run, when nothing can be said."""
    folder = Path(__file__).parent
    collected = {item.path for item in request.session.items}
    config = request.config
    narrowed = _DESELECTED or any("::" in arg for arg in config.args) or config.option.keyword or config.option.markexpr
    whole = collected.issuperset(folder.glob("test_*.py")) and not narrowed
    return _SENT if whole else None


def pytest_deselected(items: list[pytest.Item]) -> None:
    _DESELECTED.extend(items)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name == "test_statements.py")


# Behind Redis. --------------------------------------------------------------------------------------------------------


@pytest.fixture
def emptied(valkey: EmbeddedValkey) -> None:
    with client(valkey.url) as connection:
        connection.flushall()


@pytest.fixture
async def door(store: Store, valkey: EmbeddedValkey) -> AsyncIterator[Behind]:
    async with behind(valkey.url, store) as door:
        yield door

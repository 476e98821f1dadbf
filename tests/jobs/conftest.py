"""A worker that runs the built-in types in the test's own loop."""

from collections.abc import AsyncIterator

import pytest

from tests.worker.placed import Placed, placed
from windlass.config import StoreConfig
from windlass.jobs import app


@pytest.fixture
async def worker(config: StoreConfig) -> AsyncIterator[Placed]:
    async with placed(config, app.types) as one:
        yield one

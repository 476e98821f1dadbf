"""A worker that runs the built-in types in the test's own loop."""

from collections.abc import AsyncIterator

import pytest

from tests.worker.placed import Placed, placed
from windlass.config import StoreConfig
from windlass.jobs import app
from windlass.testing.in_process import in_this_process


@pytest.fixture
async def worker(config: StoreConfig) -> AsyncIterator[Placed]:
    types = {name: in_this_process(job) for name, job in app.types.items()}
    async with placed(config, types) as one:
        yield one

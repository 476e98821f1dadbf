"""What tests of isolated jobs share."""

import logging
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.worker.isolating import children, isolated
from windlass.telemetry import JobLogHandler
from windlass.worker.isolation import Isolation


@pytest.fixture
def kept_logs() -> Iterator[None]:
    """This process keeps the logs of attempts, as a worker does."""
    handler = JobLogHandler()
    logging.getLogger().addHandler(handler)
    yield
    logging.getLogger().removeHandler(handler)


@pytest.fixture(params=["forked", "started"])
async def isolation(kept_logs: None, request: pytest.FixtureRequest) -> AsyncIterator[Isolation]:
    """Children for isolated jobs, of both kinds; none is left afterwards."""
    made = isolated(spare=1, fork=request.param == "forked")
    yield made
    await made.aclose()
    assert children() == []

"""The kit's fixtures on the server that all tests share."""

from collections.abc import Iterator

import pytest

from tests.testing import shop
from windlass import App
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.testing import DatabaseServer


@pytest.fixture(scope="session")
def windlass_server(postgres_server: EmbeddedPostgres) -> Iterator[DatabaseServer]:
    with DatabaseServer(postgres_server.url) as server:
        yield server


@pytest.fixture(scope="session")
def windlass_app_under_test() -> App:
    return shop.app


@pytest.fixture(autouse=True)
def _nothing_ran_yet() -> None:
    shop.ran.clear()

"""The pytest plugin. Windlass itself is imported when a test asks for one of these fixtures, and not before.

`windlass_app` is the App under test, on a database of the test's own. Which App that is says the ini option of that name,
or a fixture `windlass_app_under_test` of yours.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from windlass.app import App
    from windlass.testing.database import DatabaseServer


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("windlass_app", "the App that the fixture windlass_app gives to tests, as module:attribute")


@pytest.fixture(scope="session")
def windlass_app_under_test(pytestconfig: pytest.Config) -> "App":
    """The App under test; override it, or set the ini option windlass_app."""
    from windlass.app import App  # noqa: PLC0415 - only for tests that need it
    from windlass.errors import Misconfigured  # noqa: PLC0415
    from windlass.worker.loading import load_app  # noqa: PLC0415

    spec = str(pytestconfig.getini("windlass_app") or "")
    if not spec:
        raise pytest.UsageError(
            "windlass_app: which App is to be tested? Write `windlass_app = module:attribute` in the pytest configuration, "
            "or a fixture windlass_app_under_test"
        )
    try:
        app = load_app(spec)
    except Misconfigured as problem:
        raise pytest.UsageError(f"windlass_app: {problem}") from problem.__cause__
    assert isinstance(app, App)  # noqa: S101 - load_app has looked
    return app


@pytest.fixture(scope="session")
def windlass_prepare_database() -> Callable[[str], None] | None:
    """Override it to return a function that makes your own tables: it is called once, with the address of the template
    that the database of every test is cloned from."""
    return None


@pytest.fixture(scope="session")
def windlass_server() -> "Iterator[DatabaseServer]":
    """One PostgreSQL for the session: an embedded one, or that of WINDLASS_TEST_DATABASE_URL."""
    from windlass.testing.database import DatabaseServer  # noqa: PLC0415

    with DatabaseServer() as server:
        yield server


@pytest.fixture
def windlass_app(
    windlass_app_under_test: "App",
    windlass_prepare_database: Callable[[str], None] | None,
    windlass_server: "DatabaseServer",
) -> "Iterator[App]":
    """The App under test, on an empty database of this test's own."""
    from windlass.testing.database import temporary_database  # noqa: PLC0415

    prepare = windlass_prepare_database
    with temporary_database(windlass_app_under_test, server=windlass_server, prepare=prepare):
        yield windlass_app_under_test


@pytest.fixture
def windlass_database_url(windlass_app: "App") -> str:  # noqa: ARG001 - that makes it
    """The address of this test's database, for connections of your own."""
    from windlass.testing.database import current_database  # noqa: PLC0415

    return current_database().url

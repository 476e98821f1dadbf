"""Data folders for tests of the embedded PostgreSQL."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.embedded.postgres import EmbeddedPostgres


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    EmbeddedPostgres(folder).start().stop()
    return folder


@pytest.fixture
def data_dir(template: Path, tmp_path: Path) -> Path:
    """A folder with a cluster in it: a warm start costs a tenth of a cold one."""
    shutil.copytree(template / "pgdata", tmp_path / "data" / "pgdata")
    return tmp_path / "data"


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A folder that every user may enter, unlike pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="embedded-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)

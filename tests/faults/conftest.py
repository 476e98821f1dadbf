"""Data folders for tests of the embedded PostgreSQL."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from windlass.embedded.postgres import EmbeddedPostgres


@pytest.fixture(scope="session")
def template(in_memory: Path) -> Path:
    folder = in_memory / "template"
    EmbeddedPostgres(folder).start().stop()
    return folder


@pytest.fixture
def data_dir(template: Path, in_memory: Path) -> Iterator[Path]:
    """A folder with a cluster in it: a warm start costs a tenth of a cold one."""
    folder = in_memory / f"embedded-{uuid4().hex[:12]}"
    shutil.copytree(template / "pgdata", folder / "pgdata")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A folder that every user may enter, unlike pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="embedded-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)

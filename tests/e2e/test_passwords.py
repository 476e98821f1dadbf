"""No command shows a password, whatever is wrong with an address or with the app."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from windlass.config import StoreConfig
from windlass.errors import Misconfigured
from windlass.store.connections import connect


def windlass(*words: str, url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "WINDLASS_DATABASE_URL": url}
    command = [sys.executable, "-m", "windlass", *words]
    return subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


WRONG = [
    "postgresql://ann:hun/ter2@127.0.0.1:1/x",
    "postgresql://ann:hun#ter2@127.0.0.1:1/x",
    "postgresql://ann:hun?ter2@127.0.0.1:1/x",
    "postgresql://ann:hun[ter2@127.0.0.1:1/x",
    "postgresql://ann:hunter2@127.0.0.1:1/x?sslmode=hunter2",
    "mysql://ann:hunter2@127.0.0.1/x",
]


@pytest.mark.parametrize("wrong", WRONG)
async def test_an_address_that_cannot_be_read_is_not_quoted(wrong: str) -> None:
    with pytest.raises(Misconfigured, match="WINDLASS_DATABASE_URL") as refused:
        await connect(StoreConfig(database_url=wrong))
    assert "hun" not in str(refused.value)
    assert "ter2" not in str(refused.value)


def test_a_command_with_a_wrong_address_says_so_without_it(tmp_path: Path) -> None:
    done = windlass("migrate", "status", url=WRONG[0], folder=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "WINDLASS_DATABASE_URL" in done.stderr
    assert "ter2" not in done.stderr + done.stdout


def test_an_app_that_fails_with_an_address_in_its_words_shows_no_password(url: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text('raise RuntimeError("no postgresql://ann:hunter2@db/x")\n', encoding="utf-8")
    done = windlass("worker", "--app", "broken:app", url=url, folder=tmp_path)
    assert done.returncode != 0
    assert "windlass: app 'broken:app' cannot be imported" in done.stderr
    assert "postgresql://ann:***@db/x" in done.stderr
    assert "hunter2" not in done.stderr + done.stdout

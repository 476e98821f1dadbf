"""The plugin as projects meet it: a pytest of their own, which starts the server, or has no use for us at all."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from windlass.embedded.postgres import EmbeddedPostgres

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
QUIET = "[tool.pytest.ini_options]\nfilterwarnings = ['error']\naddopts = '-p no:cacheprovider -p no:asyncio'\n"


def _pytest(folder: Path, *args: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", *(args or ("pytest", "-q"))]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **environ}, capture_output=True, text=True, check=False
    )


def test_a_project_that_does_not_use_it_imports_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(QUIET)
    (tmp_path / "test_other.py").write_text(
        "import sys\n"
        "def test_nothing() -> None:\n"
        "    ours = {name for name in sys.modules if name.partition('.')[0] == 'windlass'}\n"
        "    assert ours == {'windlass', 'windlass.testing', 'windlass.testing.plugin'}\n"
        "    assert not {'asyncpg', 'msgspec', 'structlog'} & set(sys.modules)\n"
    )
    ran = _pytest(tmp_path)
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("ini", "complaint"),
    [
        ("", "windlass_app: which App is to be tested?"),
        ("windlass_app = 'nowhere:app'\n", "windlass_app: app 'nowhere:app' cannot be imported"),
    ],
    ids=["no app", "wrong app"],
)
def test_a_project_that_names_no_app_is_told_what_to_write(tmp_path: Path, ini: str, complaint: str) -> None:
    (tmp_path / "pyproject.toml").write_text(QUIET + ini)
    (tmp_path / "test_it.py").write_text("def test_it(windlass_app: object) -> None: ...\n")
    ran = _pytest(tmp_path, WINDLASS_TEST_DATABASE_URL="postgresql://nobody@127.0.0.1:1/none")
    assert complaint in ran.stdout, ran.stdout + ran.stderr


def test_the_manual_runs_as_it_stands(tmp_path: Path, postgres_server: EmbeddedPostgres) -> None:
    """On the server of these tests, and its last part on one that the kit starts by itself."""
    _write_blocks(tmp_path)
    ran = _pytest(tmp_path, WINDLASS_TEST_DATABASE_URL=postgres_server.url)
    assert re.search(r"^7 passed", ran.stdout, re.MULTILINE), ran.stdout + ran.stderr
    ran = _pytest(tmp_path, "unittest", "unittests.py")
    assert ran.returncode == 0, ran.stderr
    assert "OK" in ran.stderr, ran.stderr


def _write_blocks(folder: Path) -> None:
    """Each block goes to the end of the file that its first line names."""
    blocks = re.findall(r"```(?:python|toml)\n# (\S+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for name, text in blocks:
        with (folder / name).open("a", encoding="utf-8") as file:
            file.write(text + "\n\n")

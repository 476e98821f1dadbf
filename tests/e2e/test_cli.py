"""The command line as a newcomer meets it: real processes, real signals, and errors of one line."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.commands import Done, command
from tests.e2e.household import CLEAN, WINDLASS, programs, up
from windlass.store.migrate import migrations

MIGRATIONS = [each.number for each in migrations()]


def windlass(*args: str, **environ: str) -> Done:
    return subprocess.run(
        [WINDLASS, *args], env={**CLEAN, **environ}, capture_output=True, text=True, timeout=60, check=False
    )


def test_up_reports_a_healthy_store_and_keeps_its_data(tmp_path: Path) -> None:
    first = json.loads(windlass("up", "--once", "--json", "--data-dir", str(tmp_path)).stdout)
    assert (first["healthy"], first["migrations_applied"]) == (True, MIGRATIONS)
    again = json.loads(windlass("up", "--once", "--json", "--data-dir", str(tmp_path)).stdout)
    assert again["migrations_applied"] == []


def test_up_without_json_is_for_people() -> None:
    shown = windlass("up", "--once", "--ephemeral").stdout
    assert "Windlass is up" in shown
    assert "no job lost, doubled or miscounted" in shown


@pytest.mark.parametrize(
    ("environ", "code", "says"),
    [
        ({"WINDLASS_DATABASE_URL": "postgresql://u:secret@127.0.0.1:1/d"}, 6, "cannot be reached"),
        ({"WINDLASS_DATABASE_URL": "mysql://u:secret@127.0.0.1/d"}, 3, "WINDLASS_DATABASE_URL"),
        ({"WINDLASS_LEASE_TTL_S": "soon"}, 3, "WINDLASS_LEASE_TTL_S"),
        ({"WINDLASS_SCHEMA": "drop table"}, 3, "WINDLASS_SCHEMA"),
    ],
)
def test_what_cannot_work_is_one_line_and_an_exit_code(environ: dict[str, str], code: int, says: str) -> None:
    done = windlass("up", "--once", "--json", **environ)
    assert done.returncode == code
    assert says in done.stderr
    assert "secret" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not done.stdout


def test_migrate_walks_up_and_down(url: str) -> None:
    def migrate(*args: str) -> Done:
        return command("migrate", *args, WINDLASS_DATABASE_URL=url, WINDLASS_SCHEMA="walk")

    assert migrate("check").returncode == 3
    assert json.loads(migrate("upgrade", "--json").stdout) == {"applied": MIGRATIONS}
    assert migrate("check").returncode == 0
    assert json.loads(migrate("status", "--json").stdout)["pending"] == []
    assert json.loads(migrate("downgrade", "--to", "0", "--yes", "--json").stdout) == {"undone": MIGRATIONS[::-1]}
    assert migrate("check").returncode == 3
    assert 'create table "walk".job' in migrate("sql").stdout


@pytest.mark.parametrize("wrong", [("/test_", "/no_such_"), ("//windlass@", "//nobody_known@")])
def test_a_database_or_role_that_does_not_exist_is_one_line(url: str, wrong: tuple[str, str]) -> None:
    done = windlass("migrate", "status", WINDLASS_DATABASE_URL=url.replace(*wrong))
    assert done.returncode == 3
    assert "does not exist" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_data_folder_may_come_from_the_environment(data_dir: Path) -> None:
    done = windlass("up", "--once", "--json", WINDLASS_DATA_DIR=str(data_dir))
    assert json.loads(done.stdout)["data_dir"] == str(data_dir / "postgres")
    assert not done.stderr


def test_up_says_so_when_its_database_dies(data_dir: Path) -> None:
    with up(folder=data_dir) as made:
        next(each for each in made.everyone() if programs([each]) == {"postgres"}).kill()
        assert made.ended() == 6
        assert "PostgreSQL has ended" in made.said


def test_the_version_is_told() -> None:
    assert windlass("--version").stdout.startswith("windlass ")

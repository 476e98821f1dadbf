"""The command line as a newcomer meets it: real processes, real signals, and errors of one line."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

WINDLASS = Path(sys.executable).with_name("windlass")


CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("WINDLASS_", "DATABASE_"))}


def windlass(*args: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [WINDLASS, *args], env={**CLEAN, **environ}, capture_output=True, text=True, timeout=60, check=False
    )


def start(*args: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([WINDLASS, *args], env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def report_of(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


def test_up_reports_a_healthy_store_and_keeps_its_data(tmp_path: Path) -> None:
    first = json.loads(windlass("up", "--once", "--json", "--data-dir", str(tmp_path)).stdout)
    assert (first["healthy"], first["migrations_applied"]) == (True, [1, 2, 3, 4])
    again = json.loads(windlass("up", "--once", "--json", "--data-dir", str(tmp_path)).stdout)
    assert again["migrations_applied"] == []


def test_up_without_json_is_for_people() -> None:
    shown = windlass("up", "--once", "--ephemeral").stdout
    assert "Windlass is up" in shown
    assert "no job lost, doubled or miscounted" in shown


def test_a_second_up_on_the_same_folder_names_the_first(tmp_path: Path) -> None:
    process = start("up", "--json", "--port", "0", "--data-dir", str(tmp_path))
    try:
        report_of(process)
        second = windlass("up", "--once", "--data-dir", str(tmp_path))
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert second.returncode == 3
    assert str(process.pid) in second.stderr
    assert len(second.stderr.splitlines()) == 1


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
    def migrate(*args: str) -> "subprocess.CompletedProcess[str]":
        return windlass("migrate", *args, WINDLASS_DATABASE_URL=url, WINDLASS_SCHEMA="walk")

    assert migrate("check").returncode == 3
    assert json.loads(migrate("upgrade", "--json").stdout) == {"applied": [1, 2, 3, 4]}
    assert migrate("check").returncode == 0
    assert json.loads(migrate("status", "--json").stdout)["pending"] == []
    assert json.loads(migrate("downgrade", "--to", "0", "--yes", "--json").stdout) == {"undone": [4, 3, 2, 1]}
    assert migrate("check").returncode == 3
    assert 'create table "walk".job' in migrate("sql").stdout


@pytest.mark.parametrize("wrong", [("/test_", "/no_such_"), ("//windlass@", "//nobody_known@")])
def test_a_database_or_role_that_does_not_exist_is_one_line(url: str, wrong: tuple[str, str]) -> None:
    done = windlass("migrate", "status", WINDLASS_DATABASE_URL=url.replace(*wrong))
    assert done.returncode == 3
    assert "does not exist" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_data_folder_may_come_from_the_environment(tmp_path: Path) -> None:
    done = windlass("up", "--once", "--json", WINDLASS_DATA_DIR=str(tmp_path / "here"))
    assert json.loads(done.stdout)["data_dir"] == str(tmp_path / "here" / "postgres")
    assert not done.stderr


def test_up_says_so_when_its_database_dies(tmp_path: Path) -> None:
    process = start("up", "--json", "--port", "0", "--data-dir", str(tmp_path))
    report_of(process)
    family = psutil.Process(process.pid).children(recursive=True)
    next(child for child in family if child.name() == "postgres").kill()
    _, said = process.communicate(timeout=30)
    assert process.returncode == 6
    assert "PostgreSQL has ended" in said


def test_the_version_is_told() -> None:
    assert windlass("--version").stdout.startswith("windlass ")

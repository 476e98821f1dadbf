"""Setting up on a database with roles of several kinds, by the commands."""

import asyncio
import json
import secrets
import signal
import subprocess
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from tests.conftest import Administer
from tests.e2e.commands import command
from tests.e2e.household import CLEAN, ROOT, WINDLASS
from tests.eventually import eventually


@pytest.fixture
def worker_url(url: str, administer: Administer) -> str:
    return url_for("worker", url, administer)


def url_for(kind: str, url: str, administer: Administer) -> str:
    """The database as a role with the rights of `windlass migrate grants --for KIND`."""
    role = f"role_{uuid4().hex[:12]}"
    administer(f"create role {role} login")
    printed = command("migrate", "grants", "--role", role, "--for", kind, WINDLASS_DATABASE_URL=url)
    assert (printed.returncode, printed.stderr) == (0, "")

    async def run() -> None:
        connection = await asyncpg.connect(url)
        await connection.execute(printed.stdout)
        await connection.close()

    asyncio.run(run())
    return url.replace("windlass@", f"{role}@")


def start_worker(url: str, log: Path, **environ: str) -> "subprocess.Popen[bytes]":
    with log.open("wb") as file:
        return subprocess.Popen(
            [WINDLASS, "worker", "--app", "examples.hello:app"],
            env={**CLEAN, "WINDLASS_DATABASE_URL": url, **environ}, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=file,
        )  # fmt: skip


def test_a_worker_that_could_not_make_partitions_is_refused_at_its_start(worker_url: str, tmp_path: Path) -> None:
    process = start_worker(worker_url, tmp_path / "log")
    assert process.wait(60) == 3
    said = (tmp_path / "log").read_text()
    assert len(said.splitlines()) == 1
    assert said.startswith("windlass: the role role_")
    assert 'grant "windlass" to "role_' in said
    assert "WINDLASS_LEAD=off" in said


@pytest.mark.parametrize(("kind", "words"), [("worker", ["--app", "examples.hello:app"]), ("api", ["--port", "0"])])
def test_a_process_whose_role_is_for_something_else_is_refused_at_its_start(
    url: str, administer: Administer, kind: str, words: list[str]
) -> None:
    enqueuer = url_for("enqueuer", url, administer)
    secret = secrets.token_hex(32)
    done = command(kind, *words, WINDLASS_DATABASE_URL=enqueuer, WINDLASS_LEAD="off", WINDLASS_AUTH_SECRET=secret)
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert f"`windlass migrate grants --role role_{enqueuer.partition('role_')[2][:12]} --for {kind}`" in done.stderr
    told = command("migrate", "check", WINDLASS_DATABASE_URL=enqueuer).stdout
    assert "has the rights of: enqueuer\n" in told
    assert "cannot make partitions" not in told  # that is no concern of whoever runs no workers


def test_a_worker_without_rights_on_the_schema_leads_without_partitions(
    worker_url: str, url: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    process = start_worker(worker_url, log, WINDLASS_LEAD="without-partitions")
    try:
        eventually(lambda: "leading in term" in log.read_text() and "is ready" in log.read_text())
        done = command("submit", "greet", '{"name": "Ada"}', "--wait", WINDLASS_DATABASE_URL=url)
        assert "Hello, Ada!" in done.stdout, done.stderr
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    assert "permission denied" not in log.read_text()


def test_partitions_are_made_by_a_command_of_the_owner(worker_url: str, url: str) -> None:
    refused = command("migrate", "partitions", WINDLASS_DATABASE_URL=worker_url, WINDLASS_PARTITIONS_AHEAD="9")
    assert refused.returncode == 3
    assert "cannot make partitions" in refused.stderr
    made = command("migrate", "partitions", "--json", WINDLASS_DATABASE_URL=url, WINDLASS_PARTITIONS_AHEAD="9")
    assert len(json.loads(made.stdout)["made"]) == 4 * 6
    report = json.loads(command("migrate", "check", "--json", WINDLASS_DATABASE_URL=worker_url).stdout)
    assert report["partition_days_ahead"] == 10
    assert report["rights"] == ["enqueuer", "worker"]
    assert not report["makes_partitions"]


@pytest.mark.parametrize("words", [["--role", "", "--for", "worker"], ["--role", "a", "--for", "king"]])
def test_grants_for_nobody_or_nothing_are_refused_in_one_line(words: list[str]) -> None:
    done = command("migrate", "grants", *words)
    assert done.returncode in {2, 3}
    assert not done.stdout
    assert len(done.stderr.splitlines()) == 1

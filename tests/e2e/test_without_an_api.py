"""Commands where there is no API: straight on the database, by ids that are cut short, and with words that are nearly right."""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import windlass
from tests.e2e.commands import Done, command
from windlass.cli.filters import StatusWord
from windlass.config import StoreConfig
from windlass.lifecycle import Failed, settle
from windlass.model import Declared, Error, NewWorker, Status
from windlass.store.protocol import Ask
from windlass.store.store import open_store

WORKER = UUID(int=7)


class Cluster:
    """A database with a declared type, no API, and commands that are given nothing else."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.environ = {"WINDLASS_DATABASE_URL": url, "WINDLASS_DATA_DIR": str(folder)}
        asyncio.run(self._declare())

    async def _declare(self) -> None:
        async with open_store(StoreConfig(database_url=self.url)) as store:
            await store.upkeep.declare([Declared("echo")])
            await store.upkeep.register(NewWorker(WORKER, "w", 4, ["default"], ["echo"]), lease_ttl_s=600)

    async def declare_without_workers(self, name: str) -> None:
        async with open_store(StoreConfig(database_url=self.url)) as store:
            await store.upkeep.declare([Declared(name)])

    async def _fail(self) -> int:
        async with open_store(StoreConfig(database_url=self.url)) as store:
            claims = store.claims()
            leases = await claims.claim(Ask(WORKER, ["default"], ["echo"], free=4))
            ends = [settle(one, Failed(Error("ValueError", "no"), final=True), jitter=0.5) for one in leases]
            return len((await claims.settle(ends)).moved)

    def fail_all(self) -> int:
        return asyncio.run(self._fail())

    def __call__(self, *words: str, **environ: str) -> Done:
        return command(*words, **self.environ | environ)

    def json(self, *words: str) -> Any:
        done = self(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def cluster(url: str, tmp_path: Path) -> Cluster:
    return Cluster(url, tmp_path)


def test_every_kind_of_command_works_straight_on_the_database(cluster: Cluster) -> None:
    first, second = (cluster.json("submit", "echo", "{}")["id"] for _ in range(2))
    assert {job["id"] for job in cluster.json("jobs", "list", "--status", "pending")["jobs"]} == {first, second}
    assert cluster("jobs", "cancel", first, "--reason", "no need").returncode == 0
    assert cluster.json("jobs", "show", first)["job"]["status"] == "cancelled"
    assert cluster("jobs", "retry", first).returncode == 0
    assert cluster.fail_all() == 2
    assert [queue["name"] for queue in cluster.json("queues", "list")["queues"]] == ["default"]
    assert cluster.json("dead-letters", "discard", "--type", "echo", "--yes")["done"] == 2
    stats = cluster.json("stats")
    assert (stats["statuses"]["cancelled"], stats["dead_letters"]["count"]) == (2, 0)
    actions = [(entry["actor"].partition(":")[0], entry["action"]) for entry in cluster.json("audit")["entries"]]
    assert actions == [("cli", "dead_letters.discard"), ("cli", "job.retry"), ("cli", "job.cancel")]


def test_a_payload_that_no_living_worker_could_check_is_taken_and_that_is_said(cluster: Cluster) -> None:
    asyncio.run(cluster.declare_without_workers("later"))
    done = cluster("submit", "later", "{}")
    assert UUID(done.stdout.strip())
    assert done.stderr.startswith("its payload was not checked: no living worker has declared this type")
    assert cluster.json("submit", "later", "{}")["payload_checked"] is False


def test_which_way_was_taken_is_said_to_those_who_ask(cluster: Cluster) -> None:
    assert cluster("stats").stderr == ""
    assert "no API answers; working on postgresql://" in cluster("--verbose", "stats").stderr


def test_an_api_that_was_named_and_does_not_answer_is_worth_a_line(cluster: Cluster) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        address = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        done = cluster("stats", WINDLASS_URL=address)
    assert done.returncode == 0
    assert done.stderr.startswith(f"windlass: the API at {address} does not answer; working on postgresql://")


def test_a_wrong_request_is_one_line_and_the_same_exit_code_as_from_an_api(cluster: Cluster) -> None:
    for words, code in ((("submit", "ecco", "{}"), 2), (("jobs", "show", str(UUID(int=1))), 4)):
        done = cluster(*words)
        assert (done.returncode, len(done.stderr.splitlines())) == (code, 1)


def test_a_database_without_our_tables_says_what_to_do(postgres_server: Any, tmp_path: Path) -> None:
    environ = {"WINDLASS_DATABASE_URL": postgres_server.url, "WINDLASS_DATA_DIR": str(tmp_path)}
    done = command("stats", WINDLASS_SCHEMA="nothing_here", **environ)
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
    assert "windlass migrate upgrade" in done.stderr


# Ids. -----------------------------------------------------------------------------------------------------------------


def test_the_first_characters_of_an_id_will_do_while_they_are_of_one_job(cluster: Cluster) -> None:
    first, second = (cluster.json("submit", "echo", "{}")["id"] for _ in range(2))
    shared = next(n for n in range(36) if first[n] != second[n])
    assert cluster.json("jobs", "show", first[: shared + 1])["job"]["id"] == first
    assert cluster.json("jobs", "show", second.replace("-", "")[:24].upper())["job"]["id"] == second
    several = cluster("jobs", "cancel", first[:8])
    assert (several.returncode, len(several.stderr.splitlines())) == (2, 1)
    assert first in several.stderr
    assert second in several.stderr
    assert cluster.json("stats")["statuses"]["ready"] == 2


@pytest.mark.parametrize(("written", "code"), [("0190a4f", 2), ("nonsense", 2), ("0190a4f2", 4), ("f" * 31, 4)])
def test_what_is_no_id_of_any_job_is_refused(cluster: Cluster, written: str, code: int) -> None:
    done = cluster("jobs", "show", written)
    assert (done.returncode, len(done.stderr.splitlines())) == (code, 1)


# Words. ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["jbos"], "jobs"),
        (["dead-leters", "list"], "dead-letters"),
        (["jobs", "lst"], "list"),
        (["worker", "list"], "workers list"),
    ],
)
def test_a_command_that_is_nearly_right_is_named(words: list[str], meant: str) -> None:
    done = command(*words)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert f"Did you mean '{meant}'?" in done.stderr


def test_every_status_of_a_job_can_be_asked_for() -> None:
    assert {word.value for word in StatusWord} == {status.value for status in Status} | {"pending"}


def test_the_version_is_that_of_the_package() -> None:
    assert command("--version").stdout == f"windlass {windlass.__version__}\n"

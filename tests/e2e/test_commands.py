"""The commands as people use them: they find a running `windlass up` by its data folder."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from tests.e2e.commands import Done, command
from tests.e2e.conftest import copied
from tests.e2e.household import CLEAN, WINDLASS, Up, up
from tests.eventually import eventually
from windlass.cli.main import _COMMANDS, Commands, app
from windlass.cli.remote import reached

NOBODY = "01a1e2cc-4f97-72da-9159-e042c25954f7"


class Cluster:
    """One `windlass up` with the built-in types, and the commands that speak to it."""

    def __init__(self, made: Up) -> None:
        self.folder = made.folder
        self.url = made.url

    def __call__(self, *words: str, given: str = "", **environ: str) -> Done:
        """Without a process of its own."""
        return command(*words, given=given, **{"WINDLASS_DATA_DIR": str(self.folder), **environ})

    def program(self, *words: str, given: str = "", **environ: str) -> Done:
        """In a process of its own, as people run it."""
        known = {**CLEAN, "WINDLASS_DATA_DIR": str(self.folder), **environ}
        return subprocess.run(
            [WINDLASS, *words], env=known, input=given, capture_output=True, text=True, timeout=60, check=False
        )

    def json(self, *words: str, given: str = "", **environ: str) -> Any:
        done = self(*words, "--json", given=given, **environ)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def refused(self, *words: str, given: str = "", **environ: str) -> Done:
        done = self(*words, given=given, **environ)
        _is_refused(done)
        return done

    def on_a_terminal(self, *words: str, until: str, **environ: str) -> str:
        """What a terminal is sent until this text appears; then Ctrl-C."""
        known = {**CLEAN, "WINDLASS_DATA_DIR": str(self.folder), "TERM": "xterm", "COLUMNS": "120", **environ}
        ours, theirs = pty.openpty()
        process = subprocess.Popen([WINDLASS, *words], env=known, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        heard = b""
        deadline_s = time.monotonic() + 30
        while until.encode() not in heard:
            assert time.monotonic() < deadline_s, heard
            try:
                heard += os.read(ours, 65_536)
            except OSError:  # it has ended
                break
        process.send_signal(signal.SIGINT)
        os.close(ours)
        process.wait(20)
        return heard.decode()


def _is_refused(done: Done) -> None:
    """One line on stderr, nothing on stdout, and no trace."""
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("windlass: ")
    assert not done.stdout


@pytest.fixture(scope="module")
def windlass(prepared: Path, in_memory: Path) -> Iterator[Cluster]:
    with copied(prepared, in_memory) as folder, up("--threads", "4", folder=folder) as made:
        yield Cluster(made)


def test_a_job_is_submitted_and_its_result_printed(windlass: Cluster) -> None:
    assert windlass.program("submit", "add_numbers", '{"a": 2, "b": 3}', "--wait").stdout == "5\n"
    said = windlass.program("submit", "reverse_string", "-", "--wait", "--json", given='{"text": "abc"}')
    assert json.loads(said.stdout)["result"] == "cba"
    file = windlass.folder / "payload.json"
    file.write_text('{"a": 40, "b": 2}')
    job_id = windlass("submit", "add_numbers", f"@{file}").stdout.strip()
    assert windlass("jobs", "wait", job_id, "--timeout", "30").stdout == "42\n"


def test_what_is_said_of_a_job_is_what_is_stored(windlass: Cluster) -> None:
    words = ["--name", "mine", "--queue", "later", "--priority", "7", "--threads", "2", "--delay", "1h"]
    words += ["--max-attempts", "4", "--timeout", "90s", "--tag", "a", "--tag", "b", "--key", f"k-{uuid4()}"]
    job_id = windlass("submit", "default", *words).stdout.strip()
    job = windlass.json("jobs", "show", job_id)["job"]
    said = {name: job[name] for name in ("name", "queue", "priority", "thread_demand", "max_attempts", "timeout_s")}
    assert said == dict(zip(said, ["mine", "later", 7, 2, 4, 90.0], strict=True))
    assert (job["status"], sorted(job["tags"])) == ("scheduled", ["a", "b"])
    assert windlass.json("submit", "default", *words)["duplicate"] is True


def test_a_job_that_failed_ends_the_command_that_waited_with_an_error(windlass: Cluster) -> None:
    done = windlass.refused("submit", "default", '{"fail": true}', "--max-attempts", "1", "--wait")
    assert done.returncode == 1
    assert "AskedToFail" in done.stderr


def test_dead_letters_are_grouped_shown_counted_and_replayed(windlass: Cluster) -> None:
    tag = f"dead-{uuid4().hex[:8]}"
    for _ in range(2):
        windlass("submit", "default", '{"fail": true, "duration_s": 0}', "--max-attempts", "1", "--tag", tag, "--wait")
    listed = windlass.json("dead-letters", "list", "--tag", tag)["jobs"]
    assert len(listed) == 2
    groups = windlass.json("dead-letters", "groups", "--type", "default")["groups"]
    (kind,) = {each["fingerprint"] for each in groups if "AskedToFail" in each["error_type"]}
    same = windlass.json("dead-letters", "list", "--tag", tag, "--fingerprint", kind)["jobs"]
    assert {job["id"] for job in same} == {job["id"] for job in listed}
    assert windlass.json("dead-letters", "replay", "--fingerprint", kind, "--preview")["matched"] >= 2
    assert windlass.json("dead-letters", "replay", "--fingerprint", "other", "--preview")["matched"] == 0
    assert "traceback" in windlass("dead-letters", "show", listed[0]["id"]).stdout
    assert windlass("dead-letters", "replay", "--tag", tag, "--preview").stdout == "2 jobs found; nothing was done\n"
    assert "--yes" in windlass.refused("dead-letters", "replay", "--tag", tag).stderr
    assert windlass("dead-letters", "replay", "--tag", tag, "--yes").stdout == "2 done\n"
    eventually(lambda: len(windlass.json("dead-letters", "list", "--tag", tag)["jobs"]) == 2, 30)
    assert windlass.json("dead-letters", "replay", listed[0]["id"])["status"] == "ready"


def test_jobs_are_listed_explained_and_acted_on(windlass: Cluster) -> None:
    tag = f"act-{uuid4().hex[:8]}"
    ids = [windlass("submit", "default", "--delay", "1h", "--tag", tag).stdout.strip() for _ in range(3)]
    assert {job["id"] for job in windlass.json("jobs", "list", "--tag", tag, "--status", "scheduled")["jobs"]} == {*ids}
    assert "SCHEDULED" not in windlass("jobs", "list", "--tag", tag).stdout.splitlines()[0]
    why = windlass.json("jobs", "explain", ids[0])
    assert (why["status"], why["obstacles"][0]["code"]) == ("scheduled", "scheduled")
    assert windlass("jobs", "explain", ids[0]).stdout
    assert windlass.json("jobs", "run-now", ids[0])["status"] == "ready"
    assert windlass("jobs", "wait", ids[0], "--timeout", "30").returncode == 0
    assert windlass.json("jobs", "logs", ids[0])["logs"] == []
    assert windlass.json("jobs", "cancel", "--tag", tag, "--status", "scheduled", "--yes")["done"] == 2
    assert windlass.json("jobs", "retry", ids[1], ids[2])["done"] == 2
    assert windlass.refused("jobs", "run-now", ids[0]).returncode == 5
    assert "does not wait for a decision" in windlass.refused("jobs", "decide", ids[0], "done").stderr
    assert windlass.refused("jobs", "decide", NOBODY, "redo", "--effect", "mail").returncode == 4
    assert windlass.refused("jobs", "decide", ids[0], "maybe").returncode == 2
    assert windlass.json("jobs", "list", "--reason", "needs decision")["jobs"] == []


def test_nothing_is_acted_on_unless_it_is_said_which(windlass: Cluster) -> None:
    assert "say which" in windlass.refused("jobs", "cancel", "--yes").stderr
    assert "not both" in windlass.refused("jobs", "cancel", NOBODY, "--type", "default").stderr


def test_a_worker_is_stopped_by_its_name_or_the_beginning_of_its_id_and_another_takes_its_place(
    windlass: Cluster,
) -> None:
    def another(than: dict[str, Any]) -> Any:
        found = windlass.json("workers", "list")["workers"]
        return len(found) == 1 and found[0]["id"] != than["id"] and found[0]

    (first,) = windlass.json("workers", "list")["workers"]
    assert windlass("workers", "stop", first["name"]).stdout == f"{first['name']} gives its jobs back and is replaced\n"
    second = eventually(lambda: another(first))
    assert windlass.json("workers", "stop", second["id"][:8])["id"] == second["id"]
    eventually(lambda: another(second))
    assert "has ended" in windlass.refused("workers", "drain", first["id"]).stderr
    assert "there is no worker 'nobody'" in windlass.refused("workers", "drain", "nobody").stderr


def test_queues_workers_and_types_are_shown(windlass: Cluster) -> None:
    assert windlass("queues", "pause", "quiet").stdout == "quiet is paused\n"
    assert [each["paused"] for each in windlass.json("queues", "list")["queues"] if each["name"] == "quiet"] == [True]
    assert "paused" in windlass("queues", "list").stdout
    assert windlass.json("queues", "resume", "quiet") == {"queue": "quiet", "paused": False}
    (worker,) = windlass.json("workers", "list")["workers"]
    assert (worker["threads"], worker["version"]) == (4, version("windlass"))
    eventually(lambda: "0/4" in windlass("workers", "list").stdout)  # what other tests have submitted is done
    types = windlass.json("types", "list")["types"]
    assert {"email", "webhook", "resize_image"} <= {each["name"] for each in types}
    assert {each["served_by"] for each in types} == {1}
    assert "1 worker " in windlass("types", "list").stdout


def test_people_and_programs_get_their_own_ways_in_and_lose_them(windlass: Cluster) -> None:
    key = windlass("key", "create", "tests", "--scope", "read").stdout.strip()
    assert key.startswith("wl_")
    assert windlass.json("queues", "list", WINDLASS_API_KEY=key)
    assert windlass.refused("submit", "default", WINDLASS_API_KEY=key).returncode == 7
    (made,) = [each for each in windlass.json("key", "list")["keys"] if each["name"] == "tests"]
    assert key not in json.dumps(made)
    assert (
        "has the quota: waiting 9, timeout 600s\n"
        in windlass("key", "quota", made["id"], "--waiting", "9", "--timeout", "10m").stdout
    )
    assert "the namespace shop\n" in windlass("key", "namespace", made["id"], "shop").stdout
    assert "waiting 9, timeout 600s" in windlass("key", "list").stdout
    assert windlass("key", "revoke", made["id"], "--yes").returncode == 0
    assert windlass.refused("queues", "list", WINDLASS_API_KEY=key).returncode == 7

    assert windlass.json("user", "create", "ann", "--scope", "read", given="correct horse\n")["scopes"] == ["read"]
    assert windlass("user", "password", "ann", given="another horse\n").returncode == 0
    assert windlass("user", "scopes", "ann", "read,operate").stdout == "ann may read, operate\n"
    assert windlass("user", "quota", "ann", "--rate", "0.5").stdout == "ann has the quota: rate 0.5\n"
    assert windlass("user", "quota", "ann").stdout == "ann has the quota: none\n"
    assert windlass("user", "namespace", "ann", "default").returncode == 0
    assert windlass("user", "namespace", "ann").stdout == "ann uses keys and ids of its own\n"
    assert windlass.refused("user", "quota", "ann", "--rate", "-1").returncode == 2
    assert windlass("user", "remove", "ann", "--yes").stdout == "ann is removed\n"
    assert windlass.refused("user", "remove", "ann", "--yes").returncode == 4
    actions = {each["action"] for each in windlass.json("audit")["entries"]}
    assert {"key.add", "key.revoke", "user.add", "user.remove"} <= actions
    assert "user.add" in windlass("audit").stdout


def test_a_quota_is_told_where_it_stops_and_where_it_counts(windlass: Cluster) -> None:
    made = windlass.json("key", "create", "small", "--scope", "submit", "--waiting", "1", "--thread-demand", "2")
    job = windlass.json("submit", "default", "--delay", "1h", WINDLASS_API_KEY=made["key"])
    wide = windlass.refused("submit", "default", "--threads", "3", WINDLASS_API_KEY=made["key"])
    assert (wide.returncode, "beyond the quota thread_demand of 2" in wide.stderr) == (2, True)
    explained = windlass("jobs", "explain", job["id"]).stdout
    assert f"counts against the quota of key:{made['id']}: waiting 1 of 1, thread_demand 2" in explained
    assert windlass("jobs", "cancel", job["id"], "--yes").returncode == 0
    assert windlass("key", "revoke", made["id"], "--yes").returncode == 0


def test_load_is_submitted_in_waves_and_summed_up(windlass: Cluster) -> None:
    told = windlass.json("load", "volume", "--count", "120", "--waves", "3", "--pause", "0")
    assert (told["submitted"], told["all_finished"], told["statuses"]) == (120, True, {"completed": 120})
    failing = windlass("load", "failing", "--count", "3").stdout
    assert "3 failed" in failing
    assert "AskedToFail" in failing


def test_the_api_is_measured(windlass: Cluster) -> None:
    told = windlass.json("bench", "--seconds", "0.5", "--connections", "8")
    assert told["submissions_per_s"] > 0
    assert told["jobs_per_s"] > 0
    assert set(told["statuses"]) == {"202"}


def test_top_shows_the_cluster_once_and_live(windlass: Cluster) -> None:
    assert set(windlass.json("top")) == {"stats", "queues", "workers", "newest"}
    assert "QUEUE" in windlass("top", "--once").stdout
    assert "finished/s" in windlass.on_a_terminal("top", "--interval", "0.2", until="finished/s")


def test_other_peoples_text_does_nothing_to_a_terminal(windlass: Cluster) -> None:
    evil = "\x1b]0;owned\x07\x1b[31mred\u202e\x9b2J"
    payload = json.dumps({"task": evil, "duration_s": 0})
    job_id = windlass("submit", "default", payload, "--name", "a\u202eb", "--tag", "evil").stdout.strip()
    assert job_id
    for words in (("wait", job_id), ("show", job_id), ("show", job_id, "--json"), ("list", "--tag", "evil")):
        shown = windlass("jobs", *words).stdout
        assert shown
        assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(shown), words
    assert "\\u202e" in windlass("jobs", "list", "--tag", "evil").stdout
    job = windlass.json("jobs", "show", job_id)["job"]
    assert (job["payload"]["task"], job["result"]["task"]) == (evil, evil)
    refused = windlass.refused("submit", "default", "--name", evil)
    assert "\x1b" not in refused.stderr


def test_colours_are_for_terminals_that_want_them(windlass: Cluster) -> None:
    windlass("submit", "add_numbers", '{"a": 1, "b": 1}', "--wait")
    listed = ("jobs", "list", "--status", "completed", "-n", "1")
    assert "\x1b[32m" in windlass.on_a_terminal(*listed, until="add_numbers")
    assert "\x1b[32m" not in windlass.on_a_terminal(*listed, until="add_numbers", NO_COLOR="1")
    assert "\x1b" not in windlass(*listed).stdout


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["jobs", "show", NOBODY], 4, "there is no job"),
        (["jobs", "show", "nonsense"], 2, "is no job's id"),
        (["jobs", "list", "--since", "yesterday"], 2, "--since"),
        (["jobs", "lst"], 2, "lst"),
        (["jobs", "list", "--colour"], 2, "--colour"),
        (["jobs", "list", "--status", "pendin"], 2, "'--status': 'pendin' is not one of 'pending'"),
        (["submit", "no_such_type"], 2, "no_such_type"),
        (["submit", "default", "{oops"], 2, "payload"),
        (["submit", "default", "@/no/such/file"], 2, "/no/such/file"),
        (["submit", "default", "--priority", "100000"], 2, "priority"),
        (["submit"], 2, "TYPE"),
        (["jobs", "wait", NOBODY], 4, "there is no job"),
        (["key", "create", "x", "--scope", "everything"], 2, "everything"),
        (["load", "nothing"], 2, "nothing"),
        (["bench", "--payload", "{oops"], 2, "--payload"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_an_exit_code(
    windlass: Cluster, words: list[str], code: int, says: str
) -> None:
    done = windlass.refused(*words)
    assert done.returncode == code
    assert says in done.stderr


def test_a_wait_that_takes_too_long_is_one_line(windlass: Cluster) -> None:
    job_id = windlass("submit", "default", "--delay", "1h").stdout.strip()
    done = windlass.refused("jobs", "wait", job_id, "--timeout", "0.2")
    assert (done.returncode, "is scheduled after 0.2 s" in done.stderr) == (6, True)


def test_an_api_that_is_not_there_is_one_line_that_says_what_to_do(windlass: Cluster, tmp_path: Path) -> None:
    nowhere = windlass.program("queues", "list", WINDLASS_DATA_DIR=str(tmp_path))
    _is_refused(nowhere)
    assert (nowhere.returncode, "windlass up" in nowhere.stderr) == (6, True)
    gone = windlass.refused("queues", "list", WINDLASS_URL="http://127.0.0.1:1")
    assert (gone.returncode, "cannot be reached" in gone.stderr) == (6, True)


def test_the_secret_of_this_machine_opens_no_door_elsewhere(windlass: Cluster) -> None:
    """A token signed with it would be an admin's key in the hands of whoever is at the other address."""
    known = {"WINDLASS_DATA_DIR": str(windlass.folder)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in known.items():
            patch.setenv(name, value)
        assert reached().token is not None
        patch.setenv("WINDLASS_URL", "http://jobs.example.org")
        assert reached().token is None


# They run until a signal and tell nothing; or what they print is for another program already.
SILENT = {("api", ""), ("worker", ""), ("migrate", "sql"), ("migrate", "grants")}


@pytest.mark.parametrize("command", sorted(_COMMANDS))
def test_every_command_shows_examples_and_speaks_json(command: str) -> None:
    found = Commands(name="windlass").get_command(None, command)
    for each in sorted(getattr(found, "commands", {}) or [""]):
        done = CliRunner().invoke(app, [command, *each.split(), "--help"])
        assert done.exit_code == 0, done.output
        assert "Example" in done.output, (command, each)
        assert ("--json" in done.output) is ((command, each) not in SILENT), (command, each)


def test_the_programs_of_the_manual_run_as_they_stand(windlass: Cluster) -> None:
    text = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
    token = windlass("token", "create", "--scope", "submit,read").stdout.strip()
    environ = {**CLEAN, "WINDLASS_TOKEN": token, "WINDLASS_URL": windlass.url}
    said = []
    for program in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        command = [sys.executable, "-W", "error", "-c", program]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
        assert not done.stderr
        said.append(done.stdout)
    assert said == ["5\n", "ssaldniw\n", "2500\n"]

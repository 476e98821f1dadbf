"""`windlass up` with everything in it: what it starts, what it keeps, and every way it and its processes may end."""

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID, uuid4

import httpx2
import psutil
import pytest

from tests.api.served import free_port
from tests.e2e.household import CLEAN, ROOT, WINDLASS, Up, gone, programs, up
from tests.eventually import eventually
from windlass.config import StoreConfig
from windlass.model import NewWorker, Status
from windlass.store.store import open_store


@pytest.fixture(scope="module")
def running(in_memory: Path) -> Iterator[Up]:
    """In a new folder, as the first time."""
    apps = ("--app", "examples.hello:app", "--app", "tests.worker.apps.queues:app")
    with up(*apps, folder=in_memory / "first") as made:
        yield made


def refused(*args: str, **environ: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [WINDLASS, "up", *args],
        env={**CLEAN, **environ},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Windlass is up" not in done.stdout
    steps = ("windlass: starting ", "windlass: preparing ")
    return done.returncode, [line for line in done.stderr.splitlines() if not line.startswith(steps)]


def test_it_serves_the_built_in_types_and_those_of_an_app(running: Up) -> None:
    assert {"add_numbers", "resize_image", "webhook", "greet"} <= set(running.report["types"])
    assert running.until(running.submit("add_numbers", a=2, b=3), "completed")["result"] == 5
    assert running.until(running.submit("greet", name="Ada"), "completed")["result"] == "Hello, Ada!"


def test_it_serves_the_queues_that_an_app_names(running: Up) -> None:
    assert running.until(running.submit("send_letter"), "completed")["result"] == "mail"
    (worker,) = running.asked("GET", "/v1/workers").json()["workers"]
    assert worker["queues"] == ["default", "mail", "reports"]


def test_it_says_what_it_does_until_it_is_up(running: Up) -> None:
    said = running.said
    steps = (
        "starting PostgreSQL, with a new data folder …",
        "preparing the database …",
        "starting the API and 1 worker …",
    )
    found = [said.index(f"windlass: {step}\n") for step in steps]
    assert found == sorted(found)


def test_it_is_up_within_seconds(running: Up) -> None:
    assert running.came_up_s < 5, "with a core to itself"
    assert running.report["up_after_s"] > 0


def test_it_is_ready_when_its_worker_has_declared_its_types(in_memory: Path, tmp_path: Path) -> None:
    """Though that takes a while: the first submission after the first yes is taken, and its payload checked."""
    (tmp_path / "slow_app.py").write_text(
        "import os, time\n"
        "from windlass import App\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "app = App()\n"
        "@app.job\n"
        "def slow(n: int) -> int: return n\n"
    )
    port = free_port()
    process = subprocess.Popen(
        [WINDLASS, "up", "--json", "--ephemeral", "--app", "slow_app:app", "--port", str(port)],
        env={**CLEAN, "WINDLASS_AUTH": "off", "TMPDIR": str(in_memory)},
        cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=20, trust_env=False) as client:

            def said() -> httpx2.Response | None:
                with suppress(httpx2.TransportError):
                    return client.get("/readyz")
                return None

            before = eventually(said, 60)
            assert before is not None
            assert (before.status_code, before.json()["detail"]) == (503, "workers: starting, 0 of 1")
            early = client.post("/v1/jobs", json={"type": "add_numbers", "payload": {"a": 1, "b": 2}})
            assert (early.status_code, early.json()["payload_checked"]) == (202, False), "built-in types are known"
            early = client.post("/v1/jobs", json={"type": "slow", "payload": {"n": 1}})
            assert early.status_code == 202, "its workers are starting"
            (tmp_path / "go").touch()
            eventually(lambda: (answer := said()) is not None and answer.status_code == 200, 60)
            wrong = client.post("/v1/jobs", json={"type": "slow", "payload": {"n": "x"}})
            assert (wrong.status_code, wrong.json()["field"]) == (422, "payload.n")
            assert client.post("/v1/jobs", json={"type": "slow", "payload": {"n": 1}}).json()["payload_checked"]
            assert process.stdout is not None
            assert "slow" in json.loads(process.stdout.readline())["types"]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_the_line_it_prints_works_when_pasted(running: Up) -> None:
    done = subprocess.run(
        ["bash", "-c", running.report["curl"]],
        env=CLEAN,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert '"status":"ready"' in done.stdout, done.stderr


def test_the_command_it_names_prints_a_link_that_logs_a_browser_in_once(running: Up) -> None:
    assert running.report["login"] is None, "it is no terminal that it prints to"
    made = subprocess.run(
        ["bash", "-c", running.report["log_in"]], env=CLEAN, cwd="/", capture_output=True, text=True, check=True
    )
    code = made.stdout.strip().partition("code=")[2]
    came = {"Origin": running.url, "Sec-Fetch-Site": "same-origin"}
    with httpx2.Client(base_url=running.url, headers=came) as browser:
        assert browser.get("/login", params={"code": code}).status_code == 200, "looking does not spend it"
        assert browser.post("/login", data={"code": code}).status_code == 303
        assert browser.get("/v1/auth/me").json()["scopes"] == ["admin"]
    with httpx2.Client(base_url=running.url, headers=came) as other:
        assert other.post("/login", data={"code": code}).status_code in {400, 401}


def test_it_encrypts_the_headers_of_webhooks_with_a_key_of_its_folder(running: Up) -> None:
    key = running.folder / "payload-key"
    assert (key.stat().st_uid, stat.S_IMODE(key.stat().st_mode)) == (os.geteuid(), 0o600)
    headers = {"X-Shop": "s3cr3t-v4lue"}
    job_id = running.submit("webhook", url="http://127.0.0.1:1/", headers=headers)
    assert running.job(job_id)["payload"]["headers"] == {"X-Shop": "***"}
    failed = running.until(job_id, "failed")
    assert "EgressRefused" in failed["error"]["type"], "its worker could read the headers"

    async def stored() -> str:
        async with open_store(StoreConfig(database_url=running.report["database"])) as store:
            job = await store.views.job(UUID(job_id))
            return "" if job is None else job.payload or ""

    assert '"X-Shop":"sealed:v1:' in asyncio.run(stored()).replace(" ", "")


def test_commands_find_the_address_and_the_secret_in_its_folder(running: Up) -> None:
    environ = {**CLEAN, "WINDLASS_DATA_DIR": str(running.folder)}
    words = [str(WINDLASS), "submit", "reverse_string", '{"text": "abc"}', "--wait"]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert "cba" in done.stdout, done.stderr


def test_the_secret_is_for_its_owner_alone_and_not_for_workers(running: Up) -> None:
    secret = running.folder / "auth-secret"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    everyone = [running.worker, *running.worker.children(recursive=True)]
    assert len(everyone) >= 3
    for each in everyone:
        shown = "\n".join([*each.cmdline(), *map(str, each.environ().items())])
        assert secret.read_text() not in shown
        assert "WINDLASS_AUTH" not in shown
    assert secret.read_text() not in "\n".join(map(str, running.api.environ().items()))


def test_an_api_that_is_killed_is_started_again_and_nobody_is_refused_meanwhile(running: Up) -> None:
    before = running.api
    before.kill()
    assert httpx2.get(f"{running.url}/readyz", timeout=20).status_code == 200
    eventually(lambda: "the API has ended by SIGKILL; it is started again" in running.said)
    assert running.api.pid != before.pid


def test_a_worker_that_is_killed_is_started_again_and_goes_on_with_its_jobs(running: Up) -> None:
    job = running.submit("default", duration_s=1.5)
    running.until(job, "running")
    running.worker.kill()
    done = running.until(job, "completed")
    assert (done["attempts"], done["failures"]) == (2, 1)
    assert "the worker has ended by SIGKILL; it is started again" in running.said


def test_a_port_that_is_taken_is_one_line_before_anything_is_started(running: Up, tmp_path: Path) -> None:
    port = running.url.rpartition(":")[2]
    code, said = refused("--port", port, "--data-dir", str(tmp_path / "other"))
    assert (code, len(said)) == (3, 1)
    assert f"127.0.0.1:{port} is taken by another program" in said[0]
    assert not (tmp_path / "other" / "postgres").exists()


def test_a_second_one_in_the_same_folder_names_the_first(running: Up) -> None:
    code, said = refused("--once", "--data-dir", str(running.folder))
    assert (code, len(said)) == (3, 1)
    assert str(running.process.pid) in said[0]


@pytest.mark.parametrize(
    ("args", "environ", "code", "says"),
    [
        ((), {"WINDLASS_AUTH_SECRET": "short"}, 3, "WINDLASS_AUTH_SECRET is too short"),
        (("--host", "0.0.0.0"), {"WINDLASS_AUTH": "off"}, 3, "WINDLASS_AUTH = off"),
        (("--host", "192.0.2.1"), {}, 3, "cannot listen on 192.0.2.1"),
        ((), {"WINDLASS_DATABASE_URL": "postgresql://u:secret@127.0.0.1:1/d"}, 6, "cannot be reached"),
        (("--ephemeral",), {"WINDLASS_DATABASE_URL": "postgresql://127.0.0.1:1/d"}, 3, "--ephemeral is for"),
    ],
)
def test_what_cannot_work_is_one_line(
    tmp_path: Path, args: tuple[str, ...], environ: dict[str, str], code: int, says: str
) -> None:
    found, said = refused("--port", "0", *args, WINDLASS_DATA_DIR=str(tmp_path), **environ)
    assert (found, len(said)) == (code, 1), said
    assert says in said[0]
    assert "secret@" not in said[0]


def test_an_app_that_cannot_be_imported_ends_it_with_its_name(data_dir: Path) -> None:
    code, said = refused("--port", "0", "--app", "examples.nowhere:app", "--data-dir", str(data_dir))
    assert code == 2
    assert said[-1] == (
        "windlass: app 'examples.nowhere:app' cannot be imported: "
        "ModuleNotFoundError: No module named 'examples.nowhere'"
    )
    assert not (data_dir / "address").exists()


@pytest.mark.parametrize(
    ("app", "says"),
    [
        ("nowhere:app", "app 'nowhere:app' cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("examples.hello", "'examples.hello' names no app; write module:attribute, such as tasks:app"),
    ],
)
def test_a_mistyped_app_is_told_before_anything_is_made_for_it(tmp_path: Path, app: str, says: str) -> None:
    folder = tmp_path / "data"
    assert refused("--port", "0", "--app", app, "--data-dir", str(folder)) == (2, [f"windlass: {says}"])
    assert not folder.exists()


def test_a_secret_that_was_cut_short_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "auth-secret").write_text("cut")
    code, said = refused("--port", "0", "--data-dir", str(tmp_path))
    assert (code, len(said)) == (3, 1)
    assert "auth-secret holds no secret" in said[0]


def test_a_secret_that_somebody_else_has_laid_there_is_not_used(tmp_path: Path) -> None:
    """A link stands for it here: without root nobody can make a file that is another's."""
    known = tmp_path / "known"
    known.write_text("x" * 48)
    (tmp_path / "auth-secret").symlink_to(known)
    code, said = refused("--port", "0", "--data-dir", str(tmp_path))
    assert (code, len(said)) == (3, 1)
    assert "auth-secret is not a file of yours" in said[0]


def test_the_first_signal_lets_jobs_finish_and_a_database_of_your_own_is_used_and_left_running(
    url: str, tmp_path: Path
) -> None:
    asyncio.run(_registered(url, NewWorker(uuid4(), "another's", 4, ["elsewhere"], ["echo"], uuid4())))
    with up(folder=tmp_path, WINDLASS_DATABASE_URL=url) as made:
        assert made.report["data_dir"] is None
        assert (made.report["workers"], made.report["other_workers"]) == (1, 1)
        assert "echo" not in made.report["types"]
        everyone = made.everyone()
        assert "postgres" not in programs(everyone)
        assert (tmp_path / "address").read_text().strip() == made.url
        job = made.submit("default", duration_s=1.5)
        made.until(job, "running")
        made.signal()
        assert made.ended() == 0
        assert "running jobs may finish" in made.said
        assert not (tmp_path / "address").exists()
        assert gone(everyone)
    assert asyncio.run(_stored(url, job)) is Status.COMPLETED


async def _registered(url: str, worker: NewWorker) -> None:
    async with open_store(StoreConfig(database_url=url)) as store:
        await store.upkeep.register(worker, lease_ttl_s=600)


async def _stored(url: str, job_id: str) -> Status:
    async with open_store(StoreConfig(database_url=url)) as store:
        return (await store.views.job(UUID(job_id))).status


def test_the_second_signal_gives_jobs_back_and_what_is_kept_is_there_again(data_dir: Path) -> None:
    with up(folder=data_dir) as made:
        done = made.submit("add_numbers", a=1, b=1)
        made.until(done, "completed")
        job = made.submit("default", duration_s=600)
        made.until(job, "running")
        everyone = made.everyone()
        made.worker.suspend()  # too busy to come to the first signal before the second
        made.signal()
        eventually(lambda: "running jobs may finish" in made.said)
        made.signal()
        eventually(lambda: "giving running jobs back" in made.said)
        made.worker.resume()
        assert made.ended() == 0
        assert gone(everyone)
        secret = (data_dir / "auth-secret").read_text()
    with up(folder=data_dir) as again:
        assert (data_dir / "auth-secret").read_text() == secret
        assert again.job(done)["status"] == "completed"
        found = again.until(job, "running")
        assert (found["attempts"], found["failures"]) == (2, 0)


def test_the_third_signal_ends_everything_at_once(data_dir: Path) -> None:
    with up(folder=data_dir) as made:
        made.until(made.submit("cpu_intensive", duration_s=600), "running")
        everyone = made.everyone()
        made.signal()
        eventually(lambda: "running jobs may finish" in made.said)
        made.signal()
        eventually(lambda: "giving running jobs back" in made.said)
        made.signal()
        assert made.ended() == 130
        eventually(lambda: gone(everyone), 20)


@pytest.mark.parametrize("how", [signal.SIGHUP, signal.SIGKILL])
def test_nothing_is_left_however_it_ends(data_dir: Path, how: signal.Signals) -> None:
    with up(folder=data_dir) as made:
        everyone = made.everyone()
        assert {"postgres", "python"} <= programs(everyone)
        made.signal(how)
        assert made.ended() == (-how if how is signal.SIGKILL else 0)
        eventually(lambda: gone(everyone), 20)


def test_jobs_of_an_up_that_was_killed_with_its_database_start_again_with_the_next_one(data_dir: Path) -> None:
    """Without waiting for the lease to end: here it has ten minutes."""
    with up(folder=data_dir, WINDLASS_LEASE_TTL_S="600") as made:
        job = made.submit("default", duration_s=600)
        made.until(job, "running")
        everyone = made.everyone()
        for one in everyone:
            one.suspend()  # or the guards, or who stops the database in order, would be quicker
        for one in everyone:
            one.kill()
        made.process.wait(10)
        # PostgreSQL does not start while the pid of the former one is in use, though it may be a zombie's.
        eventually(lambda: not any(psutil.pid_exists(one.pid) for one in everyone), 30)
    with up(folder=data_dir, WINDLASS_LEASE_TTL_S="600") as again:
        assert "the last `windlass up` was killed: the jobs of its 1 worker start again" in again.said
        found = again.until(job, "running")
        assert (found["attempts"], found["failures"]) == (2, 0)


def test_a_terminal_that_sends_ctrl_c_to_its_group_reaches_only_up_itself(running: Up) -> None:
    groups = {pid: os.getpgid(pid) for pid in (running.api.pid, running.worker.pid)}
    assert all(group == pid for pid, group in groups.items())


def test_without_auth_nobody_needs_a_token_and_the_demo_submits_a_mix_of_jobs(data_dir: Path) -> None:
    with up("--demo", folder=data_dir, WINDLASS_AUTH="off") as made:
        assert made.report["login"] is None
        assert not (data_dir / "auth-secret").exists()

        def lively() -> bool:
            stats = httpx2.get(f"{made.url}/v1/stats").json()
            return stats["total"] >= 60 and len({line["type"] for line in stats["lines"]}) >= 6

        eventually(lively, 30)
        assert "the demo waits" not in made.said


def test_a_port_chosen_by_the_system_is_told(running: Up) -> None:
    host, _, port = running.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=5):
        pass

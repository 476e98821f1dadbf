"""What a job prints and logs is kept with its attempt, and shown while it runs to those who follow it."""

import asyncio
from pathlib import Path

from tests.eventually import aeventually
from tests.worker.supervised import supervised
from windlass.cli.following import added
from windlass.config import StoreConfig
from windlass.model import Status
from windlass.store.protocol import RunningLog
from windlass.store.store import Store

HOW = {"in_thread": "in a thread", "on_loop": "on the loop", "in_child": "in a child"}


async def test_prints_and_logs_of_a_running_job_are_shown_to_those_who_follow_it(
    config: StoreConfig, store: Store, tmp_path: Path
) -> None:
    async with supervised(config, app="tests.worker.apps.talkative:app", threads=4) as crew:
        ids = {type_: await crew.enqueue(type_, file=str(tmp_path / "go")) for type_ in HOW}

        async def told(type_: str) -> RunningLog | None:
            return await store.views.follow_log(ids[type_])

        logs = {type_: await aeventually(lambda type_=type_: told(type_), 30) for type_ in HOW}  # type: ignore[misc]
        (tmp_path / "go").touch()
        for type_, job_id in ids.items():
            await crew.until(job_id, Status.COMPLETED)
            (attempt,) = await store.views.attempts(job_id)
            kept = attempt.log or ""
            assert logs[type_] == RunningLog(1, kept.rpartition("\n")[0])
            lines = [line.partition(" ")[2] for line in kept.splitlines()]
            assert lines == [
                f"PRINT: printed {HOW[type_]}",
                "PRINT: half a line, and its end",
                "PRINT: second line",
                f"WARNING shop: logged {HOW[type_]}",
                "PRINT: no line end",
            ]
            assert await store.views.follow_log(job_id) is None  # it has ended: its log is with its attempt


async def test_many_prints_at_once_stay_with_their_own_attempts(
    config: StoreConfig, store: Store, tmp_path: Path
) -> None:
    (tmp_path / "go").touch()
    async with supervised(config, app="tests.worker.apps.talkative:app", threads=4) as crew:
        ids = [await crew.enqueue(type_, file=str(tmp_path / "go")) for type_ in ("in_thread", "on_loop") * 10]
        await asyncio.gather(*(crew.until(job_id, Status.COMPLETED) for job_id in ids))
        for job_id in ids:
            (attempt,) = await store.views.attempts(job_id)
            assert (attempt.log or "").count("PRINT: printed") == 1


def test_only_what_is_new_is_printed() -> None:
    assert added("", "a\nb") == "a\nb"
    assert added("a\nb", "a\nb") == ""
    assert added("a\nb", "a\nb\nc") == "c"
    assert added("a\n… 1 line more", "a\n… 2 lines more") == "… 2 lines more"

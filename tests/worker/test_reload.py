"""`--reload`: workers are restarted when a source file of their app changes, and finish what they run."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.eventually import aeventually
from tests.worker.supervised import begun, supervised
from windlass.config import StoreConfig
from windlass.model import Status
from windlass.store.store import Store
from windlass.worker.sources import SourceWatch, imported_sources, stamps

pytestmark = pytest.mark.filterwarnings("default::ResourceWarning")

SOURCE = """
from pathlib import Path
from windlass import App
import {helper}

app = App("edited")

@app.job
def version() -> int:
    return {helper}.VERSION

@app.job
def wait(file: str, begun: str) -> int:
    Path(begun).write_text("1")
    while not Path(file).exists():
        pass
    return {helper}.VERSION
"""


@pytest.fixture
def edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes the module that the app imports; the app's name is its folder's."""
    name = f"app_{os.urandom(4).hex()}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "edited_app.py").write_text(SOURCE.format(helper="edited_helper"))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")

    def write(text: str) -> None:
        (folder / "edited_helper.py").write_text(text)

    write("VERSION = 1")
    return write


async def test_a_changed_module_of_the_app_is_run_by_new_workers_and_running_jobs_finish_in_the_old(
    config: StoreConfig, store: Store, tmp_path: Path, edited: Callable[[str], None]
) -> None:
    async with supervised(config, app="edited_app:app", reload=True) as crew:
        (worker,) = await crew.living()
        assert (await crew.until(await crew.enqueue("version"), Status.COMPLETED)).result == "1"
        runs = await crew.enqueue("wait", file=str(tmp_path / "go"), begun=str(tmp_path / "begun"))
        await begun(tmp_path / "begun")
        edited("VERSION = 2")
        later = await crew.enqueue("version")
        (tmp_path / "go").touch()
        done = await crew.until(runs, Status.COMPLETED)
        assert (done.worker_id, done.attempt, done.result) == (worker.id, 1, "1")
        await crew.replaced(worker)
        assert (await crew.until(later, Status.COMPLETED)).result in {"1", "2"}
        assert (await crew.until(await crew.enqueue("version"), Status.COMPLETED)).result == "2"
        crew.signals.raise_to(1)
    assert {one.stopped for one in await store.views.workers()} == {True}


async def test_a_source_that_cannot_be_imported_is_tried_again_when_it_has_changed(
    config: StoreConfig, edited: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    async with supervised(config, app="edited_app:app", reload=True) as crew:
        (worker,) = await crew.living()
        edited("VERSION = ")

        async def was_refused() -> bool:
            return "cannot run" in caplog.text

        await aeventually(was_refused, 30)
        edited("VERSION = 3")
        await crew.replaced(worker)
        assert (await crew.until(await crew.enqueue("version"), Status.COMPLETED)).result == "3"
    assert caplog.text.count("cannot run") == 1, "one start for each change, not one after the other"


async def test_a_job_that_does_not_end_in_time_is_given_back_and_begins_anew(
    config: StoreConfig, tmp_path: Path, edited: Callable[[str], None]
) -> None:
    async with supervised(config, app="edited_app:app", reload=True, drain_s=0.2) as crew:
        await crew.living()
        runs = await crew.enqueue("wait", file=str(tmp_path / "go"), begun=str(tmp_path / "begun"))
        await begun(tmp_path / "begun")
        (tmp_path / "begun").unlink()
        edited("VERSION = 2")
        await begun(tmp_path / "begun")
        (tmp_path / "go").touch()
        done = await crew.until(runs, Status.COMPLETED)
    assert (done.attempt, done.failures, done.result) == (2, 0, "2")


def test_what_is_installed_is_no_source_of_the_app() -> None:
    folders = {Path(file).parent.name for file in imported_sources()}
    assert "worker" in folders
    assert not {"site-packages", "_pytest", "asyncio", "windlass"} & folders


def test_files_that_were_written_added_or_removed_are_noticed_once(tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "notes.txt"):
        (tmp_path / name).write_text("1")
    watch = SourceWatch()
    watch.learn({file: list(stamp) for file, stamp in stamps([str(tmp_path)]).items()})
    assert watch.changed() == []
    (tmp_path / "a.py").write_text("22")
    (tmp_path / "b.py").unlink()
    (tmp_path / "c.py").write_text("1")
    (tmp_path / "notes.txt").write_text("22")
    assert [Path(file).name for file in watch.changed()] == ["a.py", "b.py", "c.py"]
    assert watch.changed() == []

"""What a worker makes of the app it is given."""

from uuid import UUID

import pytest

from tests.eventually import aeventually
from tests.worker.supervised import supervised
from windlass import App
from windlass.config import StoreConfig
from windlass.errors import Misconfigured
from windlass.model import Status
from windlass.worker.loading import BUILT_IN, Apps, load_apps, specs_in


async def test_handlers_enqueue_to_the_store_of_their_worker_whatever_their_app_was_made_for(
    config: StoreConfig,
) -> None:
    async with supervised(config, app="tests.worker.apps.elsewhere:app") as crew:
        for type_ in ("threaded", "on_the_loop", "on_a_loop_of_its_own", "isolated"):
            job = await crew.until(await crew.enqueue(type_, _max_attempts=1), Status.COMPLETED, Status.FAILED)
            assert job.error is None, type_
            await crew.until(UUID((job.result or "").strip('"')), Status.COMPLETED)


async def test_a_worker_of_an_app_without_jobs_says_so(config: StoreConfig, capfd: pytest.CaptureFixture[str]) -> None:
    said = ""

    async def warned() -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return "declares no jobs" in said

    async with supervised(config, app="tests.worker.apps.empty:app"):
        await aeventually(warned, 30)


async def test_a_worker_runs_the_jobs_of_several_apps(config: StoreConfig) -> None:
    async with supervised(config, app="tests.worker.apps.elsewhere:app,tests.worker.apps.second:app") as crew:
        (worker,) = await crew.living()
        assert {"threaded", "isolated", "double", "double_alone"} <= set(worker.types)
        for type_ in ("double", "double_alone"):
            job = await crew.until(await crew.enqueue(type_, n=4), Status.COMPLETED, Status.FAILED)
            assert (job.result or "").strip('"') == "8", job.error
        # What a job of one app enqueues through another goes to the same store.
        job = await crew.until(await crew.enqueue("double_alone", n=-1), Status.COMPLETED, Status.FAILED)
        await crew.until(UUID((job.result or "").strip('"')), Status.COMPLETED)


def test_an_app_named_twice_is_one() -> None:
    assert specs_in("a:app, b:app,a:app,") == ["a:app", "b:app"]
    spec = "tests.worker.apps.second:app"
    assert list(load_apps(f"{spec},{spec}").types) == ["double", "double_alone"]


def _greeter() -> App:
    app = App()

    @app.job(name="greet")
    def greet() -> None: ...

    return app


def test_two_apps_with_a_job_of_the_same_name_are_refused_by_both_names() -> None:
    with pytest.raises(Misconfigured, match=r"both a:app and b:app have a job named 'greet'"):
        Apps({"a:app": _greeter(), "b:app": _greeter()})


def test_a_built_in_job_gives_way_to_one_of_the_same_name() -> None:
    own = _greeter()
    for order in ((BUILT_IN, "a:app"), ("a:app", BUILT_IN)):
        made = {BUILT_IN: _greeter(), "a:app": own}
        assert Apps({spec: made[spec] for spec in order}).types["greet"] is own.types["greet"]


@pytest.mark.parametrize("wrong", ["tests/worker/apps/second.py:app", "./tests/worker/apps/second.py:app"])
def test_who_names_a_file_is_told_the_name_of_its_module(wrong: str) -> None:
    with pytest.raises(Misconfigured, match=r"names a file; write the module's name: tests\.worker\.apps\.second:app"):
        load_apps(wrong)


@pytest.mark.parametrize("wrong", ["", ",", "tests.worker.apps.second", "tests.worker.apps.second:app,nowhere"])
def test_what_names_no_app_is_told_with_what_would(wrong: str) -> None:
    with pytest.raises(Misconfigured, match="names no app; write module:attribute"):
        load_apps(wrong)

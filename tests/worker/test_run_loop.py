"""The loop of a worker goes on whatever handlers do to it; copies of its process that they fork do not."""

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest
import uvloop

from windlass.worker.control import EXIT_FAULT
from windlass.worker.run_loop import create_own_task, run_to_end
from windlass.worker.worker_loop import WorkerLoop

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop, WorkerLoop]
NewLoop = Callable[[], asyncio.AbstractEventLoop]


async def _raises(error: BaseException) -> None:
    raise error


async def _in_task(error: BaseException) -> str:
    with pytest.raises(type(error)):
        await asyncio.create_task(_raises(error))
    return "done"


async def _in_gather(error: BaseException) -> str:
    with pytest.raises(type(error)):
        await asyncio.gather(_raises(error), asyncio.sleep(0))
    return "done"


def _throw(error: BaseException) -> None:
    raise error


async def _in_callback(error: BaseException) -> str:
    asyncio.get_running_loop().call_soon(_throw, error)
    asyncio.get_running_loop().call_later(0.001, _throw, error)
    await asyncio.sleep(0.01)
    return "done"


async def _stopped(_: BaseException) -> str:
    for _turn in range(3):
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
    return "done"


@pytest.mark.parametrize("new_loop", LOOPS)
@pytest.mark.parametrize("misdeed", [_in_task, _in_gather, _in_callback, _stopped])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_loop_runs_its_work_to_the_end_whoever_ends_it_before(
    new_loop: NewLoop, misdeed: Callable[..., object], error: BaseException
) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert run_to_end(runner.get_loop(), misdeed(error)) == "done"  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [SystemExit(3), ValueError("as asked")])
def test_what_the_work_itself_raises_comes_out(error: BaseException) -> None:
    with asyncio.Runner() as runner, pytest.raises(type(error)):
        run_to_end(runner.get_loop(), _raises(error))


async def test_tasks_of_our_own_are_no_tasks_to_whoever_cancels_all() -> None:
    own = create_own_task(asyncio.get_running_loop(), asyncio.sleep(0, "done"))
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    assert await own == "done"


# In processes of their own: they end there. -----------------------------------------------------------------------------

_PROGRAM = """
import asyncio, concurrent.futures, multiprocessing, os, sys, threading
from windlass.worker.copies import end_copies_at
from windlass.worker.run_loop import run_to_end, run_until_stopped
from windlass.worker.worker_loop import WorkerLoop

class Struck:
    def cancelled(self):
        raise SystemExit(3)

async def forks():
    later = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.01, later.set_result, None)
    os.fork()
    await later

async def work():
    loop = asyncio.get_running_loop()
    {misdeed}
    os.write(1, b"went on\\n")

end_copies_at(run_until_stopped)
with asyncio.Runner(loop_factory={loop}) as runner:
    run_to_end(runner.get_loop(), work())
"""


def _run(misdeed: str, loop: str = "WorkerLoop") -> subprocess.CompletedProcess[str]:
    program = _PROGRAM.format(misdeed=textwrap.indent(textwrap.dedent(misdeed), "    ").strip(), loop=loop)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


def test_a_process_ends_when_what_struck_asyncio_has_cost_somebody_a_wake_up() -> None:
    ended = _run("""
        loop.call_soon(asyncio.futures._set_result_unless_cancelled, Struck(), None)
        await asyncio.sleep(0.1)
    """)
    assert (ended.returncode, ended.stdout) == (EXIT_FAULT, "")


@pytest.mark.parametrize("loop", ["WorkerLoop", "asyncio.new_event_loop"])
@pytest.mark.parametrize(
    "misdeed",
    [
        "await forks()",
        "await asyncio.gather(forks(), forks())",
        "loop.call_soon(os.fork); await asyncio.sleep(0.05)",
        "await asyncio.to_thread(os.fork)",
    ],
)
def test_a_forked_copy_ends_where_it_would_go_on_with_the_loop(misdeed: str, loop: str) -> None:
    ended = _run(misdeed, loop)  # returns once no copy holds its output open
    assert (ended.returncode, ended.stdout) == (0, "went on\n"), ended.stderr


def test_a_process_forked_by_multiprocessing_does_its_work() -> None:
    ended = _run("""
        beside = multiprocessing.get_context("fork").Process(target=os.write, args=(1, b"forked\\n"))
        beside.start()
        beside.join()
        assert beside.exitcode == 0
    """)
    assert (ended.returncode, ended.stdout) == (0, "forked\nwent on\n"), ended.stderr

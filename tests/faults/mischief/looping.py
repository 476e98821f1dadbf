"""Handlers that do something to the event loop."""

import asyncio
import contextlib
import gc
import time

from tests.faults.mischief.groups import KEPT, LONG_S, harmful, stubborn, survived


@survived
async def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.02)


@survived
async def stop_the_loop_a_hundred_times() -> None:
    for _ in range(100):
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)


@survived
async def stop_the_loop_from_a_thread() -> None:
    loop = asyncio.get_running_loop()
    await asyncio.to_thread(loop.stop)
    await asyncio.to_thread(loop.call_soon_threadsafe, loop.stop)
    await asyncio.sleep(0.02)


@survived
async def close_the_loop() -> None:
    asyncio.get_running_loop().close()


@harmful
async def close_the_loop_between_its_turns() -> None:
    """Succeeds if the loop is stopped just then."""
    loop = asyncio.get_running_loop()

    def close() -> None:
        for _ in range(1000):
            with contextlib.suppress(RuntimeError):
                loop.close()

    beside = asyncio.to_thread(close)
    waiting = asyncio.ensure_future(beside)
    while not waiting.done():
        loop.stop()
        await asyncio.sleep(0)


@survived
async def run_the_loop_inside_itself() -> None:
    work = asyncio.sleep(0)
    try:
        asyncio.get_running_loop().run_until_complete(work)
    finally:
        work.close()


@survived
async def set_another_loop() -> None:
    other = asyncio.new_event_loop()
    asyncio.set_event_loop(other)
    other.close()


@survived
async def fail_in_callbacks() -> None:
    for _ in range(100):
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)


@survived
async def break_the_task_factory() -> None:
    loop = asyncio.get_running_loop()
    loop.set_task_factory(lambda *_, **__: None)  # type: ignore[arg-type]


@survived
async def cancel_all_tasks() -> None:
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(0.02)


@survived
async def cancel_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0.02)


@harmful
async def cancel_every_task_there_is() -> None:
    for one in gc.get_objects():
        if isinstance(one, asyncio.Task):
            one.cancel()
    await asyncio.sleep(0.02)


@survived
async def make_ten_thousand_tasks() -> None:
    await asyncio.gather(*(asyncio.sleep(0.01) for _ in range(10_000)))


@survived
async def leave_a_thousand_tasks_behind() -> None:
    KEPT.extend(asyncio.create_task(asyncio.sleep(LONG_S)) for _ in range(1000))


@stubborn
async def spin_on_the_loop() -> None:
    while True:  # noqa: ASYNC110
        await asyncio.sleep(0)


@stubborn
async def swallow_cancellations() -> None:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(LONG_S)


@stubborn
async def block_the_loop() -> None:
    time.sleep(LONG_S)  # noqa: ASYNC251 - what must not be done


@stubborn
async def wait_for_itself() -> None:
    await asyncio.get_running_loop().create_future()

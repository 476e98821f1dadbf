"""The program of a worker process: `python -m windlass.worker.main CONTROL_FD SLOTS_FD PARENT_PID`.

Hears from its supervisor who it is, imports the app, says which types it knows, and once it is registered works until
it is told to stop. One of the few places that wire (the others: cli, app.py, guard, child): here ends what user code
may see of us, and begins what it runs in.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Final
from uuid import UUID

from windlass import telemetry
from windlass.bus.postgres import Listener, PostgresWaker
from windlass.bus.protocol import ExecutionLocks, NoExecutionLocks
from windlass.bus.waking import Waking
from windlass.config import Config, StoreConfig
from windlass.errors import Misconfigured, Unavailable
from windlass.model import Declared, Lease
from windlass.pauses import Pauses
from windlass.store.protocol import Ear, broadcast_channel, channel
from windlass.store.store import Store, open_store
from windlass.unhandled import log_unhandled
from windlass.worker.claimer import Post
from windlass.worker.control import Control, Message, config_heard
from windlass.worker.copies import end_copies_at
from windlass.worker.hook_runner import HookRunner
from windlass.worker.hooks import start_worker, stop_worker
from windlass.worker.isolation import Isolation
from windlass.worker.lanes import LoopLane, ThreadLane
from windlass.worker.loading import Apps, load_apps
from windlass.worker.loop_watch import LoopWatch
from windlass.worker.parentage import die_with, leave_signals_to_parent
from windlass.worker.registry import JobType
from windlass.worker.run_loop import run_to_end, run_until_stopped
from windlass.worker.slots import Slots
from windlass.worker.sources import imported_sources
from windlass.worker.worker import Worker
from windlass.worker.worker_loop import WorkerLoop

EXIT_REFUSED: Final = 2
_LINGER_S: Final = 2.0
# How soon the loop gets its turn among threads that compute: the claims and settlements of all wait for it.
_SWITCH_S: Final = 0.001
_log: Final = logging.getLogger("windlass.worker.main")  # run as __main__


def main() -> None:
    control_fd, slots_fd, parent_pid = map(int, sys.argv[1:4])
    die_with(parent_pid)
    leave_signals_to_parent()
    signal.set_wakeup_fd(-1)
    sys.setswitchinterval(_SWITCH_S)
    end_copies_at(run_until_stopped, LoopLane.work, ThreadLane.run_jobs, HookRunner.work)
    with asyncio.Runner(loop_factory=WorkerLoop) as runner:
        code = run_to_end(runner.get_loop(), serve(socket.socket(fileno=control_fd), Slots(slots_fd)))
        _end_soon(code)
    logging.shutdown()
    sys.exit(code)


async def serve(end: socket.socket, slots: Slots) -> int:
    control = await Control.open(end)
    start = await control.hear()
    if start is None or start["say"] != "start":
        return 1
    config = config_heard(start["config"])
    telemetry.configure(config.worker.log_level, config.worker.log_format, worker=start["name"])
    log_unhandled()
    try:
        app = load_apps(start["app"])
        app.use(config)  # what handlers and hooks enqueue goes where their jobs come from, on loops of their own, too
        await start_worker(app.worker_starts)
    except Misconfigured as problem:
        _log.error("%s", problem, exc_info=problem.__cause__)
        control.say("refuse", problem=str(problem))
        await asyncio.sleep(0)
        return EXIT_REFUSED
    # Again: an app may set logging up for itself when it is imported, and silence ours.
    telemetry.configure(config.worker.log_level, config.worker.log_format, worker=start["name"])
    telemetry.capture_prints()
    if not app.types:
        _log.warning("app %r declares no jobs: this worker finds none to run", start["app"])
    declared = [job.declared() for job in app.types.values()]
    queues = start["queues"] or app.queues
    control.say(
        "hello",
        types=[one.name for one in declared],
        digests=[one.digest for one in declared],
        queues=list(queues),
        unserved=app.unserved(queues),
        sources=imported_sources() if start.get("reload") else {},
    )
    return await _serve_app(app, declared, queues, start, config, slots, control)


async def _serve_app(
    app: Apps,
    declared: list[Declared],
    queues: Mapping[str, int],
    start: Message,
    config: Config,
    slots: Slots,
    control: Control,
) -> int:
    post = Post(UUID(start["worker_id"]), app.types, queues)
    async with AsyncExitStack() as stack:
        # Two connections of its own to claim and settle with; what handlers ask for must not use them up.
        own = replace(config.store, pool_min=2, pool_max=3)
        store = await _opened(stack, own)
        await _declare(store, declared)
        few = replace(config.store, pool_min=0)
        handlers = await stack.enter_async_context(open_store(few, beside=store))
        many = replace(few, pool_max=max(2, config.worker.threads))
        finishers = await stack.enter_async_context(open_store(many, beside=store))
        children = Isolation(start["app"], config, worker=start["name"], orderly=bool(app.worker_stops))
        if any(job.isolation == "process" and not _is_built_in(job) for job in app.types.values()):
            children.warm()
        stack.push_async_callback(children.aclose)
        pusher, popper = None, None
        locks: ExecutionLocks = NoExecutionLocks()
        if config.redis.redis_url is not None:
            from windlass.bus.redis.opening import open_link, open_locks  # noqa: PLC0415 - else nobody needs the driver
            from windlass.bus.redis.popping import open_popper  # noqa: PLC0415

            link = await stack.enter_async_context(open_link(config.redis))
            pusher, popper = await stack.enter_async_context(open_popper(link, post.worker_id))
            locks = await stack.enter_async_context(open_locks(config.redis, link, store))

        def ear() -> Ear:
            if listener.listening:
                return Ear.LISTENS
            return Ear.POPS if popper is not None and popper.popping else Ear.POLLS

        hints = store.hints.through(pusher, ear)
        waker = PostgresWaker(hints)
        stack.push_async_callback(waker.aclose)
        app.attach(Waking(handlers.intake, waker, handlers.hints), handlers.views)
        if (go := await control.hear()) is None or go["say"] != "go":
            return 0
        worker = Worker(
            post, config, slots=slots, control=control, claims=store.claims(), steps=handlers.claims(),
            finishes=finishers.claims(), hints=hints, waker=waker, children=children, locks=locks,
        )  # fmt: skip
        LoopWatch(worker.desk, slots, partial(_release, config.store)).start()
        if popper is not None:
            popper.on_hint = worker.hint
        children.progressed = worker.progressed
        children.entrusted = lambda run, child: slots.set_child(run.slot, child)
        names = [channel(post.worker_id), channel(post.hand_key), broadcast_channel(config.store.schema)]
        listener = Listener(config.store, names, worker.hear, presence=post.hand_key)
        await stack.enter_async_context(listener)
        gc.freeze()  # what is imported stays; to look through it for garbage takes 20 ms, in the middle of a job
        code = await worker.work()
        _end_soon(code, _LINGER_S + bool(app.worker_stops) * config.worker.stop_grace_s)
        await stop_worker(app.worker_stops)
        return code


def _is_built_in(job: JobType) -> bool:
    """Every worker of `windlass up` has these, and most never run the isolated one: its first job starts the template."""
    return str(job.fn.__module__).startswith("windlass.jobs.")


async def _opened(stack: AsyncExitStack, config: StoreConfig) -> Store:
    """The store; patient, because a database that restarts is no reason to give a worker up."""
    pauses = Pauses(0.1, 2.0)
    while True:
        try:
            return await stack.enter_async_context(open_store(config))
        except Unavailable as error:
            _log.warning("waiting for the database: %s", error)
            await pauses.wait()


async def _release(config: StoreConfig, leases: Sequence[Lease]) -> None:
    """Give leases back over a connection of the caller's loop."""
    async with open_store(replace(config, pool_min=0, pool_max=1)) as store:
        await store.claims().release(leases)


async def _declare(store: Store, types: list[Declared]) -> None:
    """Say what types there are, for those who submit to them from elsewhere; as patient."""
    pauses = Pauses(0.1, 2.0)
    while True:
        try:
            await store.upkeep.declare(types)
        except Unavailable as error:
            _log.warning("waiting for the database: %s", error)
            await pauses.wait()
        else:
            return


def _end_soon(code: int, within_s: float = _LINGER_S) -> None:
    """Not at the mercy of threads or hooks that never end, nor of a database that does not answer; exit handlers may
    run."""
    last = threading.Timer(within_s, os._exit, (code,))
    last.daemon = True
    last.start()


if __name__ == "__main__":
    main()

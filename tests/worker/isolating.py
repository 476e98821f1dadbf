"""Isolated jobs without a worker: attempts made up, run in real children, and looked at.

As a program (python -m tests.worker.isolating forked|started) it keeps children for tests that kill it: prints their pids and waits.
"""

import asyncio
import json
import sys
from typing import Any
from uuid import UUID

import psutil

from tests.eventually import aeventually
from tests.unit.values import lease
from tests.worker.apps.isolated import app as handlers
from windlass.clock import steady_s
from windlass.config import Config, StoreConfig, WorkerConfig
from windlass.lifecycle import Outcome, settle
from windlass.worker.isolation import Isolation
from windlass.worker.run import Run

APP = "tests.worker.apps.isolated:app"


def isolated(
    spare: int = 0, app: str = APP, store: StoreConfig | None = None, *, fork: bool = True, **settings: Any
) -> Isolation:
    config = Config(store=store or StoreConfig(), worker=WorkerConfig(**settings))
    return Isolation(app, config, spare=spare, fork=fork)


def children() -> list[psutil.Process]:
    """Every process below this one that is one of ours, templates and zombies too."""
    return [each for each in psutil.Process().children(recursive=True) if is_ours(each)]


def is_ours(process: psutil.Process) -> bool:
    ours = {"windlass.worker.child", "windlass.worker.template"}
    try:
        return process.status() == psutil.STATUS_ZOMBIE or bool(ours & set(process.cmdline()))
    except psutil.NoSuchProcess:
        return False


def template_of(isolation: Isolation) -> int:
    """The pid of its template."""
    template = isolation._forks._template
    assert template is not None
    return template.pid


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def a_run(type_: str, payload: Any = None, **over: Any) -> Run:
    over = {"job_id": UUID(int=7), "type": type_, "payload": json.dumps(payload or {}), **over}
    return Run(lease(**over), handlers.types[type_], steady_s(), 0)


async def ran(isolation: Isolation, type_: str, payload: Any = None, **over: Any) -> Outcome:
    return await isolation.run(a_run(type_, payload, **over))


async def result(isolation: Isolation, type_: str, payload: Any = None, **over: Any) -> Any:
    """The result as it would be stored."""
    run = a_run(type_, payload, **over)
    settlement = settle(run.lease, await isolation.run(run), jitter=0)
    assert settlement.error is None
    return None if settlement.result is None else json.loads(settlement.result)


def log_of(run: Run) -> str:
    return "" if run.log is None else run.log.text() or ""


async def begun(run: Run) -> str:
    """Wait for the first line a handler logs."""

    async def logged() -> str:
        return log_of(run)

    return await aeventually(logged)


async def main(*, fork: bool) -> None:
    isolation = isolated(spare=1, fork=fork)
    run = a_run("spin")
    running = asyncio.create_task(isolation.run(run))
    await begun(run)
    print(json.dumps([each.pid for each in children()]), flush=True)
    await running


if __name__ == "__main__":
    asyncio.run(main(fork=sys.argv[1] == "forked"))

"""`windlass worker`: a supervisor and its workers, until a signal."""

import logging
import os
import socket
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Annotated, Any, Final
from uuid import UUID, uuid4

import typer

from windlass import telemetry
from windlass.bus.postgres import Listener, PostgresWaker
from windlass.bus.redis import reaching_all
from windlass.cli.environs import secrets_of
from windlass.cli.notices import begin_serving, say
from windlass.cli.wiring import run, settings
from windlass.config import AuthConfig, Config
from windlass.errors import InvalidJob, Misconfigured
from windlass.extras import require
from windlass.leader.loop import Leader
from windlass.model import check_text
from windlass.store.protocol import channel
from windlass.store.store import Store, open_store
from windlass.unhandled import log_unhandled
from windlass.worker.berth import Crew
from windlass.worker.loading import BUILT_IN, check_specs, specs_in
from windlass.worker.parentage import die_with
from windlass.worker.signals import Interrupted, Signals
from windlass.worker.supervisor import supervise

_APP_REFUSED: Final = 2  # as a worker process ends that cannot import its app

Apps = Annotated[
    list[str],
    typer.Option(
        "--app",
        envvar="WINDLASS_APP",
        help="The app with the handlers, as module:attribute; several: repeated, or as a:app,b:app.",
        metavar="APP",
    ),
]
Threads = Annotated[int | None, typer.Option(help="Threads of each worker process (also WINDLASS_THREADS).", min=1)]
Processes = Annotated[int | None, typer.Option(help="Worker processes (also WINDLASS_PROCESSES).", min=1)]
Workers = Annotated[
    str | None,
    typer.Option(
        help="Worker processes by their threads, as 4,8; instead of --threads and --processes (also WINDLASS_WORKERS).",
        metavar="THREADS",
    ),
]
Queues = Annotated[
    str | None,
    typer.Option(
        help="Queues served, with weights, as a,b=3,'tenant-*'; '*': all; not given: those that the types of the app name "
        "(also WINDLASS_QUEUES).",
        metavar="QUEUES",
    ),
]
Name = Annotated[
    str | None, typer.Option(envvar="WINDLASS_NAME", help="What the workers are called; else by this host.")
]
Under = Annotated[int | None, typer.Option(hidden=True, help="End with this process, our parent.")]

Reload = Annotated[
    bool, typer.Option("--reload", help="For development: restart workers when a source file of the app changes.")
]
SupervisorId = Annotated[str | None, typer.Option(hidden=True, help="The id of the supervisor; else a new one.")]


def worker(
    app: Apps,
    threads: Threads = None,
    processes: Processes = None,
    workers: Workers = None,
    queues: Queues = None,
    name: Name = None,
    reload: Reload = False,
    under: Under = None,
    supervisor: SupervisorId = None,
) -> None:
    """Run jobs until a signal.

    The first Ctrl-C or TERM lets running jobs finish (WINDLASS_DRAIN_S), the second gives them back, the third exits.

    Examples: windlass worker --app tasks:app · windlass worker --app tasks:app --app windlass.jobs:app --processes 2 ·
    windlass worker --app tasks:app --workers 4,8 · windlass worker --app tasks:app --reload
    """
    begin_serving()
    if under is not None:
        die_with(under)
    config = settings(warn=under is None, queues=queues, **process_options(threads, processes, workers))
    telemetry.configure(config.worker.log_level, config.worker.log_format)
    log_unhandled()
    for secret in secrets_of(AuthConfig):  # jobs are other people's code: what opens the API is not for them to find
        os.environ.pop(secret, None)
    name = name or socket.gethostname()
    try:
        check_text("--name", name, 100)
    except InvalidJob as problem:
        raise Misconfigured(str(problem)) from None
    if config.redis.redis_url is not None:
        require("WINDLASS_REDIS_URL", "redis")
    specs = checked_specs(app)
    if BUILT_IN in specs:
        require("the built-in job types", "jobs")
    if reload:  # compiled code of a file that changed twice within a second would be the first version's
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    crew = Crew(config, ",".join(specs), name, UUID(supervisor) if supervisor else uuid4(), reload=reload)
    raise typer.Exit(run(serve(crew)))


def checked_specs(texts: Iterable[str]) -> list[str]:
    """The apps that the options name, `a:app,b:app` each; one that cannot be there is told before anything is started."""
    specs = [spec for text in texts for spec in specs_in(text)]
    try:
        check_specs(specs)
    except Misconfigured as problem:
        say(str(problem), logging.ERROR)
        raise typer.Exit(_APP_REFUSED) from None
    return specs


def process_options(threads: int | None, processes: int | None, workers: str | None) -> dict[str, Any]:
    """The settings that say how many processes there are, and how wide. An option overrules each variable that says the same."""
    if threads is None and processes is None:
        return {"workers": workers}
    if workers is not None:
        raise Misconfigured("--workers says both: leave out --threads and --processes")
    return {"threads": threads, "processes": processes, "workers": ""}


async def serve(crew: Crew) -> int:
    """Wire the supervisor to the database, and run it. Returns the exit code."""
    config = crew.config
    async with Signals() as signals, AsyncExitStack() as stack:
        # Pools of their own: a heartbeat must not wait behind a chore.
        own = replace(config.store, pool_min=1, pool_max=3)
        chores = replace(config.store, pool_min=0, pool_max=4)
        try:
            store = await signals.unless_signalled(stack.enter_async_context(open_store(own, needs="worker")))
            leaders = await stack.enter_async_context(open_store(chores, beside=store))
        except Interrupted:
            return 0
        await _check_lead(config, leaders)
        waker = PostgresWaker(await stack.enter_async_context(reaching_all(store.hints, config.redis)))
        stack.push_async_callback(waker.aclose)
        leader = Leader(
            leaders.upkeep,
            leaders.claims(),
            waker,
            holder=crew.supervisor_id,
            lease=config.lease,
            placement=config.placement,
            rolls=config.worker.lead == "on",
        )
        return await supervise(
            crew,
            store.upkeep,
            store.claims(),
            waker,
            signals,
            listen=lambda look: Listener(config.store, [channel(crew.supervisor_id)], lambda *_: look()),
            lead=None if config.worker.lead == "off" else leader.run,
        )


async def _check_lead(config: Config, store: Store) -> None:
    """Refuse to lead as a role that could not make partitions: those that are made last for days, and nobody would look by then."""
    if config.worker.lead == "on" and (problem := await store.upkeep.partition_problem()):
        raise Misconfigured(
            f"{problem}; or let another lead: WINDLASS_LEAD=off, or without-partitions with `windlass migrate partitions` run "
            "by the owner every day"
        )

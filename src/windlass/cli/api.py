"""`windlass api`: the HTTP API, until a signal. Any number of them may serve one database."""

import asyncio
import gc
import logging
import os
import socket
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

import typer

import windlass
from windlass import telemetry
from windlass.auth.gate import check_start
from windlass.bus.postgres import PostgresWaker
from windlass.bus.protocol import Shortcuts
from windlass.bus.remembering import Remembering
from windlass.bus.waking import Waking
from windlass.cli.listening import listening
from windlass.cli.notices import begin_serving
from windlass.cli.wiring import run, settings
from windlass.cli.worker import Under
from windlass.config import Config
from windlass.extras import require
from windlass.model import Declared
from windlass.store.protocol import Hints, Intake
from windlass.store.store import Store, open_store
from windlass.unhandled import log_unhandled
from windlass.worker.loops import cancelled, first
from windlass.worker.parentage import die_with
from windlass.worker.signals import Interrupted, Signals

if TYPE_CHECKING:
    from windlass.api.server import Server

_log: Final = logging.getLogger(__name__)

Host = Annotated[str | None, typer.Option(help="The address to listen on (also WINDLASS_HOST).")]
Port = Annotated[
    int | None, typer.Option(help="The port to listen on; 0: any free one (also WINDLASS_PORT).", min=0, max=65_535)
]
Fd = Annotated[int | None, typer.Option(hidden=True, help="A socket that listens already, by its descriptor.")]


Awaits = Annotated[
    str | None, typer.Option(hidden=True, help="Not ready before this supervisor has so many workers: ID:COUNT.")
]


def api(host: Host = None, port: Port = None, fd: Fd = None, under: Under = None, awaits: Awaits = None) -> None:
    """Serve the HTTP API until a signal.

    Needs WINDLASS_DATABASE_URL, and WINDLASS_AUTH_SECRET or a pair of keys. The first Ctrl-C or TERM lets requests in
    progress finish (WINDLASS_API_DRAIN_S), the second ends them.

    Examples: windlass api · windlass api --host 0.0.0.0 --port 80
    """
    begin_serving()
    if under is not None:
        die_with(under)
    require("the API", "server")
    config = settings(warn=under is None, host=host, port=port)
    telemetry.configure(config.worker.log_level, config.worker.log_format)
    log_unhandled()
    check_start(config)
    if config.auth.auth == "off" and under is None:
        _log.warning("WINDLASS_AUTH=off: whoever reaches %s:%d may do everything", config.api.host, config.api.port)
    with listening(config.api) if fd is None else socket.socket(fileno=fd) as door:
        raise typer.Exit(run(serve(config, door, awaits)))


async def serve(config: Config, door: socket.socket, awaits: str | None = None) -> int:
    """Wire the API to the database, and serve. Returns the exit code."""
    from windlass.api.app import build, opened  # noqa: PLC0415 - the other commands do without a web server
    from windlass.api.readiness import AwaitedWorkers  # noqa: PLC0415
    from windlass.api.server import Server  # noqa: PLC0415

    async with Signals("requests in progress are cut") as signals, AsyncExitStack() as stack:
        # A pool for looking, one for all else: slow lists must not keep submissions waiting.
        bounded = config.store.for_callers()
        looks = replace(bounded, pool_min=0, pool_max=max(2, bounded.pool_max // 2))
        try:
            store = await signals.unless_signalled(stack.enter_async_context(open_store(bounded, needs="api")))
            looking = await stack.enter_async_context(open_store(looks, beside=store))
        except Interrupted:
            return 0
        intake, shortcuts = await open_intake(config, store, stack)
        supervisor_id, _, count = (awaits or "").partition(":")
        awaited = AwaitedWorkers(UUID(supervisor_id), int(count)) if awaits else None
        parts = await stack.enter_async_context(
            opened(intake, looking.views, store.accounts, config, shortcuts, built_in=built_in_types(), awaited=awaited)
        )
        server = Server(build(parts), parts, door)
        hurrying = asyncio.create_task(_hurry(server, signals))
        stack.push_async_callback(cancelled, hurrying)
        # What is imported stays: looking through it for garbage again and again cost a twentieth of every submission.
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        # Large bodies are worked on in a thread, which would keep the loop waiting 5 ms at each of its steps.
        sys.setswitchinterval(0.001)
        async with server:
            facts = {"address": server.url, "pid": os.getpid(), "version": windlass.__version__}
            _log.info("API started", extra=facts)
            await first(signals.reached(1), server.ended())
            _log.info("API draining: requests in progress may finish", extra={"drain_s": config.api.api_drain_s})
        _log.info("API stopped", extra=facts)
        return int(not signals.stage)


async def open_intake(config: Config, store: Store, stack: AsyncExitStack) -> tuple[Intake, Shortcuts]:
    """An intake that wakes workers and uses the shortcuts there are, until the stack is closed."""
    shortcuts, hints = await _shortcuts(config, store, stack)
    waker = PostgresWaker(hints)
    stack.push_async_callback(waker.aclose)
    intake: Intake = Waking(store.intake, waker, hints)
    if config.redis.redis_url is not None:  # else there is nothing to ask, and no submission pays for asking
        intake = Remembering(intake, shortcuts, bytes_max=config.store.payload_bytes_max)
    return intake, shortcuts


def built_in_types() -> list[Declared]:
    """Known without any worker. Their libraries are imported when they run, and not here."""
    from windlass.jobs import app  # noqa: PLC0415 - nobody else needs them

    return [job.declared() for job in app.types.values()]


async def _shortcuts(config: Config, store: Store, stack: AsyncExitStack) -> tuple[Shortcuts, Hints]:
    """Those through Redis, if there is to be one; and hints that go the same way where they must."""
    if config.redis.redis_url is None:
        return Shortcuts(), store.hints
    from windlass.bus.redis.opening import open_link, open_shortcuts  # noqa: PLC0415 - else nobody needs the driver
    from windlass.bus.redis.popping import RedisPusher  # noqa: PLC0415 - else nobody needs the driver

    link = await stack.enter_async_context(open_link(config.redis))
    shortcuts = await stack.enter_async_context(open_shortcuts(config.redis, link, store))
    return shortcuts, store.hints.through(RedisPusher(link))


async def _hurry(server: "Server", signals: Signals) -> None:
    await signals.reached(2)
    server.hurry()

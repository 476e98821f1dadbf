"""`windlass up`: everything on this machine until Ctrl-C: PostgreSQL, the API, workers with the built-in job types.

It is one process that runs no jobs and answers no requests: it starts the others (household.py), tells when they can be
used, and stops them in order.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import typer

from windlass.auth.gate import check_start
from windlass.auth.keyring import keyring
from windlass.auth.tokens import Signer
from windlass.bus.protocol import NoWaker
from windlass.cli import banner
from windlass.cli.development import DevelopmentServers, development_servers
from windlass.cli.environs import for_api, for_worker
from windlass.cli.home import PAYLOAD_KEY, announced, former_supervisor, note_supervisor, secret_file
from windlass.cli.household import Household, Kept, NeverUp
from windlass.cli.listening import listening, port_of, url_of
from windlass.cli.login import link
from windlass.cli.notices import begin_serving, say
from windlass.cli.output import counted
from windlass.cli.wiring import database, home, run, settings
from windlass.cli.worker import Processes, Queues, Reload, Threads, Workers, checked_specs, process_options
from windlass.clock import steady_s
from windlass.config import AuthConfig, Config, redacted
from windlass.embedded.binaries import find_postgres, find_valkey
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.errors import Misconfigured, Unavailable
from windlass.extras import Extra, require
from windlass.store import migrate
from windlass.store.connections import connect
from windlass.store.store import Store, open_store
from windlass.worker.aftermath import End, see_off
from windlass.worker.loading import BUILT_IN
from windlass.worker.parentage import started_ticks

_LOOK_S: Final = 0.05
_ANSWER_S: Final = 5.0
_UP_WITHIN_S: Final = 60.0
_HEALTHY_WITHIN_S: Final = 2.0  # a start does not wait longer for the whole store to be read
_QUEUES_TOLD: Final = 100
_STOP_S: Final = 10.0  # on top of what jobs get to finish in, and of a lease

DataDir = Annotated[
    Path | None,
    typer.Option(help="The folder of the embedded database, the secret and the address (also WINDLASS_DATA_DIR)."),
]
Ephemeral = Annotated[bool, typer.Option("--ephemeral", help="Keep the data only while it runs.")]
Host = Annotated[str | None, typer.Option(help="The address the API listens on (also WINDLASS_HOST).")]
Port = Annotated[
    int | None,
    typer.Option(help="The port the API listens on; 0: any that is free (also WINDLASS_PORT).", min=0, max=65_535),
]
MoreApps = Annotated[
    list[str] | None,
    typer.Option(
        "--app",
        envvar="WINDLASS_APP",
        help="An app of yours, as module:attribute, beside the built-in types; may be repeated.",
        metavar="APP",
    ),
]
Demo = Annotated[bool, typer.Option("--demo", help="Submit a lively mix of jobs all the while.")]
Redis = Annotated[bool, typer.Option("--redis", help="Start a Valkey as well, and use it.")]
Mail = Annotated[
    bool | None,
    typer.Option(
        "--mail/--no-mail",
        help="Catch mail instead of sending it; without either, where WINDLASS_SMTP_HOST is not set.",
        show_default=False,
    ),
]
Once = Annotated[bool, typer.Option("--once", help="Only prepare the database, report, and stop again.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for, and where it is. `secrets`: by setting, the files of secrets of our own making."""

    config: Config
    folder: Path
    door: socket.socket | None
    secrets: Mapping[str, Path]
    apps: str
    demo: bool
    as_json: bool
    reload: bool
    beside: DevelopmentServers = field(default_factory=DevelopmentServers)

    @property
    def url(self) -> str:
        return url_of(self.config.api.host, self.config.api.port)


@dataclass(frozen=True, slots=True)
class Story:
    """What is told once everybody is up. `supervisor_id`: whose workers are ours; `leaving`: undone at the end."""

    plan: Plan
    report: dict[str, Any]
    supervisor_id: UUID
    leaving: contextlib.ExitStack


def up(
    app: MoreApps = None,
    host: Host = None,
    port: Port = None,
    threads: Threads = None,
    processes: Processes = None,
    workers: Workers = None,
    queues: Queues = None,
    data_dir: DataDir = None,
    ephemeral: Ephemeral = False,
    redis: Redis = False,
    mail: Mail = None,
    reload: Reload = False,
    demo: Demo = False,
    once: Once = False,
    as_json: Json = False,
) -> None:
    """Start PostgreSQL, the API and workers on this machine, and run until Ctrl-C.

    The first Ctrl-C or TERM lets running jobs finish (WINDLASS_DRAIN_S), the second gives them back, the third ends
    everything at once. With WINDLASS_DATABASE_URL that database is used, and none is started.

    Examples: windlass up · windlass up --app tasks:app --port 9000 · windlass up --ephemeral --demo ·
    windlass up --workers 4,8 --redis · windlass up --app tasks:app --reload
    """
    begin_serving()
    # TERM ends what follows like Ctrl-C, so that the database is stopped and not merely orphaned.
    # So does INT where whoever started us ignores it, as scripts do for what they run in the background.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    config = settings(host=host, port=port, queues=queues, **process_options(threads, processes, workers))
    if redis and (once or config.redis.redis_url is not None):
        said = "--once" if once else "WINDLASS_REDIS_URL"
        raise Misconfigured(f"--redis starts a Valkey of its own: leave it out, or {said}")
    if not once:
        _require_extras(config, redis=redis)
    apps = ",".join([BUILT_IN, *checked_specs(app or [])])
    try:
        with home(config, data_dir, ephemeral=ephemeral) as folder:
            config, secrets = (config, {}) if once else _with_secrets(config, folder)
            door = None if once else _door(config)
            if door is not None:
                config = replace(config, api=replace(config.api, port=port_of(door)))
            plan = Plan(config, folder, door, secrets, apps, demo, as_json, reload)
            if config.store.database_url is None and not once:
                first = "" if (folder / "postgres").exists() else ", with a new data folder"
                say(f"starting PostgreSQL{first} …")
            with (
                database(config, folder) as (found, server),
                development_servers(found, folder, mail=False if once else mail, redis=redis) as (found, beside),
            ):
                _run(replace(plan, config=found, beside=beside), server)
    except KeyboardInterrupt:
        banner.stopped(as_json=as_json)


def _require_extras(config: Config, *, redis: bool) -> None:
    """All that are missing in one line, rather than one after the other."""
    extras: list[Extra] = ["server", "jobs"]
    if redis or config.redis.redis_url is not None:
        extras.append("redis")
    if config.store.database_url is None and config.store.postgres_bin_dir is None:
        extras += _embedded(find_postgres)
    if redis:
        extras += _embedded(find_valkey)
    require("`windlass up`", *extras)


def _embedded(find: Callable[[], object]) -> list[Extra]:
    """The extra that brings a program, if it is not there."""
    try:
        find()
    except Misconfigured:
        return ["embedded"]
    return []


def _with_secrets(config: Config, folder: Path) -> tuple[Config, dict[str, Path]]:
    """The configuration with something to sign and to encrypt with: where nothing is set, secrets that the folder keeps."""
    files: dict[str, Path] = {}
    auth, store = config.auth, config.store
    if auth.auth == "on" and auth.auth_algorithm == "HS256" and auth.auth_secret is None:
        files["auth_secret"] = file = secret_file(folder)
        auth = replace(auth, auth_secret=file.read_text(encoding="utf-8").strip())
    # Only with a database of our own: workers elsewhere could not decrypt what is stored in another.
    if store.database_url is None and store.payload_keys is None:
        files["payload_keys"] = file = secret_file(folder, PAYLOAD_KEY)
        store = replace(store, payload_keys=file.read_text(encoding="utf-8").strip())
    return replace(config, auth=auth, store=store), files


def _door(config: Config) -> socket.socket:
    check_start(config)
    return listening(config.api)


def _run(plan: Plan, server: EmbeddedPostgres | None) -> None:
    if plan.door is not None:
        say("preparing the database …")
    report = run(prepare(plan.config, healthy_within_s=None if plan.door is None else _HEALTHY_WITHIN_S))
    report |= {"data_dir": None if server is None else str(server.data_dir)}
    if plan.door is None:
        banner.show(report, as_json=plan.as_json)
        return
    try:
        with contextlib.ExitStack() as leaving:
            story = Story(plan, report, uuid4(), leaving)
            if server is not None:
                _succeed(plan, story.supervisor_id)
            stage = run(_live(story, plan.door, server))
    except NeverUp as problem:
        # Who refuses to start has said why, in its own line.
        if problem.code in {2, Misconfigured.exit_code, Unavailable.exit_code}:
            raise typer.Exit(problem.code) from None
        raise _unexplained(str(problem)) from None
    banner.stopped(as_json=plan.as_json)
    if stage >= 3:
        raise typer.Exit(128 + signal.SIGINT)


def _succeed(plan: Plan, supervisor_id: UUID) -> None:
    """Give back what the workers of the `up` before us held, if it was killed together with its database.

    We own the data folder, so it is dead, and its workers died with it: their jobs need not wait for the leases to end.
    """
    former = former_supervisor(plan.folder)
    if former is not None and (count := run(_give_back(plan.config, former))):
        say(f"the last `windlass up` was killed: the jobs of its {counted(count, 'worker')} start again")
    note_supervisor(plan.folder, supervisor_id)


async def _give_back(config: Config, former: UUID) -> int:
    """Returns how many workers of that supervisor nobody had buried."""
    async with open_store(replace(config.store, pool_min=0, pool_max=2)) as store:
        workers = await store.views.workers()
        # Nobody knows which of their jobs had begun, and the machine may have lost power: no start is charged.
        ends = [
            End(worker.id, crashed=False, begun=None, name=worker.name)
            for worker in workers
            if worker.supervisor_id == former and worker.died_at is None
        ]
        if ends:
            await see_off(ends, store.upkeep, store.claims(), NoWaker())
        return len(ends)


def _unexplained(what: str) -> Unavailable:
    error = Unavailable(what)
    error.add_note("WINDLASS_LOG_LEVEL=debug may show why")
    return error


async def _live(story: Story, door: socket.socket, server: EmbeddedPostgres | None) -> int:
    """Have everybody, until they are sent away. Returns how many signals it took."""
    plan, config = story.plan, story.plan.config
    say(f"starting the API and {counted(len(config.worker.widths), 'worker')} …")
    supervisor_id = str(story.supervisor_id)
    api = ["api", "--fd", str(door.fileno()), "--awaits", f"{supervisor_id}:{len(config.worker.widths)}"]
    worker = ["worker", "--app", plan.apps, "--supervisor", supervisor_id, *(["--reload"] if plan.reload else [])]
    household = Household(
        [
            Kept("the API", api, for_api(config, plan.secrets), [door.fileno()]),
            Kept("the worker", worker, for_worker(config, plan.secrets)),
        ],
        drain_s=config.worker.drain_s,
        patience_s=max(config.worker.drain_s, config.api.api_drain_s) + config.lease.lease_ttl_s + _STOP_S,
    )
    async with plan.beside.running():
        await household.live(_tell(story, household), _end_of(server))
    return household.stage


async def _end_of(server: EmbeddedPostgres | None) -> None:
    """Goes on until the embedded database is gone: then say so instead of sitting there."""
    while server is None or server.alive:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.2)
    error = Unavailable(f"the embedded PostgreSQL has ended; its log is {server.log}")
    error.add_note("start again: what was stored is kept")
    raise error


async def _tell(story: Story, household: Household) -> None:
    """Wait until everybody can be used, say so, and keep them busy if that was asked for."""
    plan = story.plan
    try:
        async with asyncio.timeout(_UP_WITHIN_S):
            types = await _all_up(plan.config, plan.url, story.supervisor_id)
    except TimeoutError:
        raise _unexplained(f"the API and the worker were not up after {_UP_WITHIN_S:g} s") from None
    household.is_up = True
    story.leaving.enter_context(announced(plan.folder, plan.url))  # not before: types would be unknown still
    signer = _signer(plan.config.auth)
    # Only where a person looks: what goes to a file or a program is kept, and read by others.
    shown = signer if sys.stdout.isatty() else None
    told = story.report | {
        "url": plan.url,
        "auth": plan.config.auth.auth,
        "login": None if shown is None else link(plan.url, shown),
        "log_in": None if signer is None else f"{banner.command(plan.folder)} login",
        "workers": len(plan.config.worker.widths),
        "threads": list(plan.config.worker.widths),
        "types": sorted(types),
        "folder": str(plan.folder),
        **plan.beside.report(plan.url),
        "up_after_s": round(_age_s(), 2),
    }
    banner.show(told, as_json=plan.as_json, curl=_curl(plan, shown))
    if plan.demo:
        from windlass.cli.demo import go_on  # noqa: PLC0415

        await go_on(plan.url, signer)


def _signer(auth: AuthConfig) -> Signer | None:
    """What signs tokens here, if anything does: nothing is needed without auth, and public keys alone only verify."""
    return Signer.of(auth) if auth.auth == "on" and keyring(auth).signs else None


def _curl(plan: Plan, signer: Signer | None) -> str:
    if plan.config.auth.auth == "off":
        return banner.curl_line(plan.url, None)
    if "auth_secret" in plan.secrets:
        return banner.curl_line(plan.url, f"$({banner.command(plan.folder)} token create --scope submit,read)")
    # No command would find out what to sign with: the token itself, or a place for one.
    token = "$TOKEN" if signer is None else signer.sign("curl", ["submit", "read"], plan.config.auth.token_ttl_s)
    return banner.curl_line(plan.url, token)


def _age_s() -> float:
    """How long this process is there: what a newcomer has waited, the interpreter's own start included."""
    began_s = started_ticks(os.getpid()) / os.sysconf("SC_CLK_TCK")
    return steady_s() - began_s if began_s else time.process_time()


async def _all_up(config: Config, url: str, supervisor_id: UUID) -> set[str]:
    """Wait for the API, which waits for our workers and what they declare; the types of jobs they run."""
    while not await _is_ready(url):  # noqa: ASYNC110 - nor of that
        await asyncio.sleep(_LOOK_S)
    async with open_store(replace(config.store, pool_min=0, pool_max=2)) as store:
        workers = await store.views.workers()
        return {name for worker in workers if worker.supervisor_id == supervisor_id for name in worker.types}


async def _is_ready(url: str) -> bool:
    """Whether the API takes requests. The socket is open all the time, so a connection alone says nothing."""
    host, port = urlsplit(url).hostname, urlsplit(url).port
    try:
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_connection(host, port)
            with contextlib.closing(writer):
                writer.write(f"GET /readyz HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
                return b" 200 " in await reader.readline()
    except (OSError, TimeoutError, ValueError):
        return False


async def prepare(config: Config, *, healthy_within_s: float | None) -> dict[str, Any]:
    """Migrate, then look at what a newcomer would ask about. Nothing here takes longer because there is much in the
    store: what cannot be told in time must not keep the processes from starting."""
    connection = await connect(config.store, direct=True)
    try:
        applied = await migrate.upgrade(connection, config.store.schema, ahead=config.store.partitions_ahead)
        version = await connection.fetchval("show server_version")
    finally:
        await connection.close(timeout=5)
    async with open_store(replace(config.store, pool_min=1, pool_max=2)) as store:
        await store.upkeep.roll_partitions()
        living = [worker for worker in await store.views.workers() if worker.alive]
        statuses = (await store.views.summary(lines=0)).statuses
        return {
            "database": redacted(config.store.database_url or ""),
            "postgresql": version,
            "schema": config.store.schema,
            "migrations_applied": applied,
            "jobs": {status.value: n for status, n in statuses.items()},
            "queues": [queue.name for queue in await store.views.queues(limit=_QUEUES_TOLD)],
            "workers": len(living),
            "other_workers": len(living),
            "healthy": await _is_healthy(store, healthy_within_s),
        }


async def _is_healthy(store: Store, within_s: float | None) -> bool | None:
    """Whether no job is lost, doubled or miscounted. None: not known, for there are too many to read all of them in
    time."""
    try:
        async with asyncio.timeout(within_s):
            return (await store.views.check()).clean
    except (TimeoutError, Unavailable):
        return None

"""`windlass up`: everything on this machine, with an embedded PostgreSQL, until Ctrl-C.

For now: the database, its schema and a report of where things stand. Workers and the HTTP API join it.
"""

import json
import signal
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from windlass.cli.wiring import database, run, settings
from windlass.config import Config, redacted
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.errors import Unavailable
from windlass.model import Status
from windlass.store import migrate
from windlass.store.postgres import connect
from windlass.store.store import open_store

DataDir = Annotated[
    Path | None, typer.Option(help="Where the embedded database keeps its data (also WINDLASS_DATA_DIR).")
]
Ephemeral = Annotated[bool, typer.Option("--ephemeral", help="Keep the data only while it runs.")]
Once = Annotated[bool, typer.Option("--once", help="Report and stop again.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def up(data_dir: DataDir = None, ephemeral: Ephemeral = False, once: Once = False, as_json: Json = False) -> None:
    """Start the database, bring its schema up to date, report, and run until Ctrl-C.

    Examples: windlass up · windlass up --ephemeral --once · WINDLASS_DATABASE_URL=postgresql://… windlass up
    """
    # TERM ends the block below like Ctrl-C, so that the database is stopped and not merely orphaned.
    # So does INT where whoever started us ignores it, as scripts do for what they run in the background.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    try:
        with database(settings(), data_dir, ephemeral=ephemeral) as (config, server):
            report = run(prepare(config)) | {"data_dir": None if server is None else str(server.data_dir)}
            if as_json:
                typer.echo(json.dumps(report))
            else:
                show(report)
            if not once:
                if not as_json:
                    typer.echo("Ctrl-C stops it.")
                stay(server)
    except KeyboardInterrupt:
        if not as_json:
            typer.echo("stopped")


def stay(server: EmbeddedPostgres | None) -> None:
    """Run until a signal, or until the embedded database is gone: then say so instead of sitting there."""
    while server is None or server.alive:
        time.sleep(0.2)
    raise Unavailable(f"the embedded PostgreSQL has ended; its log is {server.log}")


async def prepare(config: Config) -> dict[str, Any]:
    """Migrate, then look at everything a newcomer would ask about."""
    connection = await connect(config.store, direct=True)
    try:
        applied = await migrate.upgrade(connection, config.store.schema, ahead=config.store.partitions_ahead)
        version = await connection.fetchval("show server_version")
    finally:
        await connection.close(timeout=5)
    async with open_store(config.store) as store:
        await store.upkeep.roll_partitions()
        counts = dict.fromkeys((status.value for status in Status), 0)
        for (_, _, status), n in (await store.views.counts()).items():
            counts[status.value] += n
        return {
            "database": redacted(config.store.database_url or ""),
            "postgresql": version,
            "schema": config.store.schema,
            "migrations_applied": applied,
            "jobs": counts,
            "queues": [queue.name for queue in await store.views.queues()],
            "workers": sum(worker.alive for worker in await store.views.workers()),
            "healthy": (await store.views.check()).clean,
        }


def show(report: dict[str, Any]) -> None:
    """One fact a line, each whole: addresses are there to be copied."""
    jobs = ", ".join(f"{n:,} {status}" for status, n in report["jobs"].items() if n)
    applied = report["migrations_applied"]
    facts = {
        "database": f"{report['database']}  (PostgreSQL {report['postgresql']})",
        "schema": f"{report['schema']}, " + (f"migrations {applied} applied now" if applied else "up to date"),
        **({"data": f"{report['data_dir']}"} if report["data_dir"] else {}),
        "jobs": jobs or "none yet",
        "workers": str(report["workers"]),
        "store": "healthy: no job lost, doubled or miscounted" if report["healthy"] else "NOT HEALTHY",
    }
    console = Console(soft_wrap=True, highlight=False)
    console.print("[bold green]Windlass is up[/bold green]")
    for name, value in facts.items():
        console.print(f"  [bold]{name:<9}[/bold] {escape(value)}")

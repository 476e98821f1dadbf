"""`windlass workers`: who runs jobs, and how busy they are."""

from typing import Annotated

import typer

from windlass.cli import remote
from windlass.cli.output import GONE, Json, ago, say_json, table

app = typer.Typer(help="See who runs jobs, and how busy they are.", no_args_is_help=True)


@app.command("list")
def list_(
    everyone: Annotated[bool, typer.Option("--all", help="Those that have stopped or died as well.")] = False,
    as_json: Json = False,
) -> None:
    """List the living workers with their threads, jobs and queues.

    Examples: windlass workers list · windlass workers list --all --json
    """
    with remote.client() as client:
        found = [each for each in client.workers() if everyone or each.status not in GONE]
    if as_json:
        say_json({"workers": found})
        return
    table(
        ["id", "name", "status", "threads", "jobs", "started", "seen", "types", "queues"],
        (
            (
                each.id,
                each.name,
                each.status,
                f"{each.busy_threads}/{each.threads}",
                each.jobs,
                ago(each.started_at),
                ago(each.died_at or each.renewed_at),
                len(each.types),
                ", ".join(each.queues),
            )
            for each in found
        ),
        right=["threads", "jobs", "started", "seen", "types"],
        empty="no workers; start one with: windlass worker --app module:app",
    )

"""`windlass types`: what can be submitted, and by how many workers it is served."""

from typing import TYPE_CHECKING

import typer

from windlass.cli import remote
from windlass.cli.output import Json, clean, counted, note, say_json, span, table

if TYPE_CHECKING:
    from windlass import wire

app = typer.Typer(help="See which job types there are.", no_args_is_help=True)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the job types workers have declared, with their defaults, and how many living workers run their jobs.

    A type whose jobs would wait, because no worker knows it or none serves its queue, says so. --json shows the schemas of payloads.

    Examples: windlass types list · windlass types list --json
    """
    with remote.client() as client:
        found = client.types()
    if as_json:
        say_json({"types": found})
        return
    table(
        ["type", "served by", "queue", "threads", "attempts", "timeout", "description"],
        (
            (
                each.name,
                _served_by(each),
                each.queue,
                each.thread_demand,
                each.max_attempts,
                span(each.timeout_s),
                (each.description or "").strip().partition("\n")[0],
            )
            for each in found
        ),
        right=["threads", "attempts", "timeout"],
        empty="no types yet: no worker has ever declared one",
    )
    queues = sorted({each.queue for each in found if each.alive and not each.served_by})
    if queues:
        names = clean(",".join(queues))
        note(f"jobs wait where no worker serves the queue: start one with --queues {names}, or without --queues")


def _served_by(each: "wire.JobType") -> str:
    if each.served_by:
        return counted(each.served_by, "worker")
    return "nobody: its queue is not served" if each.alive else "nobody: no worker knows it"

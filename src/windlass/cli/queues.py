"""`windlass queues`: how full they are; pause and resume them."""

from typing import Annotated

import typer

from windlass.cli import remote
from windlass.cli.output import Json, clean, say, say_json, span, table

app = typer.Typer(help="See how full queues are; pause and resume them.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The queue.", metavar="QUEUE")]


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List queues: how many workers serve each, how many jobs wait in it, and for how long the oldest.

    Example: windlass queues list
    """
    with remote.client() as client:
        found = client.queues()
    if as_json:
        say_json({"queues": found})
        return
    table(
        ["queue", "state", "workers", "waiting", "running", "scheduled", "held", "oldest"],
        (
            (
                each.name,
                "paused" if each.paused else "open",
                f"{each.served_by:,}",
                f"{each.depth:,}",
                *tuple(f"{each.statuses.get(status, 0):,}" for status in ("running", "scheduled", "held")),
                span(each.oldest_age_s),
            )
            for each in found
        ),
        right=["workers", "waiting", "running", "scheduled", "held", "oldest"],
        empty="no queues yet",
    )


@app.command()
def pause(queue: Name, as_json: Json = False) -> None:
    """Let workers begin no more jobs of a queue. What runs goes on; submissions are still stored.

    Example: windlass queues pause mail
    """
    _set(queue, paused=True, as_json=as_json)


@app.command()
def resume(queue: Name, as_json: Json = False) -> None:
    """Let workers go on with a paused queue.

    Example: windlass queues resume mail
    """
    _set(queue, paused=False, as_json=as_json)


def _set(queue: str, *, paused: bool, as_json: bool) -> None:
    with remote.client() as client:
        client.pause(queue) if paused else client.resume(queue)
    if as_json:
        say_json({"queue": queue, "paused": paused})
    else:
        say(f"{clean(queue)} is {'paused' if paused else 'open'}")

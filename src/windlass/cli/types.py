"""`windlass types`: what can be submitted."""

import typer

from windlass.cli import remote
from windlass.cli.output import Json, say_json, span, table

app = typer.Typer(help="See which job types there are.", no_args_is_help=True)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the job types workers have declared, with their defaults; --json shows the schemas of their payloads.

    Examples: windlass types list · windlass types list --json
    """
    with remote.client() as client:
        found = client.types()
    if as_json:
        say_json({"types": found})
        return
    table(
        ["type", "served", "queue", "threads", "attempts", "timeout", "description"],
        (
            (
                each.name,
                "yes" if each.alive else "no",
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

"""`windlass workers`: who runs jobs, how busy they are; drain and stop them."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from windlass.cli import remote
from windlass.cli.output import GONE, Json, ago, clean, say, say_json, size, table
from windlass.errors import RequestError, WorkerNotFound

if TYPE_CHECKING:
    from windlass import wire

app = typer.Typer(help="See who runs jobs and how busy they are; drain and stop workers.", no_args_is_help=True)

Which = Annotated[
    str, typer.Argument(help="The worker: its name, or the first 4 characters or more of its id.", metavar="ID|NAME")
]

_ID: Final = re.compile(r"[0-9a-f]{4,32}")
_SHOWN: Final = 5


@app.command("list")
def list_(
    everyone: Annotated[bool, typer.Option("--all", help="Those that have stopped or died as well.")] = False,
    as_json: Json = False,
) -> None:
    """List the living workers with their threads, jobs and queues. JOBS: those that run, and those claimed ahead of them.

    Examples: windlass workers list · windlass workers list --all --json
    """
    with remote.client() as client:
        found = [each for each in client.workers() if everyone or each.status not in GONE]
    if as_json:
        say_json({"workers": found})
        return
    table(
        ["id", "name", "status", "threads", "jobs", "memory", "started", "seen", "version", "types", "queues"],
        (
            (
                each.id,
                each.name,
                each.status,
                f"{each.busy_threads}/{each.threads}",
                jobs_of(each),
                None if each.memory_bytes is None else size(each.memory_bytes),
                ago(each.started_at),
                ago(each.died_at or each.renewed_at),
                each.version,
                len(each.types),
                ", ".join(each.queues),
            )
            for each in found
        ),
        right=["threads", "jobs", "memory", "started", "seen", "types"],
        empty="no workers; start one with: windlass worker --app module:app",
    )


@app.command()
def drain(which: Which, as_json: Json = False) -> None:
    """Let a worker finish the jobs it runs and go. No other takes its place.

    Examples: windlass workers drain 4f1c · windlass workers drain host-1234-1
    """
    with remote.client() as client:
        worker = client.drain_worker(_resolve(client.workers(), which).id)
    _say(worker, "finishes its jobs and goes", as_json=as_json)


@app.command()
def stop(which: Which, as_json: Json = False) -> None:
    """Restart a worker: it gives the jobs it runs back at once, and another takes its place. No attempt is used up.

    Examples: windlass workers stop 4f1c · windlass workers stop host-1234-1
    """
    with remote.client() as client:
        worker = client.stop_worker(_resolve(client.workers(), which).id)
    _say(worker, "gives its jobs back and is replaced", as_json=as_json)


def jobs_of(worker: "wire.Worker") -> str:
    """How many run, and how many are claimed ahead of them."""
    running = worker.jobs - worker.claimed
    return f"{running} +{worker.claimed}" if worker.claimed else str(running)


def _resolve(workers: "Sequence[wire.Worker]", text: str) -> "wire.Worker":
    """The one worker that is meant: a living one, or the only one. Raises WorkerNotFound, or RequestError where several are."""
    digits = text.strip().replace("-", "").lower()
    prefix = digits if _ID.fullmatch(digits) else None
    found = [each for each in workers if each.name == text or (prefix and each.id.hex.startswith(prefix))]
    found = [each for each in found if each.status not in GONE] or found
    if not found:
        raise WorkerNotFound(repr(text))
    if len(found) > 1:
        named = ", ".join(f"{each.id} ({each.name})" for each in found[:_SHOWN])
        raise RequestError(f"several workers are called so: {named}{' and others' if len(found) > _SHOWN else ''}")
    return found[0]


def _say(worker: "wire.Worker", what: str, *, as_json: bool) -> None:
    if as_json:
        say_json(worker)
    else:
        say(f"{clean(worker.name)} {what}")

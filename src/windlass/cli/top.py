"""`windlass top`: the cluster, live in the terminal."""

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from windlass.cli import remote
from windlass.cli.jobs import job_note
from windlass.cli.output import GONE, Json, ago, clean, is_terminal, say_json, span
from windlass.cli.wiring import run
from windlass.cli.workers import jobs_of
from windlass.clock import steady_s
from windlass.errors import Unavailable

if TYPE_CHECKING:
    from rich.console import Group

    from windlass import wire
    from windlass.sdk.http import AsyncClient, Job

_ROWS_MAX: Final = 12
_GONE_S: Final = 60.0
_BAR: Final = 10
_ENDS: Final = ("completed", "failed", "cancelled")
_STYLES: Final = {
    "running": "cyan",
    "completed": "green",
    "failed": "red",
    "cancelled": "magenta",
    "held": "yellow",
    "busy": "cyan",
    "idle": "green",
    "draining": "yellow",
    "stopped": "dim",
    "dead": "red",
}


@dataclass(frozen=True, slots=True)
class Picture:
    """What the cluster was like at one moment, by this machine's steady clock."""

    at_s: float
    stats: "wire.Stats"
    queues: "list[wire.Queue]"
    workers: "list[wire.Worker]"
    newest: "list[Job]"

    def ended(self) -> int:
        return sum(self.stats.statuses.get(status, 0) for status in _ENDS)


def top(
    interval_s: Annotated[float, typer.Option("--interval", help="Seconds between two looks.", min=0.2, max=60)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, print it and end.")] = False,
    as_json: Json = False,
) -> None:
    """Watch the cluster: counts, rates, queues, workers and the newest jobs. Ctrl-C ends it.

    Examples: windlass top · windlass top --interval 5 · windlass top --once --json
    """
    # Also where whoever started us ignores it, as scripts do for what they run in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run(_watch(interval_s, once=once or as_json or not is_terminal(), as_json=as_json))


async def _watch(interval_s: float, *, once: bool, as_json: bool) -> None:
    from rich.console import Console  # noqa: PLC0415 - the other commands do without
    from rich.live import Live  # noqa: PLC0415

    async with remote.async_client() as client:
        picture = await _look(client)
        if as_json:
            told = {"stats": picture.stats, "queues": picture.queues, "workers": picture.workers}
            say_json(told | {"newest": picture.newest})
            return
        console = Console(highlight=False)
        if once:
            console.print(_frame(client.url, picture, None))
            return
        with Live(_frame(client.url, picture, None), console=console, screen=True, auto_refresh=False) as live:
            while True:
                await asyncio.sleep(interval_s)
                try:
                    before, picture = picture, await _look(client)
                except Unavailable as error:  # a restart, perhaps: what was seen last stays, and we go on looking
                    live.update(_frame(client.url, picture, None, trouble=str(error)), refresh=True)
                else:
                    live.update(_frame(client.url, picture, before), refresh=True)


async def _look(client: "AsyncClient") -> Picture:
    async def newest() -> "list[Job]":
        return [job async for job in client.jobs(limit=_ROWS_MAX)]

    from windlass.sdk import asks  # noqa: PLC0415 - the other commands do without

    async def first_queues() -> "list[wire.Queue]":  # a page: a dozen are shown, and there may be thousands
        return (await client.ask(asks.queues())).queues

    stats, queues, workers, jobs = await asyncio.gather(client.stats(), first_queues(), client.workers(), newest())
    return Picture(steady_s(), stats, queues, [each for each in workers if _is_shown(each)], jobs)


def _frame(url: str, picture: Picture, before: Picture | None, trouble: str = "") -> "Group":
    from rich.console import Group  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    head = Text.assemble(("windlass", "bold"), f"  {clean(url)}  ")
    for status, n in picture.stats.statuses.items():
        head.append(f"  {n:,} {status}", style=_STYLES.get(status, "") if n else "dim")
    if before is not None:
        rate = (picture.ended() - before.ended()) / max(0.001, picture.at_s - before.at_s)
        head.append(f"   {rate:,.0f} finished/s", style="bold")
    if trouble:
        head.append(f"\n{clean(trouble)}; trying again", style="bold red")
    return Group(head, Text(), _queues(picture), Text(), _workers(picture), Text(), _newest(picture))


def _is_shown(worker: "wire.Worker") -> bool:
    """The living, and for a minute those that have stopped or died: else nobody would see that one keeps crashing."""
    if worker.status not in GONE:
        return True
    return worker.died_at is not None and (datetime.now(UTC) - worker.died_at).total_seconds() < _GONE_S


def _queues(picture: Picture) -> Any:
    return _table(
        ("queue", "state", "waiting", "running", "scheduled", "oldest"),
        [
            (
                each.name,
                "paused" if each.paused else "open",
                f"{each.depth:,}",
                f"{each.statuses.get('running', 0):,}",
                f"{each.statuses.get('scheduled', 0):,}",
                span(each.oldest_age_s),
            )
            for each in picture.queues[:_ROWS_MAX]
        ],
    )


def _workers(picture: Picture) -> Any:
    rows: list[Sequence[object]] = [
        (
            each.name,
            each.status,
            f"{each.busy_threads}/{each.threads}",
            _bar(each),
            jobs_of(each),
            ", ".join(each.queues),
        )
        for each in picture.workers[:_ROWS_MAX]
    ]
    if len(picture.workers) > _ROWS_MAX:
        rows.append((f"and {len(picture.workers) - _ROWS_MAX} more", "", "", "", "", ""))
    return _table(("worker", "status", "threads", "", "jobs", "queues"), rows)


def _bar(worker: "wire.Worker") -> str:
    filled = round(_BAR * worker.busy_threads / max(1, worker.threads))
    return "█" * filled + "░" * (_BAR - filled)


def _newest(picture: Picture) -> Any:
    return _table(
        ("newest", "status", "tries", "created", "took", "id", "note"),
        [
            (
                job.type,
                job.status,
                f"{job.attempts}/{job.max_attempts}",
                ago(job.created_at),
                span(job.execution_s),
                job.id,
                job_note(job),
            )
            for job in picture.newest
        ],
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Any:
    """As plain text: what looks like markup in a job's name is none. Only the last column gives way."""
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    cells = [[Text(clean(value), style=_STYLES.get(str(value), "")) for value in row] for row in rows]
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for n, head in enumerate(heads):
        width = max([len(head), *(row[n].cell_len for row in cells)])
        least = None if n == len(heads) - 1 else width
        shown.add_column(head.upper(), no_wrap=True, overflow="ellipsis", min_width=least)
    for row in cells:
        shown.add_row(*row)
    return shown

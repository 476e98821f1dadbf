"""`windlass load`: jobs of a kind, at a rate or in waves, and a summary of what came back."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle, islice
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import uuid4

import typer

from windlass.cli import remote
from windlass.cli.output import Json, facts, note, say_json, span
from windlass.cli.progress import Bar
from windlass.cli.wiring import run
from windlass.clock import steady_s

if TYPE_CHECKING:
    from windlass import wire
    from windlass.sdk.http import AsyncClient, Job

_LOOK_S: Final = 0.1
_TAG_LOOK_S: Final = 2.0
_CHUNK: Final = 1000
_LOOKED_AT_MAX: Final = 10_000
_SLICE_S: Final = 0.1
_UNFINISHED: Final[tuple["wire.StatusName", ...]] = ("scheduled", "held", "ready", "running")


class Kind(StrEnum):
    """What the jobs do."""

    CPU = "cpu"
    IO = "io"
    NETWORK = "network"
    MIXED = "mixed"
    FAILING = "failing"
    VOLUME = "volume"


@dataclass(frozen=True, slots=True)
class Recipe:
    """The jobs of a kind: their types by turns, how long each takes, how many there are unless said otherwise."""

    types: tuple[str, ...]
    count: int
    duration_s: float
    fail: bool | float = False
    waves: int = 1


_RECIPES: Final = {
    Kind.CPU: Recipe(("cpu_intensive",), 50, 0.2),
    Kind.IO: Recipe(("io_intensive",), 100, 0.2),
    Kind.NETWORK: Recipe(("network_task",), 200, 0.2),
    Kind.MIXED: Recipe(("cpu_intensive", "io_intensive", "network_task", "mixed_workload", "default"), 100, 0.2, 0.05),
    Kind.FAILING: Recipe(("default",), 50, 0.01, fail=True),
    Kind.VOLUME: Recipe(("default",), 10_000, 0.0, waves=5),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """One run: everything that was said, and the tag its jobs are known by."""

    recipe: Recipe
    count: int
    rate: float | None
    waves: int
    pause_s: float
    timeout_s: float | None
    tag: str


def load(
    kind: Annotated[Kind, typer.Argument(help="What the jobs do.")],
    count: Annotated[int | None, typer.Option(help="How many jobs.", min=1, max=10_000_000)] = None,
    rate: Annotated[
        float | None, typer.Option(help="Submit so many a second; else as fast as it goes.", min=0.1)
    ] = None,
    waves: Annotated[int | None, typer.Option(help="In so many waves.", min=1, max=100_000)] = None,
    pause_s: Annotated[float, typer.Option("--pause", help="Seconds between two waves.", min=0)] = 1.0,
    duration_s: Annotated[float | None, typer.Option("--duration", help="Seconds each takes.", min=0, max=3600)] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for all of them, and sum up.")] = True,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Stop waiting after so many seconds.", min=0)] = 600.0,
    as_json: Json = False,
) -> None:
    """Submit many jobs of a kind (cpu, io, network, mixed, failing, volume) and sum up what came back.

    Examples: windlass load cpu --count 100 · windlass load mixed --rate 20 --count 600 ·
    windlass load volume --count 50000 --waves 10 --pause 2 · windlass load failing --json
    """
    recipe = _RECIPES[kind]
    if duration_s is not None:
        recipe = Recipe(recipe.types, recipe.count, duration_s, recipe.fail, recipe.waves)
    plan = Plan(
        recipe,
        count or recipe.count,
        rate,
        waves or recipe.waves,
        pause_s,
        timeout_s if wait else None,
        f"load-{kind}-{uuid4().hex[:8]}",
    )
    summary = run(_run(plan))
    say_json(summary) if as_json else facts(_told(summary))


async def _run(plan: Plan) -> dict[str, Any]:
    async with remote.async_client() as client:
        before = await finished(client)
        began_s = steady_s()
        with Bar("submitting", plan.count) as bar:
            stored = 0
            async for chunk in _chunks(plan):
                stored += len(await client.submit_many(chunk, chunk=_CHUNK))
                bar.at(stored)
        took_s = steady_s() - began_s
        summary: dict[str, Any] = {"tag": plan.tag, "submitted": stored, "submitting_s": took_s}
        summary["submitted_per_s"] = stored / took_s
        if plan.timeout_s is not None:
            whole = await all_ended(client, plan.tag, stored, before=before, timeout_s=plan.timeout_s)
            summary |= {"all_finished": whole, "total_s": steady_s() - began_s}
            summary |= _summed_up([job async for job in client.jobs(tag=plan.tag, limit=_LOOKED_AT_MAX)])
        return summary


def _submissions(plan: Plan) -> Iterator[dict[str, Any]]:
    recipe = plan.recipe
    for n, type_ in enumerate(islice(cycle(recipe.types), plan.count)):
        payload = {"task": f"load {n}", "duration_s": recipe.duration_s, "fail": recipe.fail}
        told: dict[str, Any] = {"type": type_, "payload": payload, "tags": [plan.tag]}
        yield told | ({"max_attempts": 2} if recipe.fail else {})


async def _chunks(plan: Plan) -> AsyncIterator[list[dict[str, Any]]]:
    """The jobs as they are due: wave after wave, and within a wave at the rate asked for."""
    jobs = _submissions(plan)
    size = _CHUNK if plan.rate is None else max(1, round(plan.rate * _SLICE_S))
    for wave in range(plan.waves):
        if wave:
            await asyncio.sleep(plan.pause_s)
        left = plan.count * (wave + 1) // plan.waves - plan.count * wave // plan.waves
        began_s, sent = steady_s(), 0
        while sent < left:
            chunk = list(islice(jobs, min(size, left - sent)))
            yield chunk
            sent += len(chunk)
            if plan.rate is not None:
                await asyncio.sleep(max(0.0, began_s + sent / plan.rate - steady_s()))


async def all_ended(client: "AsyncClient", tag: str, stored: int, *, before: int, timeout_s: float) -> bool:
    """Wait until no job with this tag is unfinished, or the time is up. What the cluster has finished since there were
    `before` costs nothing to count; only when that is enough, or now and then, is the tag looked for, which walks past
    every job that has it and would slow down what is measured here."""
    deadline_s = steady_s() + timeout_s
    next_s = steady_s() + _TAG_LOOK_S
    with Bar("finishing", stored) as bar:
        while steady_s() < deadline_s:
            ended = await finished(client) - before
            bar.at(min(stored, ended))
            if ended >= stored or steady_s() > next_s:
                if not [job async for job in client.jobs(tag=tag, status=list(_UNFINISHED), limit=1)]:
                    return True
                next_s = steady_s() + _TAG_LOOK_S
                stored = max(stored, ended + 1)  # others finish jobs, too
            await asyncio.sleep(_LOOK_S)
    note(f"not all are finished after {timeout_s:g} s")
    return False


async def finished(client: "AsyncClient") -> int:
    """How many jobs of the whole cluster are."""
    statuses = (await client.stats()).statuses
    return sum(statuses.get(status, 0) for status in ("completed", "failed", "cancelled"))


def _summed_up(jobs: "Sequence[Job]") -> dict[str, Any]:
    """What became of them, and how long that took; of the newest, if there are very many."""
    ended = [job.finished_at for job in jobs if job.finished_at is not None]
    began = [job.created_at for job in jobs]
    whole_s = (max(ended) - min(began)).total_seconds() if ended else 0.0
    return {
        "looked_at": len(jobs),
        "statuses": dict(Counter(job.status for job in jobs)),
        "attempts": sum(job.attempts for job in jobs),
        "finished_per_s": len(ended) / whole_s if whole_s > 0 else None,
        "queue_s": percentiles([job.queue_s for job in jobs if job.queue_s is not None]),
        "execution_s": percentiles([job.execution_s for job in jobs if job.execution_s is not None]),
        "errors": dict(Counter(f"{job.error.type}: {job.error.message}" for job in jobs if job.error).most_common(5)),
    }


def percentiles(values: "Sequence[float]") -> dict[str, float] | None:
    """The middle and the slow end, by the nearest rank."""
    if not values:
        return None
    known = sorted(values)
    last = len(known) - 1
    return {name: known[min(last, int(len(known) * at))] for name, at in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))}


def _told(summary: dict[str, Any]) -> Iterator[tuple[str, object]]:
    yield "submitted", f"{summary['submitted']:,} in {span(summary['submitting_s'])}"
    yield "tag", summary["tag"]
    if "statuses" not in summary:
        return
    yield "came back", ", ".join(f"{n:,} {status}" for status, n in summary["statuses"].items())
    yield "errors", "; ".join(f"{n:,} x {error}" for error, n in summary["errors"].items()) or None
    yield "attempts", f"{summary['attempts']:,}"
    if summary["looked_at"] < summary["submitted"]:
        yield "looked at", f"the newest {summary['looked_at']:,}"
    yield "took", f"{span(summary['total_s'])} in all"
    yield "rate", summary["finished_per_s"] and f"{summary['finished_per_s']:,.0f} jobs a second"
    yield "waited", spans(summary["queue_s"])
    yield "ran", spans(summary["execution_s"])


def spans(values: dict[str, float] | None) -> str | None:
    return None if values is None else ", ".join(f"{name} {span(value)}" for name, value in values.items())

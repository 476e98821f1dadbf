"""`windlass bench`: how many submissions a second the API takes, and how long a job takes from end to end."""

import json
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import uuid4

import typer

from windlass.cli import remote
from windlass.cli.load import all_ended, finished, percentiles, spans
from windlass.cli.output import Json, facts, note, say_json
from windlass.cli.posting import posted
from windlass.cli.progress import Bar
from windlass.cli.wiring import run
from windlass.clock import steady_s

if TYPE_CHECKING:
    from windlass.sdk.http import AsyncClient

_DRAIN_S_MAX: Final = 600.0
_TRIPS: Final = 50


def bench(
    duration_s: Annotated[float, typer.Option("--seconds", help="How long to submit.", min=0.1, max=600)] = 5.0,
    connections: Annotated[int, typer.Option(help="Connections that submit at once.", min=1, max=1000)] = 64,
    type_: Annotated[str, typer.Option("--type", help="The type of the jobs.")] = "add_numbers",
    payload: Annotated[str, typer.Option(help="What each is given, as JSON.")] = '{"a": 2, "b": 3}',
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Also measure until all have run.")] = True,
    as_json: Json = False,
) -> None:
    """Measure the API: round trips of single jobs, then submissions from many connections until they have all run.

    It submits tens of thousands of small jobs, tagged bench-…: not for a cluster that others use.

    Examples: windlass bench · windlass bench --seconds 10 --connections 16 --json · windlass bench --no-wait
    """
    try:
        document = json.loads(payload)
    except ValueError as error:
        raise typer.BadParameter(f"--payload: is no JSON ({error})") from None
    found = run(_run(type_, document, duration_s, connections, wait=wait))
    say_json(found) if as_json else facts(_told(found))


async def _run(type_: str, payload: Any, duration_s: float, connections: int, *, wait: bool) -> dict[str, Any]:
    tag = f"bench-{uuid4().hex[:8]}"
    async with remote.async_client() as client:
        found: dict[str, Any] = {"url": client.url, "tag": tag}
        if wait:
            found["round_trip_s"] = percentiles(await _trips(client, type_, payload))
        body = json.dumps({"type": type_, "payload": payload, "tags": [tag]}).encode()
        before = await finished(client)
        began_s = steady_s()
        times_s, statuses = await posted(client.url, await client.token(), body, duration_s, connections)
        took_s = steady_s() - began_s
        stored = statuses.get("202", 0)
        found |= {"connections": connections, "submitted": stored, "submissions_per_s": stored / took_s}
        found |= {"submission_s": percentiles(times_s), "statuses": dict(statuses)}
        if wait and stored:
            await all_ended(client, tag, stored, before=before, timeout_s=_DRAIN_S_MAX)
            found["jobs_per_s"] = stored / (steady_s() - began_s)
        return found


async def _trips(client: "AsyncClient", type_: str, payload: Any) -> list[float]:
    """One job after the other, each from its submission to its result."""
    times_s = []
    with Bar("round trips", _TRIPS) as bar:
        for _ in range(_TRIPS):
            began_s = steady_s()
            await (await client.submit(type_, payload)).result(timeout_s=60)
            times_s.append(steady_s() - began_s)
            bar.advance()
    return times_s


def _told(found: dict[str, Any]) -> list[tuple[str, object]]:
    others = {status: n for status, n in found["statuses"].items() if status != "202"}
    if others:
        note(f"not stored: {', '.join(f'{n:,} answered {status}' for status, n in others.items())}")
    return [
        ("API", found["url"]),
        ("round trip", spans(found.get("round_trip_s"))),
        ("submissions", f"{found['submissions_per_s']:,.0f} a second over {found['connections']} connections"),
        ("each took", spans(found["submission_s"])),
        ("ran", f"{found['jobs_per_s']:,.0f} jobs a second from end to end" if "jobs_per_s" in found else None),
    ]

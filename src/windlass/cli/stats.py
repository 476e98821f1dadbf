"""`windlass stats`: how many jobs there are in which state, and how large and old the dead letters are."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from windlass.cli import remote
from windlass.cli.output import Json, ago, counted, facts, note, say, say_json, size, table

if TYPE_CHECKING:
    from windlass import wire

_LINES_MAX: Final = 20


def stats(
    all_lines: Annotated[bool, typer.Option("--all", help="Show every queue and type, not the largest alone.")] = False,
    as_json: Json = False,
) -> None:
    """Count jobs by status, and by queue and type. The counts are exact.

    Examples: windlass stats · windlass stats --json
    """
    with remote.client() as client:
        found = client.stats()
    if as_json:
        say_json(found)
        return
    facts([("jobs", f"{found.total:,}"), *((status, f"{n:,}") for status, n in found.statuses.items())])
    if found.needs_decision:
        waiting = counted(found.needs_decision, "held job")
        need = "needs" if found.needs_decision == 1 else "need"
        say(f"\n{waiting} {need} a decision: windlass jobs list --reason 'needs decision'")
    if found.dead_letters is not None:
        say(f"\ndead letters  {'; '.join(_dead_letters(found.dead_letters))}")
    if found.lines:
        say()
        _show_lines(found, all_lines=all_lines)


def _dead_letters(totals: "wire.DeadLetterTotals") -> Iterator[str]:
    yield f"{totals.count:,}"
    if totals.oldest_at is not None:
        yield f"the oldest failed {ago(totals.oldest_at)}"
        yield f"about {size(totals.approximate_bytes)}"
    yield "kept for ever" if totals.retention_days is None else f"removed after {counted(totals.retention_days, 'day')}"


def _show_lines(found: "wire.Stats", *, all_lines: bool) -> None:
    largest = sorted(found.lines, key=lambda line: -line.count)
    shown = largest if all_lines else largest[:_LINES_MAX]
    table(
        ["queue", "type", "status", "jobs"],
        ((line.queue, line.type, line.status, f"{line.count:,}") for line in shown),
        right=["jobs"],
    )
    if len(shown) < len(largest):
        note(f"the {_LINES_MAX} largest of {len(largest):,}; --all shows the others")
    elif not found.complete:
        note(f"the {len(largest):,} largest; there are more")

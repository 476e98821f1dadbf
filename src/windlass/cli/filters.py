"""The options by which commands choose jobs, said once."""

import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from windlass.model import statuses_named

if TYPE_CHECKING:
    from windlass.sdk.asks import Filters

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class StatusWord(StrEnum):
    """The statuses of jobs, and `pending`, which stands for those that wait."""

    PENDING = "pending"
    SCHEDULED = "scheduled"
    HELD = "held"
    READY = "ready"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


StatusOption = Annotated[
    list[StatusWord] | None,
    typer.Option("--status", help="Only these; may be given several times. pending: scheduled, held or ready."),
]
TypeOption = Annotated[str | None, typer.Option("--type", help="Only of this type.", metavar="TYPE")]
QueueOption = Annotated[str | None, typer.Option("--queue", help="Only of this queue.", metavar="QUEUE")]
TagOption = Annotated[str | None, typer.Option("--tag", help="Only with this tag.", metavar="TAG")]
ReasonOption = Annotated[
    str | None,
    typer.Option("--reason", help="Only held ones that wait for this, such as 'needs decision'.", metavar="TEXT"),
]
SinceOption = Annotated[
    str | None, typer.Option("--since", help="Only created since: 30m, 2h, 7d, or a time as RFC 3339.", metavar="WHEN")
]
UntilOption = Annotated[str | None, typer.Option("--until", help="Only created before; as --since.", metavar="WHEN")]
LimitOption = Annotated[int, typer.Option("--limit", "-n", help="At most so many.", min=1)]


def chosen(
    status: list[StatusWord] | None = None,
    type_: str | None = None,
    queue: str | None = None,
    tag: str | None = None,
    since: str | None = None,
    until: str | None = None,
    reason: str | None = None,
) -> "Filters":
    said: dict[str, Any] = {
        "status": [each.value for each in statuses_named(status)] if status else None,
        "type": type_,
        "queue": queue,
        "tag": tag,
        "created_after": when("--since", since),
        "created_before": when("--until", until),
        "reason": reason,
    }
    known: Any = {name: value for name, value in said.items() if value is not None}
    return known  # type: ignore[no-any-return]


def when(option: str, text: str | None, *, ahead: bool = False) -> datetime | None:
    """A moment: so long ago (or `ahead`), or as RFC 3339. A time without a zone is this machine's."""
    if text is None:
        return None
    if found := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text):
        span = timedelta(**{_UNITS[found[2]]: float(found[1])})
        return datetime.now(UTC) + span if ahead else datetime.now(UTC) - span
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(f"{option}: {text!r} is neither like 30m, 2h, 7d nor like 2030-01-31T12:00Z") from None


def seconds(option: str, text: str | None) -> float | None:
    """A duration: 90, 90s, 5m, 2h, 1d."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if not found:
        raise typer.BadParameter(f"{option}: {text!r} is no duration like 90s, 5m, 2h or 1d")
    return timedelta(**{_UNITS[found[2] or "s"]: float(found[1])}).total_seconds()

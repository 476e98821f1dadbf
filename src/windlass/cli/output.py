"""What commands print: JSON for programs, tables for people, and nothing that could take over a terminal.

Names, errors and results of jobs are other people's text. Control characters in it, and those that turn the direction of
writing, are shown as escapes.
"""

import os
import re
import shutil
import sys
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from windlass.errors import RequestError

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

# C0 and C1 with DEL, the separators some take for line ends, marks without width, and changes of direction.
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
_UNSAFE_BUT_LINES: Final = re.compile(_UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))
_COLOURS: Final = {
    "completed": "green",
    "failed": "red",
    "cancelled": "magenta",
    "running": "cyan",
    "held": "yellow",
    "idle": "green",
    "busy": "cyan",
    "draining": "yellow",
    "stopped": "bright_black",
    "dead": "red",
    "paused": "yellow",
}
GONE: Final = ("stopped", "dead")  # workers that run nothing any more
_WANTED: Final = {"verbose": False}


def clean(text: object) -> str:
    """The text as one line that does nothing but be read."""
    return _UNSAFE.sub(_escaped, str(text))


def clean_lines(text: str) -> str:
    """The same, with its line ends and tabs."""
    return _UNSAFE_BUT_LINES.sub(_escaped, text.replace("\r\n", "\n"))


def say(text: str = "") -> None:
    typer.echo(text)


def say_json(told: Any) -> None:
    """One JSON document on one line."""
    import msgspec  # noqa: PLC0415 - help and completion do without

    text = msgspec.json.encode(told).decode()
    say(_UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def note(text: str) -> None:
    """For people, beside what is printed: on stderr."""
    typer.echo(text, err=True)


def set_verbose(wanted: bool) -> None:
    _WANTED["verbose"] = wanted


def detail(text: str) -> None:
    """What only those want to know who said --verbose: on stderr."""
    if _WANTED["verbose"]:
        note(f"windlass: {clean(text)}")


def is_terminal() -> bool:
    return sys.stdout.isatty()


def coloured(text: str, colour: str | None = None) -> str:
    """In the colour given, or in that of the status it names, on terminals that want it."""
    colour = colour or _COLOURS.get(text.strip())
    if colour is None or not is_terminal() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return typer.style(text, fg=colour)


def table(
    heads: Sequence[str], rows: Iterable[Sequence[object]], *, right: Collection[str] = (), empty: str = "none"
) -> None:
    """Columns as wide as what is in them, so that ids can be copied; on a terminal the last gives way."""
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415

    known = [[clean("" if cell is None else cell) for cell in row] for row in rows]
    if not known:
        say(empty)
        return
    widths = [max(cell_len(row[n]) for row in [list(heads), *known]) for n in range(len(heads))]
    room = shutil.get_terminal_size().columns - sum(widths[:-1]) - 2 * (len(heads) - 1)
    if is_terminal() and room > 10:
        widths[-1] = min(widths[-1], room)

    def line(cells: Sequence[str]) -> Iterable[str]:
        for n, cell in enumerate(cells):
            blank = " " * max(0, widths[n] - cell_len(cell))
            if heads[n] in right:
                yield blank + coloured(cell)
            elif n == len(cells) - 1:
                yield set_cell_size(cell, widths[n] - 1) + "…" if cell_len(cell) > widths[n] else coloured(cell)
            else:
                yield coloured(cell) + blank

    say("  ".join(_heads(heads, widths, right)).rstrip())
    for row in known:
        say("  ".join(line(row)).rstrip())


def facts(pairs: Iterable[tuple[str, object]]) -> None:
    """One fact a line; what is not known is left out."""
    known = [(name, value) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        say(f"{name:<{width}}  {coloured(clean(value))}")


def moment(at: datetime | None) -> str | None:
    return None if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def ago(at: datetime | None) -> str:
    """How long since, by this machine's clock; of what is still to come, in how long."""
    if at is None:
        return ""
    passed_s = (datetime.now(UTC) - at).total_seconds()
    return f"in {span(-passed_s)}" if passed_s < -1 else f"{span(max(0.0, passed_s))} ago"


def span(seconds: float | None) -> str:
    """A duration in the unit that suits it: 3.2 ms, 1.5 s, 4 min, 2.5 h, 3 d."""
    if seconds is None:
        return ""
    for limit, unit_s, unit in ((1, 0.001, "ms"), (120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            value = seconds / unit_s
            return f"{value:.0f} {unit}" if value >= 10 else f"{value:.2g} {unit}"
    return f"{seconds / 86_400:.0f} d"


def size(n: int) -> str:
    """Bytes in the unit that suits them: 900 B, 1.5 KB, 20 MB, 3.1 GB."""
    value = float(n)
    for unit in ("B", "KB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def counted(n: int, thing: str) -> str:
    return f"{n:,} {thing}" if n == 1 else f"{n:,} {thing}s"


def confirm(question: str) -> None:
    """Ask, or refuse where nobody could answer."""
    if not sys.stdin.isatty():
        raise RequestError(f"{question} nobody is here to answer; add --yes")
    typer.confirm(question, abort=True, err=True)


def _heads(heads: Sequence[str], widths: Sequence[int], right: Collection[str]) -> Iterable[str]:
    for head, width in zip(heads, widths, strict=True):
        yield f"{head.upper():>{width}}" if head in right else f"{head.upper():<{width}}"


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"

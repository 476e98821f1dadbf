"""What the manual draws and lists is what the code does. `python -m tests.unit.test_docs` writes both anew."""

import re
from pathlib import Path

from windlass.config import settings
from windlass.lifecycle import MOVES, diagram
from windlass.model import Status

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "lifecycle.md"
SETTINGS = DOCS / "settings.md"
BLOCK = re.compile(r"```mermaid\n(.*?)\n```", re.DOTALL)
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)


def test_the_manual_holds_exactly_the_diagram_of_the_allowed_moves() -> None:
    drawn = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert drawn == [diagram()], f"{PAGE.name} is out of date: run `python -m tests.unit.test_docs`"


def test_the_manual_explains_every_state_and_every_verb() -> None:
    prose = BLOCK.sub("", PAGE.read_text(encoding="utf-8"))
    for status in Status:
        assert f"**{status}**" in prose
    for move in MOVES:
        for verb in move.verb.split(" · "):
            # "settle as failed for good" is explained under "settle".
            first = verb.split(" as ")[0]
            assert f"**{first}**" in prose, f"{PAGE.name} does not explain the verb {first!r}"


def settings_table() -> str:
    lines = ["| variable | default | allowed | meaning |", "|---|---|---|---|"]
    for each in settings():
        default = "not set" if each.default is None else f"`{each.default}`" if each.default != "" else "empty"
        also = f", or `{each.variable}_FILE`" if each.secret else ""
        lines.append(f"| `{each.variable}`{also} | {default} | {each.allowed} | {each.meaning} |")
    return "\n".join(lines) + "\n"


def test_the_manual_lists_every_setting_as_it_is() -> None:
    assert TABLE.findall(SETTINGS.read_text(encoding="utf-8")) == [settings_table()], (
        f"{SETTINGS.name} is out of date: run `python -m tests.unit.test_docs`"
    )


def main() -> None:
    listed = SETTINGS.read_text(encoding="utf-8")
    SETTINGS.write_text(TABLE.sub(lambda _: settings_table(), listed, count=1), encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(BLOCK.sub(lambda _: f"```mermaid\n{diagram()}\n```", page, count=1), encoding="utf-8")


if __name__ == "__main__":
    main()

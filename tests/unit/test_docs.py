"""What the manual draws is what the code does. `python -m tests.unit.test_docs` writes the drawing anew."""

import re
from pathlib import Path

from windlass.lifecycle import MOVES, diagram
from windlass.model import Status

PAGE = Path(__file__).parents[2] / "docs" / "lifecycle.md"
BLOCK = re.compile(r"```mermaid\n(.*?)\n```", re.DOTALL)


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


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(BLOCK.sub(lambda _: f"```mermaid\n{diagram()}\n```", page, count=1), encoding="utf-8")


if __name__ == "__main__":
    main()

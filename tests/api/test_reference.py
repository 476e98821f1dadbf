"""The manual of the API lists the calls and errors there are. `python -m tests.api.test_reference` writes both anew."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from windlass import errors, wire
from windlass.api.table import table
from windlass.errors import Misconfigured, RequestError, Unavailable, WindlassError
from windlass.payload import depth_max

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
BLOCKS = re.compile(r"<!-- (endpoints|errors) -->\n(?:\n(?:\|.*\n)+)?")


def endpoints() -> str:
    lines = ["| call | scope | does |", "|---|---|---|"]
    lines += [
        f"| `{each.method} {each.path}` | {each.scope or ''} | {each.summary} |" for each in table() if each.listed
    ]
    return "\n".join(lines) + "\n"


def problems() -> str:
    lines = ["| status | code | again | when |", "|---|---|---|---|"]
    for kind in sorted(_told(), key=lambda kind: (kind.http_status, kind.code)):
        again = "yes" if kind.retryable else ""
        lines.append(f"| {kind.http_status} | `{kind.code}` | {again} | {_meaning(kind)} |")
    return "\n".join(lines) + "\n"


def _told() -> Iterator[type[WindlassError]]:
    """Those a caller can meet: raised for requests, or for want of a database."""
    waiting = [RequestError, Unavailable]
    while waiting:
        kind = waiting.pop()
        if kind.__module__ == errors.__name__:
            yield kind
        waiting += kind.__subclasses__()


def _meaning(kind: type[WindlassError]) -> str:
    """As the tree in errors.py says it."""
    tree = errors.__doc__ or ""
    found = re.search(rf"── {kind.__name__} +(?:\d+ *)?(.*)", tree)
    return (found[1].strip() if found else "") or kind.code.replace("_", " ")


def written(page: str) -> str:
    made = {"endpoints": endpoints, "errors": problems}
    return BLOCKS.sub(lambda found: f"<!-- {found[1]} -->\n\n{made[found[1]]()}", page)


def test_the_manual_lists_every_call_and_every_error() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written(page) == page, f"{PAGE.name} is out of date: run `python -m tests.api.test_reference`"


def test_the_manual_explains_every_field_of_a_submission() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Submit")[2].partition("**Once only.**")[0]
    rows = re.findall(r"^\| ((?:`\w+`(?:, or |, )?)+) \|", section, re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert told == {field.encode_name for field in msgspec.structs.fields(wire.Submission)}


def test_the_manual_names_the_depth_that_is_taken() -> None:
    assert f"no deeper than {depth_max} levels" in PAGE.read_text(encoding="utf-8")


def test_what_refuses_a_start_is_not_told_over_http() -> None:
    assert Misconfigured not in set(_told())


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

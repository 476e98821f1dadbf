"""What is said over HTTP is refused where it is not as it must be."""

import inspect
import re
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from windlass import wire
from windlass.api import alias_shapes


def metas(kind: Any) -> Iterator[msgspec.Meta]:
    for each in get_args(kind):
        if isinstance(each, msgspec.Meta):
            yield each
        yield from metas(each)


def patterns() -> dict[str, str]:
    """By the type and field that has it."""
    return {
        f"{name}.{field}": meta.pattern
        for module in (wire, alias_shapes)
        for name, struct in inspect.getmembers(module, inspect.isclass)
        if issubclass(struct, msgspec.Struct)
        for field, kind in get_type_hints(struct, include_extras=True).items()
        for meta in metas(kind)
        if meta.pattern
    }


@pytest.mark.parametrize("where", patterns())
def test_a_line_end_behind_a_name_is_refused(where: str) -> None:
    pattern = patterns()[where]
    good = "ann@example.org" if "@[" in pattern else "email"
    assert re.search(pattern, good)
    assert not any(re.search(pattern, good + end) for end in ("\n", "\r\n", "\r", "\u2028", "\x85", " "))

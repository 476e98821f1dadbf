"""The check at the edge against the worker that reads the payload: what the one refuses, the other would have refused."""

import functools
import json
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Optional, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.errors import InvalidPayload, Misconfigured
from windlass.payload_check import compile_checker
from windlass.worker.signature import Signature


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    SMALL = 1


class Lenient(Enum):
    RED = "red"

    @classmethod
    def _missing_(cls, _value: object) -> "Lenient":
        return cls.RED


@dataclass
class Line:
    sku: str
    price: Decimal
    tags: list[str] = field(default_factory=list)


class Pair(NamedTuple):
    left: int
    right: str = ""


class Options(TypedDict):
    depth: int
    colour: NotRequired[Colour]


class Exact(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    the_id: UUID
    at: date | None = None


class Circle(msgspec.Struct, tag=True):
    radius: float


class Square(msgspec.Struct, tag="square"):
    side: Annotated[float, msgspec.Meta(gt=0)]


class Point(msgspec.Struct, array_like=True):
    x: int
    y: int = 0


class Range(NamedTuple):
    low: int
    high: int


class First(msgspec.Struct, tag=1):
    a: int


class Second(msgspec.Struct, tag=2):
    b: int = 0


class Tree(msgspec.Struct):
    value: int
    branches: list["Tree"] = []


class Model(pydantic.BaseModel):
    count: int


# Kinds whose schema says all there is to say: what the checker lets pass, the worker takes.
EXACT: list[Any] = [
    int, float, str, bool, bytes, date, timedelta, Decimal, UUID, Any, type(None), Colour, Size, Literal["a", 3],
    Line, Options, Exact, Circle | Square, Circle | Square | None, First | Second, First | Second | int, Point, Pair, dict[str, int], list, dict,
    tuple[int, ...], tuple[int, str], int | str | None, int | float, Decimal | None, bool | int | list[int],
    Annotated[int, msgspec.Meta(ge=1, lt=9, multiple_of=2)], Annotated[str, msgspec.Meta(min_length=1, max_length=3)],
    Annotated[list[int], msgspec.Meta(min_length=1, max_length=2)],
    Annotated[dict[str, int], msgspec.Meta(max_length=1)],
]  # fmt: skip
# And kinds that take less, or more, than their schema says.
LOOSE: list[Any] = [
    datetime, Path, Circle, Tree, Lenient, Range | Annotated[int, msgspec.Meta(ge=1)], Model, Model | None, list[Model], dict[int, str], dict[date, int], set[int],
    Annotated[set[int], msgspec.Meta(max_length=1)], Annotated[str, msgspec.Meta(pattern="^a")],
    Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 5})],
]  # fmt: skip
LEAVES: list[Any] = [
    None, True, 0, 1, 3, 4, 8, -1, 2**63, 10**30, 1.0, 2.5, 1e300, "", "a", "abcd", "red", "blue", "square", "Circle",
    "7", "1.50", "NaN", "2026-11-16", "2026-11-16T10:00:00Z", "2026-11-16T10:00:00", "PT5S", "aGk=",
    "0193b1c8-7d1a-7cc0-8000-000000000001", [], {}, [1, "x"], [1, 1], {"1": "x"}, {"2026-11-16": 1},
    {"sku": "s", "price": 1.5}, {"sku": "s", "price": "2", "tags": ["x"], "more": 1}, {"sku": "s"}, {"depth": 1},
    {"depth": 1, "colour": "red"}, {"theId": "0193b1c8-7d1a-7cc0-8000-000000000001"}, {"theId": 1, "b": 2},
    {"type": 1, "a": 1}, {"type": "1", "a": 1}, {"type": 2}, [1, 2], {"type": "Circle", "radius": 1}, {"radius": 2.0}, {"type": "square", "side": 0}, {"type": "square", "side": 2},
    {"value": 1, "branches": [{"value": 2, "branches": []}]}, {"value": 1, "branches": [{}]}, {"count": "7"}, {"count": 7},
]  # fmt: skip

NOTHING: Any = object()

values = st.recursive(
    st.sampled_from(LEAVES) | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "type", "sku"]), inner),
    max_leaves=6,
)


def nested(kinds: list[Any]) -> st.SearchStrategy[Any]:
    def around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        made: list[Callable[[Any], Any]] = [
            list.__class_getitem__,
            lambda kind: dict.__class_getitem__((str, kind)),
            Optional.__getitem__,
        ]
        return st.tuples(st.sampled_from(made), inner).map(lambda pair: pair[0](pair[1]))

    return st.recursive(st.sampled_from(kinds), around, max_leaves=2)


def signature(parameters: dict[str, Any], optional: set[str], *, rest: Any = None) -> Signature:
    said = [f"{name}: kinds[{name!r}]" + (" = None" if name in optional else "") for name in parameters]
    said = ["*", *said] if said else said
    source = f"def handler({', '.join([*said, *(['**rest: rest'] if rest is not None else [])])}): ..."
    space: dict[str, Any] = {"kinds": parameters, "rest": rest}
    exec(source, space)
    return Signature(space["handler"])


def verdicts(known: Signature, payload: Any) -> tuple[str | None, str | None]:
    """What the worker says to a payload, and what the check does; None if nothing."""
    checker = compile_checker(known.schema() or "null") or (lambda _: None)
    said: list[str | None] = []
    for judge in (lambda: known.arguments(json.dumps(payload)), lambda: checker(payload)):
        try:
            judge()
        except InvalidPayload as error:
            said.append(str(error))
        else:
            said.append(None)
    return said[0], said[1]


@given(kind=nested(EXACT + LOOSE), value=values)
def test_no_value_is_refused_that_the_worker_takes(kind: Any, value: Any) -> None:
    worker, check = verdicts(signature({"it": kind}, set()), {"it": value})
    assert check is None or worker is not None


@given(kind=nested(EXACT), value=values)
def test_a_value_that_passes_is_taken_by_the_worker(kind: Any, value: Any) -> None:
    worker, check = verdicts(signature({"it": kind}, set()), {"it": value})
    assert (worker is None) == (check is None)


@given(
    parameters=st.dictionaries(st.sampled_from("abcd"), st.sampled_from([int, str, Line, Any]), max_size=3),
    optional=st.sets(st.sampled_from("abcd")),
    rest=st.sampled_from([None, int, Any]),
    payload=st.none() | st.dictionaries(st.sampled_from("abcde"), st.sampled_from([1, "x", {"sku": "s", "price": 1}])),
)
def test_fields_are_missing_or_unknown_as_for_the_worker(
    parameters: dict[str, Any], optional: set[str], rest: Any, payload: Any
) -> None:
    worker, check = verdicts(signature(parameters, optional, rest=rest), payload)
    assert (worker is None) == (check is None)


@given(kind=nested(EXACT + LOOSE), value=values, optional=st.booleans())
def test_a_whole_payload_is_checked_alike(kind: Any, value: Any, optional: bool) -> None:
    def needed(payload: kind) -> None: ...

    def perhaps(payload: kind = NOTHING) -> None: ...

    worker, check = verdicts(Signature(perhaps if optional else needed), value)
    assert check is None or worker is not None


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        ({"lines": [{"sku": "s", "price": 1}, {"sku": "t"}]}, "payload.lines[1].price: is missing"),
        ({"lines": [{"sku": 5, "price": 1}]}, "payload.lines[0].sku: expected str, got int"),
        ({"lines": [], "colour": "green"}, "payload.colour: invalid enum value 'green'"),
        ({"lines": [], "note": 1}, "payload.note: is no parameter of the handler; it has: lines, colour"),
        ([], "payload: expected object, got array"),
        (None, "payload.lines: is missing"),
    ],
)
def test_the_field_is_named_as_the_worker_names_it(payload: Any, complaint: str) -> None:
    def handler(lines: list[Line], colour: Colour = Colour.RED) -> None: ...

    assert verdicts(Signature(handler), payload) == (complaint, complaint)


def test_a_name_from_a_stranger_is_shown_short_and_escaped() -> None:
    _, check = verdicts(signature({"a": Any}, set()), {"a": 1, "\x1b[2J" + "x" * 100_000: 1})
    assert check is not None
    assert len(check) < 400
    assert check.isprintable()
    _, check = verdicts(signature({"a": Colour}, set()), {"a": "x" * 100_000})
    assert check is not None
    assert len(check) < 2_000


@pytest.mark.parametrize(
    "schema", ["", "[]", "null", "7", "{}", '{"type": 7}', '{"properties": 7}', '{"$ref": "#/elsewhere"}',
               '{"anyOf": []}', '{"oneOf": [{"type": "string"}]}', '{"type": ["string", "null"]}',
               '{"x-unchecked": true, "type": "string"}', '{"properties": {"a": {"enum": [[1]]}}}',
               '{"type": "integer", "minimum": "x"}']
)  # fmt: skip
def test_a_schema_that_is_not_understood_refuses_nothing(schema: str) -> None:
    checker = compile_checker(schema)
    for value in LEAVES:
        if checker is not None and (value is None or isinstance(value, dict)):
            checker(value)


def test_unions_of_many_alternatives_are_still_checked() -> None:
    kind = functools.reduce(operator.or_, [int, str, None, list[int], Circle, Square])
    assert verdicts(signature({"it": kind}, set()), {"it": 1.5})[1] is not None
    assert verdicts(signature({"it": kind}, set()), {"it": {"type": "square", "side": 1}})[1] is None


def test_objects_told_apart_by_a_number_are_taken() -> None:
    known = signature({"it": First | Second}, set())
    assert verdicts(known, {"it": {"type": 1, "a": 1}}) == (None, None)
    assert verdicts(known, {"it": {"type": "1", "a": 1}}) == ("payload.it.type: expected int, got str",) * 2


def test_a_union_that_msgspec_dies_of_is_not_made() -> None:
    bounded = Annotated[int, msgspec.Meta(ge=1)]
    assert verdicts(signature({"it": Range | bounded | None}, set()), {"it": [1, 2]}) == (None, None)
    with pytest.raises(Misconfigured, match="use a NamedTuple"):
        signature({"it": list[tuple[int, int] | bounded]}, set())

"""Payloads from signatures: what is accepted comes back as the handler's own types, what is not is named."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID, uuid4

import msgspec
import pydantic
import pydantic.dataclasses
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass import payload
from windlass.errors import InvalidPayload, Misconfigured
from windlass.worker.signature import Signature

if TYPE_CHECKING:
    from windlass.worker.context import Context


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int = 0


class Pair(NamedTuple):
    left: int
    right: str


class Options(TypedDict, total=False):
    depth: int


class Item(msgspec.Struct):
    sku: str
    price: Decimal


class Address(pydantic.BaseModel):
    street: str
    since: datetime | None = None


class StrictOrder(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    at: datetime
    lines: list[Address] = pydantic.Field(default=[], alias="rows")


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"


@pydantic.dataclasses.dataclass
class Positive:
    n: Annotated[int, pydantic.Field(gt=0)]


@dataclass
class Customer:
    name: str
    home: Address
    tree: "Customer | None" = None


def called(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """What the handler gets when these arguments have been through JSON text."""
    signature = Signature(fn)
    return signature.arguments(payload.encode(signature.payload(args, kwargs)))


_AT = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)


VALUES: list[tuple[Any, Any]] = [
    (int, 2**200),
    (float, 0.1),
    (str, "ä\u2028"),
    (bool, True),
    (bytes, b"\x00\xff"),
    (datetime, _AT),
    (date, date(2026, 2, 3)),
    (timedelta, timedelta(seconds=90)),
    (UUID, uuid4()),
    (Decimal, Decimal("0.12345678901234567890123456789")),
    (Colour, Colour.RED),
    (Literal["a", "b"], "b"),
    (int | None, None),
    (int | str | None, "x"),
    (list[UUID], [uuid4()]),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (tuple[int, str], (1, "a")),
    (dict[int, date], {7: date(2026, 2, 3)}),
    (dict[UUID, list[Point]], {uuid4(): [Point(1)]}),
    (Path, Path("/tmp/x")),
    (Point, Point(1, 2)),
    (Pair, Pair(1, "r")),
    (Options, {"depth": 3}),
    (Item, Item("a", Decimal("9.90"))),
    (Address, Address(street="Main", since=_AT)),
    (StrictOrder, StrictOrder(at=_AT, rows=[Address(street="x")])),
    (list[Address] | None, [Address(street="x")]),
    (Cat | Dog, Dog()),
    (Positive, Positive(n=3)),
    (Customer, Customer("ann", Address(street="x"), Customer("bob", Address(street="y")))),
    (Any, {"a": [1, None, 2.5]}),
    (object, [1]),
]


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_a_value_of_an_annotated_type_arrives_as_it_was_passed(kind: Any, value: Any) -> None:
    def handler(x: Any) -> None: ...

    handler.__annotations__["x"] = kind
    got = called(handler, value)["x"]
    assert got == value
    assert type(got) is type(value)


def _send(to: str, copies: int = 1, *, items: list[Item] = [], address: Address | None = None) -> None:  # noqa: B006
    ...


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{}", "payload.to: is missing"),
        ("null", "payload.to: is missing"),
        ("[]", "payload: expected object, got array"),
        ('{"to": 3}', "payload.to: expected str, got int"),
        ('{"to": "a", "copies": "3"}', "payload.copies: expected int, got str"),
        ('{"to": "a", "copies": true}', "payload.copies: expected int, got bool"),
        ('{"to": "a", "copies": 1.5}', "payload.copies: expected int, got float"),
        (
            '{"to": "a", "cpoies": 3}',
            "payload.cpoies: is no parameter of the handler; it has: to, copies, items, address",
        ),
        ('{"to": "a", "items": [{"sku": "s", "price": "1"}, {"sku": "s"}]}', "payload.items[1].price: is missing"),
        ('{"to": "a", "address": {}}', "payload.address.street: field required"),
        ('{"to": "a", "address": {"street": 5}}', "payload.address.street: input should be a valid string"),
        ("9" * 5000, "payload: cannot be read: Exceeds the limit"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_by_the_path_of_its_field(text: str, complaint: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        Signature(_send).arguments(text)
    assert str(caught.value).startswith(complaint)


@pytest.mark.parametrize(
    ("args", "kwargs", "complaint"),
    [
        ((), {}, "payload.to: is missing"),
        (("a", 1, 2), {}, "payload: takes 2 arguments by position, and got 3"),
        (("a",), {"to": "b"}, "payload.to: is given twice"),
        (("a", "3"), {}, "payload.copies: expected int, got str"),
        (("a",), {"cc": "b"}, "payload.cc: is no parameter"),
        (("a",), {"items": [object()]}, "payload.items: cannot be written as JSON: a object has no place"),
        (("a",), {"address": {"street": 1}}, "payload.address.street: input should be a valid string"),
    ],
)
def test_a_call_that_does_not_fit_is_refused_at_the_caller(
    args: tuple[Any, ...], kwargs: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidPayload) as caught:
        Signature(_send).payload(args, kwargs)
    assert str(caught.value).startswith(complaint)


def test_defaults_are_not_stored_so_that_a_new_default_holds_for_jobs_that_wait() -> None:
    assert Signature(_send).payload(("a",), {}) == {"to": "a"}
    assert Signature(_send).arguments('{"to":"a"}') == {"to": "a"}


def test_an_argument_without_annotation_must_be_json_as_it_is() -> None:
    def handler(x): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202

    assert called(handler, {"a": [1]}) == {"x": {"a": [1]}}
    with pytest.raises(InvalidPayload, match=r"payload.x: is a datetime"):
        called(handler, _AT)


def test_what_is_left_goes_to_kwargs_by_its_annotation() -> None:
    def handler(ctx: Any, a: int, **rest: date) -> None: ...

    assert called(handler, 1, b=date(2026, 1, 2)) == {"a": 1, "b": date(2026, 1, 2)}
    with pytest.raises(InvalidPayload, match=r"payload.b: expected date, got int"):
        Signature(handler).arguments('{"a": 1, "b": 3}')
    with pytest.raises(InvalidPayload, match=r"payload.ctx: is no parameter"):
        Signature(handler).arguments('{"a": 1, "ctx": "2026-01-02"}')


@pytest.mark.parametrize("text", ["null", "[1,2]", '"x"', '{"a":{"b":1e3}}', "12345678901234567890123"])
def test_a_single_parameter_named_payload_takes_the_whole_of_it(text: str) -> None:
    def handler(ctx: Any, payload: Any) -> None: ...

    assert Signature(handler).arguments(text) == {"payload": json.loads(text)}
    assert Signature(handler).payload((json.loads(text),), {}) == json.loads(text)


def test_the_whole_payload_is_converted_to_its_annotation() -> None:
    def handler(payload: Point) -> None: ...

    assert Signature(handler).payload((Point(1, 2),), {}) == {"x": 1, "y": 2}
    assert Signature(handler).arguments('{"x":1}') == {"payload": Point(1)}
    with pytest.raises(InvalidPayload, match=r"payload\.x: is missing"):
        Signature(handler).arguments("{}")
    with pytest.raises(InvalidPayload, match="payload: is missing"):
        Signature(handler).payload((), {})


def test_a_handler_without_parameters_takes_null_and_an_empty_object_only() -> None:
    def handler() -> None: ...

    assert Signature(handler).arguments("null") == Signature(handler).arguments("{}") == {}
    assert Signature(handler).payload((), {}) == {}
    with pytest.raises(InvalidPayload, match=r"payload.a: is no parameter of the handler; it has: none"):
        Signature(handler).arguments('{"a":1}')


def test_the_context_is_known_by_its_name_or_its_annotation() -> None:
    def by_name(ctx: Any, a: int) -> None: ...
    def by_annotation(c: "Context", a: int) -> None: ...
    def without(a: int) -> None: ...

    assert [Signature(fn).wants_ctx for fn in (by_name, by_annotation, without)] == [True, True, False]
    assert called(by_annotation, 3) == {"a": 3}


def _unreadable(x: complex) -> None: ...
def _unknown_name(x: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def _star(*args: int) -> None: ...
def _by_position(a: int, /) -> None: ...
def _method(self: Any) -> None: ...
def _late_ctx(a: int, ctx: Any) -> None: ...
def _ambiguous(x: Point | Customer) -> None: ...


@pytest.mark.parametrize(
    ("fn", "complaint"),
    [
        (_unreadable, "parameter x: complex cannot be made from JSON"),
        (_unknown_name, "parameter x: name 'Nowhere' is not defined"),
        (_star, r"\*args cannot be stored"),
        (_by_position, "a cannot be stored: arguments are kept by name"),
        (_method, "not a method"),
        (_late_ctx, "ctx must be the first parameter"),
        (_ambiguous, "parameter x: Type unions may not contain more than one"),
    ],
)
def test_a_parameter_that_no_payload_could_fill_is_refused_when_declared(fn: Any, complaint: str) -> None:
    with pytest.raises(Misconfigured, match=complaint):
        Signature(fn)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e", "z"]), _JSON, max_size=5))
def test_the_straight_way_from_json_to_arguments_says_what_the_long_way_says(stored: dict[str, Any]) -> None:
    def handler(a: int, b: str = "x", c: list[float] | None = None, d: Any = 1, e: Decimal = Decimal(1)) -> None: ...

    signature = Signature(handler)
    assert signature._straight is not None
    text = json.dumps(stored)
    try:
        straight = signature.arguments(text)
    except InvalidPayload as error:
        signature._straight = None
        with pytest.raises(InvalidPayload, match=re.escape(str(error))):
            signature.arguments(text)
        return
    signature._straight = None
    assert signature.arguments(text) == straight

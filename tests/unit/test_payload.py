"""A document comes back exactly as it went in, or is refused by the place that is wrong."""

import json
import math
from collections import OrderedDict, UserDict
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from windlass import payload
from windlass.errors import InvalidPayload
from windlass.payload import decode, depth_max, encode, payload_bytes_max


def nested(levels: int, inner: Any = None) -> Any:
    """A list within a list …: `levels` containers in all."""
    value: Any = [] if inner is None else [inner]
    for _ in range(levels - 1):
        value = [value]
    return value


def refusal(value: Any) -> InvalidPayload | None:
    """None if the value round-trips exactly."""
    try:
        text = encode(value)
    except InvalidPayload as error:
        return error
    text.encode()
    assert same(decode(text), value)
    return None


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same kinds: 1 is not True, 1 is not 1.0, 0.0 is not -0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return bool(one == other)


KEPT: dict[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    "zero": 0,
    "minus zero": -0.0,
    "one": 1,
    "one point zero": 1.0,
    "2^53 + 1": 2**53 + 1,
    "2^63": 2**63,
    "-2^63 - 1": -(2**63) - 1,
    "2^200": 2**200,
    "4,300 digits": 10**4300 - 1,
    "1e308": 1e308,
    "smallest float": 5e-324,
    "a third": 0.1 + 0.2,
    "empty object": {},
    "empty list": [],
    "empty text": "",
    "empty key": {"": ""},
    "a bare text": "hello",
    "newline, quote, tab": 'a\n"\t\r\b\f\x01\x7f',
    "backslash and u0000 as text": "\\u0000",
    "two backslashes and u0000": "\\\\u0000",
    "text that looks like an escape": '\\"\\ud800',
    "line separators": "\u2028\u2029\x85",
    "beyond the BMP": "😀\U0001d518\U0010ffff",
    "non-characters": "\ufffe\uffff",
    "byte order mark": "\ufeffa",
    "keys that differ by little": {"a": 1, "A": 2, " a": 3, "á": 4, "a\u0301": 5, "1": 6, "1.0": 7, "true": 8},
    "key order": {"b": 1, "a": 2, "c": 3},
    "prototype keys": {"__proto__": 1, "constructor": 2},
    "as deep as allowed": nested(depth_max, 1),
    "as large as allowed": "x" * (payload_bytes_max - 2),
    "as large as allowed, in bytes": "é" * ((payload_bytes_max - 2) // 2),
    "100,000 items": list(range(100_000)),
}


@pytest.mark.parametrize("value", KEPT.values(), ids=KEPT)
def test_what_is_accepted_decodes_to_exactly_the_same(value: Any) -> None:
    assert same(decode(encode(value)), value)


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


SELF: list[Any] = []
SELF.append(SELF)

REFUSED: dict[str, tuple[Any, str, str]] = {
    "NUL": ({"a": ["x", {"b": "x\0y"}]}, "payload.a[1].b", "NUL"),
    "NUL behind a backslash": ("\\\0", "payload", "NUL"),
    "NUL beside its escaped text": (["\\u0000", "\0"], "payload[1]", "NUL"),
    "NUL in a key": ({"a": {"\0": 1}}, "payload.a", "key that contains the NUL"),
    "lone high surrogate": ({"a": "\ud800"}, "payload.a", "surrogate"),
    "lone low surrogate": (["\udfff"], "payload[0]", "surrogate"),
    "surrogates the wrong way round": ("\udc00\ud800", "payload", "surrogate"),
    "surrogate in a key": ({"\ud800": 1}, "payload", "key that contains a lone surrogate"),
    "NaN": ({"a": [0.5, math.nan]}, "payload.a[1]", "nan"),
    "infinity": ({"a": math.inf}, "payload.a", "inf"),
    "minus infinity": (-math.inf, "payload", "-inf"),
    "5,000 digits": ({"a": [1, 10**5000]}, "payload.a[1]", "digits"),
    "-5,000 digits": (-(10**5000), "payload", "digits"),
    "101 deep": (nested(depth_max + 1), "payload[0][0]", "deeper than 100"),
    "1,000 deep": (nested(1_000), "payload[0]", "deeper than 100"),
    "100,000 deep": (nested(100_000), "payload[0]", "deeper than 100"),
    "contains itself": (SELF, "payload[0]", "deeper than 100"),
    "one byte too large": ("x" * (payload_bytes_max - 1), "payload", "1,048,577 bytes"),
    "too large in bytes, not in characters": ("é" * (payload_bytes_max // 2), "payload", "bytes"),
    "whole number as key": ({"a": {1: 2}}, "payload.a", "key that is a int"),
    "5,000 digits as key": ({10**5000: 1}, "payload", "key that is a int"),
    "true as key": ({True: 2}, "payload", "key that is a bool"),
    "null as key": ({None: 2}, "payload", "key that is a NoneType"),
    "tuple as key": ({(1, 2): 2}, "payload", "key that is a tuple"),
    "enum as key": ({Colour.RED: 1}, "payload", "key that is a Colour"),
    "bytes": ({"a": b"x"}, "payload.a", "is a bytes"),
    "set": ([{1}], "payload[0]", "is a set"),
    "object": (object(), "payload", "is a object"),
    "complex": (1j, "payload", "is a complex"),
    "decimal": (Decimal(1), "payload", "is a Decimal"),
    "moment": ({"at": datetime(2026, 1, 1, tzinfo=UTC)}, "payload.at", "is a datetime"),
    "uuid": (UUID(int=1), "payload", "is a UUID"),
    "enum": ([Colour.RED], "payload[0]", "is a Colour"),
    "whole enum": (Level.LOW, "payload", "is a Level"),
    "ordered dict": (OrderedDict(a=1), "payload", "is a OrderedDict"),
    "user dict": (UserDict(a=1), "payload", "is a UserDict"),
}


@pytest.mark.parametrize(("value", "place", "problem"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_is_named_by_its_place(value: Any, place: str, problem: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        encode(value)
    found = caught.value.field
    assert found.startswith(place) if "deeper" in problem else found == place
    assert problem in caught.value.problem


def test_a_tuple_comes_back_as_a_list() -> None:
    assert decode(encode({"a": (1, (2, 3))})) == {"a": [1, [2, 3]]}


def test_the_field_and_the_limit_are_the_callers() -> None:
    assert encode("xx", "result", bytes_max=4) == '"xx"'
    with pytest.raises(InvalidPayload, match=r"^result: is 5 bytes of JSON; the most is 4$"):
        encode("xxx", "result", bytes_max=4)


def test_the_place_can_be_printed_whatever_the_keys_are() -> None:
    with pytest.raises(InvalidPayload) as caught:
        encode({"a\n\x1b[31m\ud800" + "k" * 10_000: math.nan})
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_a_document_changed_while_it_is_written_is_refused_not_raised_through(monkeypatch: pytest.MonkeyPatch) -> None:
    value: dict[str, Any] = {"a": [1], "b": [2]}
    is_plain = payload._is_plain

    def meddled_with(part: Any, depth: int, room: list[int]) -> bool:
        """Another thread, at the worst moment: while the walk over the dict is inside its first item. Not by a profiler: in
        Python 3.11 it never returns from a call while another thread has an exception that it does not come to."""
        if part is value["a"]:
            value["c"] = [3]
        return is_plain(part, depth, room)

    monkeypatch.setattr(payload, "_is_plain", meddled_with)
    error = refusal(value)
    assert error is not None
    assert "another thread" in error.problem


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)


@given(json_values)
@example({"\\": "\\\\u0000", "\\u0000": "\\"})
def test_any_json_round_trips_or_contains_nul(value: Any) -> None:
    if error := refusal(value):
        assert "NUL" in error.problem
        assert r"\u0000" in json.dumps(value)


@given(st.text(st.sampled_from('\\u0"\0d8a'), max_size=30))
def test_nul_is_found_however_many_backslashes_stand_before_it(text: str) -> None:
    if "\0" in text:
        with pytest.raises(InvalidPayload, match="NUL"):
            encode([text])
    else:
        assert decode(encode([text])) == [text]


anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.floats() | st.text(st.characters(codec=None)) | st.binary() | st.integers() | st.complex_numbers(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec=None), max_size=4) | st.integers(), inner, max_size=4)
        | st.sets(st.integers(), max_size=2)
    ),
    max_leaves=20,
)


@given(anything)
def test_any_value_at_all_round_trips_or_raises_invalid_payload(value: Any) -> None:
    if error := refusal(value):
        str(error).encode()


def test_values_that_share_their_members_are_refused_before_they_are_walked_for_ever() -> None:
    value: list[object] = []
    for _ in range(90):
        value = [value, value]
    with pytest.raises(InvalidPayload, match="more values"):
        encode(value)

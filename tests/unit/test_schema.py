"""The schema of a payload lets in what the handler takes, as far as JSON Schema can say it."""

import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from windlass.model import Declared, RetryPolicy
from windlass.worker.registry import Defaults, JobType


@dataclass
class Item:
    sku: str
    count: int = 1


class Order(pydantic.BaseModel):
    items: list[int]
    colour: Literal["red", "green"] = "red"


def of(fn: Any) -> dict[str, Any] | None:
    text = JobType(fn, "t").declared().schema
    found: dict[str, Any] | None = None if text is None else json.loads(text)
    return found


def test_named_parameters_are_the_properties_of_an_object() -> None:
    def handler(ctx: Any, to: str, copies: int = 2, *, path: Path = Path("a/b"), note: str | None = None) -> None: ...

    assert of(handler) == {
        "type": "object",
        "properties": {
            "to": {"type": "string"},
            "copies": {"type": "integer", "default": 2},
            "path": {"type": "string", "format": "path", "default": "a/b"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["to"],
        "additionalProperties": False,
    }


def test_what_a_type_refers_to_is_told_with_it() -> None:
    def handler(items: list[Item], order: Order) -> None: ...

    schema = of(handler)
    assert schema is not None
    assert schema["properties"]["items"] == {"type": "array", "items": {"$ref": "#/$defs/Item"}}
    assert schema["properties"]["order"]["properties"]["colour"]["enum"] == ["red", "green"]
    assert schema["$defs"]["Item"]["properties"]["count"] == {"type": "integer", "default": 1}


def test_any_other_names_are_let_in_where_the_handler_takes_them() -> None:
    def numbers(**rest: int) -> None: ...

    def anything(**rest: Any) -> None: ...

    def nothing() -> None: ...

    assert [(of(fn) or {})["additionalProperties"] for fn in (numbers, anything, nothing)] == [
        {"type": "integer"},
        True,
        False,
    ]


def test_a_whole_payload_is_its_own_schema() -> None:
    def texts(payload: list[str]) -> None: ...

    def anything(payload: Any) -> None: ...

    def perhaps(payload: dict[str, Item] | None = None) -> None: ...

    assert of(texts) == {"type": "array", "items": {"type": "string"}}
    assert of(anything) == {}
    assert set(of(perhaps) or {}) == {"anyOf", "default", "x-optional", "$defs"}


class Opaque:
    """Nothing that JSON knows."""


class Odd(pydantic.BaseModel):
    model_config = {"arbitrary_types_allowed": True}
    it: Opaque


@dataclass
class Holder:
    order: Order


def _odd(it: Odd) -> None: ...


def _odds(it: list[Odd]) -> None: ...


def _held(it: Holder) -> None: ...


@pytest.mark.parametrize("fn", [_odd, _odds, _held])
def test_a_type_that_no_schema_can_tell_is_declared_without(fn: Any) -> None:
    assert of(fn) is None


class Lenient(Enum):
    RED = "red"

    @classmethod
    def _missing_(cls, _value: object) -> "Lenient":
        return cls.RED


def test_a_parameter_that_takes_more_than_its_schema_says_is_marked() -> None:
    by_hand = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 5})]

    def handler(order: Order, some: list[Order], lenient: list[Lenient], odd: by_hand, item: Item) -> None: ...

    properties = (of(handler) or {})["properties"]
    marked = {name for name, schema in properties.items() if schema.get("x-unchecked")}
    assert marked == {"order", "some", "lenient", "odd"}


def test_a_default_that_json_cannot_say_is_left_out() -> None:
    def handler(least: float = float("-inf"), some: Any = object) -> None: ...

    assert (of(handler) or {})["properties"] == {"least": {"type": "number"}, "some": {}}


def test_a_declaration_says_all_that_was_declared() -> None:
    def send(to: str) -> None:
        """Send it.

        Once.
        """

    retry = RetryPolicy(base_s=5)
    defaults = Defaults("mail", 2, 7, 60, retry, "process", 3, ["a"], "wait")
    declared = JobType(send, "mail.send", defaults).declared()
    assert declared == Declared(
        name="mail.send", queue="mail", priority=3, thread_demand=2, max_attempts=7, timeout_s=60, retry=retry, tags=("a",),
        if_too_wide="wait", isolation="process", description="Send it.\n\nOnce.", schema=declared.schema, fields=("to",),
    )  # fmt: skip
    send.__doc__ = "x" * 100_000
    assert len(JobType(send).declared().description or "") == 4_000
    send.__doc__ = None
    assert JobType(send).declared().description is None

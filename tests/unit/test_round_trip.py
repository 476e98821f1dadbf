"""Pydantic values that would come back from JSON as others are refused at the caller; ordinary ones never are."""

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pydantic
import pydantic.dataclasses
import pytest

from windlass import payload
from windlass.errors import InvalidPayload
from windlass.worker.round_trip import lost
from windlass.worker.signature import Signature


class Colour(Enum):
    RED = "red"


class Size(IntEnum):
    BIG = 3


class Login(pydantic.BaseModel):
    user: str
    password: pydantic.SecretStr = pydantic.SecretStr("")


class Excluding(pydantic.BaseModel):
    a: int
    b: int = pydantic.Field(default=0, exclude=True)


class Renamed(pydantic.BaseModel):
    """Written by one name and read by another: the default would stand in for the value."""

    a: int = pydantic.Field(default=1, validation_alias="in", serialization_alias="out")


@pydantic.dataclasses.dataclass
class SecretPair:
    key: pydantic.SecretBytes


@dataclass
class Holder:
    login: Login


class Square(pydantic.BaseModel):
    side: int


class Cube(pydantic.BaseModel):
    side: int


class Named(Square):
    name: str = "x"


class Ordinary(pydantic.BaseModel):
    """What models are made of every day."""

    model_config = pydantic.ConfigDict(populate_by_name=True)
    number: float = 0.1
    exact: Decimal = Decimal("1.10")
    moment: datetime = datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
    naive: datetime = datetime(2026, 2, 3, 4, 5, 6)  # noqa: DTZ001
    day: date = date(2026, 2, 3)
    hour: time = time(4, 5, 6, 7)
    span: timedelta = timedelta(days=400, microseconds=1)
    id: UUID = pydantic.Field(default_factory=uuid4)
    colour: Colour = Colour.RED
    size: Size = Size.BIG
    path: Path = Path("/tmp/x")
    url: pydantic.HttpUrl | None = None
    raw: bytes = b"abc"
    tags: set[str] = {"a", "b"}
    pair: tuple[int, str] = (1, "a")
    by_id: dict[int, date] = {7: date(2026, 2, 3)}
    inner: "list[Ordinary]" = []
    aliased: int = pydantic.Field(default=1, alias="aliasedName")
    anything: Any = None
    _private: int = 5

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> float:
        return self.number * 2


class Odd(pydantic.BaseModel):
    """Compares as nobody expects."""

    a: int

    def __eq__(self, _other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


class Opaque:
    """Has no comparison of its own."""


class Carrying(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    it: Annotated[Opaque, pydantic.PlainValidator(lambda _: Opaque()), pydantic.PlainSerializer(lambda _: "opaque")]


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")


def stored(kind: Any, value: Any) -> dict[str, Any]:
    def handler(x: Any) -> None: ...

    handler.__annotations__["x"] = kind
    signature = Signature(handler)
    return signature.arguments(payload.encode(signature.payload((value,), {})))


@pytest.mark.parametrize(
    ("kind", "value", "field"),
    [
        (Login, Login(user="ann", password=pydantic.SecretStr("hunter2")), "payload.x.password"),
        (Login, {"user": "ann", "password": "hunter2"}, "payload.x.password"),
        (list[Login], [{"user": "ann"}, {"user": "bob", "password": "hunter2"}], "payload.x[1].password"),
        (dict[str, Login], {"k": Login(user="ann", password=pydantic.SecretStr("hunter2"))}, "payload.x.k.password"),
        (SecretPair, SecretPair(pydantic.SecretBytes(b"hunter2")), "payload.x.key"),
        (Excluding, Excluding(a=1, b=5), "payload.x.b"),
        (Renamed, Renamed.model_validate({"in": 3}), "payload.x.a"),
        (Square, Named(side=1), "payload.x.name"),
        (Square | Cube, Cube(side=1), "payload.x"),
        (Ordinary, Ordinary(anything=date(2026, 2, 3)), "payload.x.anything"),
        (Open, Open.model_validate({"a": {1: 2}}), "payload.x.a"),
        (Holder, Holder(Login(user="ann", password=pydantic.SecretStr("hunter2"))), "payload.x"),
    ],
)
def test_a_value_that_json_would_change_is_refused_at_the_caller(kind: Any, value: Any, field: str) -> None:
    with pytest.raises(InvalidPayload, match="does not survive JSON") as refused:
        stored(kind, value)
    assert refused.value.field == field
    assert "hunter2" not in str(refused.value)


_INNER = Ordinary(number=1e308, moment=datetime(2026, 7, 1, tzinfo=ZoneInfo("Europe/Berlin")))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Ordinary, Ordinary()),
        (Ordinary, {}),
        (
            Ordinary,
            Ordinary(inner=[_INNER, Ordinary(inner=[_INNER])], aliasedName=7, url=pydantic.HttpUrl("http://a/b")),
        ),
        (Ordinary, Ordinary(moment=datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))))),
        (Ordinary, Ordinary(number=5, anything={"a": (1, [2.5, None])})),
        (Ordinary | None, None),
        (list[Ordinary] | Square, Square(side=1)),
        (Login, Login(user="ann")),
        (Excluding, Excluding(a=1)),
        (Odd, Odd(a=1)),
        (Carrying, Carrying(it=Opaque())),
        (Open, Open.model_validate({"a": {"b": [1]}})),
        (pydantic.RootModel[list[int]], [1, 2]),
        (Holder, Holder(Login(user="ann"))),
    ],
)
def test_ordinary_models_are_stored(kind: Any, value: Any) -> None:
    assert set(stored(kind, value)) == {"x"}


def test_a_subclass_without_fields_of_its_own_goes_as_its_base() -> None:
    class Same(Square):
        pass

    assert stored(Square, Same(side=2))["x"] == Square(side=2)


def test_not_a_number_is_itself_and_what_cannot_be_compared_is_no_loss() -> None:
    class Array:
        def __eq__(self, _other: object) -> bool:
            raise ValueError("the truth of an array is ambiguous")

        __hash__ = None  # type: ignore[assignment]

    assert lost([math.nan, Array()], [math.nan, Array()], "x") is None
    assert lost([math.nan], [1.0], "x") == "x[0]"

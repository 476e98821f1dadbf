"""Results from signatures: what a handler returns comes back as the type it is annotated with, or says why it cannot."""

import math
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

import pydantic
import pytest

from tests.unit.test_signature import VALUES, Point
from windlass.errors import InvalidPayload, Misconfigured
from windlass.worker.registry import JobType
from windlass.worker.result_type import ResultType, StepResult

if TYPE_CHECKING:
    from collections import UserDict


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_a_result_of_an_annotated_type_comes_back_as_it_was_returned(kind: Any, value: Any) -> None:
    def handler() -> Any: ...

    handler.__annotations__["return"] = kind
    result_type = JobType(handler).result_type
    text, problem = result_type.encode(value)
    assert problem is None
    back = result_type.decode(text)
    assert back == value
    assert type(back) is type(value)


def test_a_result_without_annotation_comes_back_as_json() -> None:
    def handler():  # type: ignore[no-untyped-def]  # noqa: ANN202
        ...

    result_type = JobType(handler).result_type
    returned = {"at": datetime(2026, 2, 3, tzinfo=UTC), 7: [Point(1), {b"a"}], "plain": (1, None)}
    text, problem = result_type.encode(returned)
    assert problem is None
    assert result_type.decode(text) == {
        "at": "2026-02-03T00:00:00Z",
        "7": [{"x": 1, "y": 0}, ["YQ=="]],
        "plain": [1, None],
    }


class Stranger: ...


def _unreadable() -> Stranger: ...  # type: ignore[empty-body]


def _ambiguous() -> "date | UUID": ...  # type: ignore[empty-body]


def _unresolved() -> "UserDict[str, int]": ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("handler", "complaint"),
    [
        (_unreadable, r"its result cannot be stored: Stranger cannot be made from JSON; use a dataclass"),
        (_ambiguous, r"its result cannot be stored: Type unions may not contain more than one str-like type"),
        (_unresolved, r"its result cannot be stored: name 'UserDict' is not defined"),
    ],
)
def test_a_result_type_that_cannot_be_stored_is_refused_when_it_is_declared(handler: Any, complaint: str) -> None:
    with pytest.raises(Misconfigured, match=complaint):
        JobType(handler)


def test_a_handler_that_never_returns_has_no_result() -> None:
    def handler() -> NoReturn:
        raise NotImplementedError

    assert JobType(handler).result_type.decode(None) is None


class Broken(pydantic.BaseModel):
    secret: pydantic.SecretStr


@dataclass
class Measured:
    value: float


@pytest.mark.parametrize(
    ("kind", "value", "complaint"),
    [
        (Any, object(), "result: cannot be written as JSON: a object has no place"),
        (Any, {"a": [object()]}, "result.a[0]: is a object; JSON has"),
        (float, math.nan, "result: is nan; JSON has only finite numbers"),
        (Measured, Measured(math.inf), "result.value: is inf; JSON has only finite numbers"),
        (str, "a\0", "result: contains the NUL character"),
        (str, "x" * 2_000_000, "result: is 2,000,002 bytes of JSON; the most is"),
        (Broken, Broken(secret=pydantic.SecretStr("s")), "result.secret: does not survive JSON"),
    ],
)
def test_what_cannot_be_stored_says_why_and_raises_nothing(kind: Any, value: Any, complaint: str) -> None:
    text, problem = ResultType(kind).encode(value)
    assert text is None
    assert str(problem).startswith(complaint)


class Fussy(pydantic.BaseModel):
    n: int

    @pydantic.field_serializer("n")
    def refuse(self, n: int) -> int:
        raise ZeroDivisionError(f"no {n}")


@pytest.mark.parametrize("kind", [Any, Fussy])
def test_a_type_whose_own_code_fails_while_it_is_written_raises_nothing(kind: Any) -> None:
    text, problem = ResultType(kind).encode(Fussy(n=1))
    assert text is None
    assert "result: cannot be written as JSON: " in str(problem)
    assert "ZeroDivisionError: no 1" in str(problem)


@pytest.mark.parametrize(("kind", "text"), [(int, '"x"'), (int, None), (None, "{}"), (Point, '{"y": 1}')])
def test_a_stored_result_of_another_type_is_never_passed_off_as_one(kind: Any, text: str | None) -> None:
    with pytest.raises(InvalidPayload, match=r"^result"):
        ResultType(kind).decode(text)


# Steps. ---------------------------------------------------------------------------------------------------------------


def _point(x: int) -> Point:
    return Point(x)


async def _apoint(x: int) -> Point:
    return Point(x)


def _later(x: int) -> Awaitable[Point]:
    return _apoint(x)


@pytest.mark.parametrize("fn", [_point, _apoint, _later, partial(_point, 1)])
def test_the_result_of_a_step_comes_back_as_its_function_says(fn: Any) -> None:
    step = StepResult("draw", fn)
    assert step.decode(step.encode(Point(1))) == Point(1)


@pytest.mark.parametrize("fn", [lambda: Point(1), print, len, _unresolved])
def test_the_result_of_a_step_without_a_type_is_json(fn: Any) -> None:
    step = StepResult("draw", fn)
    assert step.decode(step.encode(Point(1))) == {"x": 1, "y": 0}


def test_a_step_whose_result_could_never_be_kept_is_refused_before_it_is_done() -> None:
    with pytest.raises(InvalidPayload, match=r"result of step 'draw': cannot be kept: Stranger cannot be made from"):
        StepResult("draw", _unreadable)


def test_a_kept_result_that_its_function_no_longer_returns_is_named() -> None:
    with pytest.raises(InvalidPayload, match=r"^result of step 'draw': is kept, but is no longer what its function"):
        StepResult("draw", _point).decode('"a point"')

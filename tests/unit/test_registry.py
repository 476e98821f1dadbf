"""Declaring job types: what may be declared, and what a declaration says."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

from windlass import AsyncContext, Context
from windlass.errors import Misconfigured
from windlass.worker.registry import Defaults, JobType, Registry


async def send(to: str) -> str:
    return f"to {to}"


def resize(ctx: Any, width: int) -> int:
    return width * 2


async def test_a_job_type_is_called_like_its_function() -> None:
    assert await JobType(send)("ann") == "to ann"
    assert JobType(resize)(None, width=3) == 6


def test_a_job_type_says_how_its_handler_is_run() -> None:
    declared = JobType(resize, "images.resize", Defaults(threads=4, timeout=timedelta(minutes=2), isolation="process"))
    assert (declared.name, declared.is_async, declared.wants_ctx) == ("images.resize", False, True)
    assert (declared.threads, declared.timeout_s, declared.isolation) == (4, 120.0, "process")
    assert declared.arguments('{"width": 3}') == {"width": 3}
    assert JobType(send).name == "send"
    assert JobType(send).is_async


def _numbers() -> Iterator[int]:
    yield 1


async def _anumbers() -> AsyncIterator[int]:
    yield 1


async def _waits_with_a_plain_context(ctx: Context) -> None: ...


def _blocks_with_an_async_one(context: AsyncContext) -> None: ...


def _says_it_in_a_text(ctx: "windlass.AsyncContext") -> None: ...  # type: ignore[name-defined]  # noqa: F821


def _takes_either(ctx: Context | AsyncContext) -> None: ...


def test_a_handler_that_takes_either_context_may() -> None:
    assert JobType(_takes_either).wants_ctx
    assert JobType(_takes_either, "listed", Defaults(tags=["a"])).tags == ("a",)


@pytest.mark.parametrize(
    ("fn", "name", "defaults", "complaint"),
    [
        (_numbers, None, {}, "is a generator"),
        (_anumbers, None, {}, "is a generator"),
        (int, None, {}, "must be a function"),
        (lambda: None, None, {}, "type: must be 1 to 200"),
        (send, "", {}, "type: must be 1 to 200"),
        (send, "with space", {}, "type: must be 1 to 200"),
        (send, None, {"queue": "a b"}, "queue: must be"),
        (send, None, {"threads": 0}, "thread_demand: must be"),
        (send, None, {"timeout": timedelta(0)}, "timeout_s: must be"),
        (send, None, {"priority": 101}, "priority: must be"),
        (send, None, {"isolation": "thread"}, "isolation: must be none or process"),
        (send, 5, {}, "type: must be 1 to 200"),
        (send, None, {"tags": "abc"}, "tags: must be a tuple or list"),
        (send, None, {"tags": 5}, "tags: must be a tuple or list"),
        (_waits_with_a_plain_context, None, {}, "the context of async def is AsyncContext, not Context"),
        (_blocks_with_an_async_one, None, {}, "the context of def is Context, not AsyncContext"),
        (_says_it_in_a_text, None, {}, "the context of def is Context, not AsyncContext"),
        (send, None, {"retry": 3}, "retry: must be a RetryPolicy"),
    ],
)
def test_a_declaration_that_could_not_work_is_refused_by_the_name_of_its_function(
    fn: Any, name: str | None, defaults: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(Misconfigured, match=f"^job .*: {complaint}"):
        JobType(fn, name, Defaults(**defaults))


def test_a_name_is_declared_once() -> None:
    registry = Registry()
    registry.add(JobType(send))
    with pytest.raises(Misconfigured, match=r"two jobs are named 'send': .*send and .*resize; give one another name="):
        registry.add(JobType(resize, "send"))
    assert list(registry) == ["send"]

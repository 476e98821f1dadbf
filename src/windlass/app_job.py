"""What `@app.job` makes of a function, and the types of that: what type checkers know of a call and of its result.

Callers pass no context, so a handler's `ctx` is taken off its parameters; an `async def` handler's result is what it
returns when it is awaited. `P` and `R` are the parameters and the result of a job, `C` and `S` those of the function.
"""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from windlass.errors import Misconfigured
from windlass.sdk.calls import Call
from windlass.sdk.link import Link
from windlass.worker.registry import Defaults, JobType

if TYPE_CHECKING:  # importing it costs a program that only enqueues a third more time
    from windlass.worker.context import AsyncContext, Context

P = ParamSpec("P")
R = TypeVar("R")
C = ParamSpec("C")
S = TypeVar("S")


class Unannotated:
    """Stands for a first parameter that takes anything. Nobody makes one: only Any, object and no annotation accept it.

    Without it a handler `def received(payload: Any)` would pass for one whose first parameter is a context.
    """


class AppJob(JobType, Call[P, R], Generic[P, R, C, S]):
    """What `@app.job` makes of a function: the job type, and the ways to enqueue it."""

    def __init__(self, link: Link, fn: Callable[C, S], name: str | None, defaults: Defaults) -> None:
        JobType.__init__(self, fn, name, defaults)
        if "connection" in self.signature.names:
            raise Misconfigured(f"job {self.name!r}: a parameter cannot be named connection: enqueue has one")
        read, once = self.result_type.decode, self.at_most_once
        Call.__init__(self, link, self.template, self.signature.payload, read, started_once=once)

    def __call__(self, *args: C.args, **kwargs: C.kwargs) -> S:
        return cast("S", self.fn(*args, **kwargs))


class Declare(Protocol):
    """`@app.job(…)`: makes a job type of a function."""

    @overload
    def __call__(
        self, fn: Callable[Concatenate[Unannotated, ...], Coroutine[Any, Any, R]], /
    ) -> AppJob[..., R, ..., Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, fn: Callable[Concatenate[Unannotated, ...], R], /) -> AppJob[..., R, ..., R]: ...

    @overload
    def __call__(
        self, fn: "Callable[Concatenate[AsyncContext, P], Coroutine[Any, Any, R]]", /
    ) -> "AppJob[P, R, Concatenate[AsyncContext, P], Coroutine[Any, Any, R]]": ...

    @overload
    def __call__(self, fn: "Callable[Concatenate[Context, P], R]", /) -> "AppJob[P, R, Concatenate[Context, P], R]": ...

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AppJob[P, R, P, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, fn: Callable[P, R], /) -> AppJob[P, R, P, R]: ...

    def __call__(self, fn: Any, /) -> Any: ...

"""The types of jobs a program knows: each a handler with its defaults. Knows nothing of the store or of running.

A worker looks a claimed job up here, by its type, and gets the function to call and the arguments to call it with.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from windlass.errors import InvalidJob, Misconfigured
from windlass.model import (
    Declared,
    IsolationMode,
    NewJob,
    RetryPolicy,
    TooWide,
    check_new_job,
    check_number,
    declarable,
    description_max,
    memory_limit_mb_max,
    seconds,
)
from windlass.worker.signature import Signature

if TYPE_CHECKING:
    from windlass.worker.hooks import Hooks

_ATTEMPTS: Final = 3


class Defaults(NamedTuple):
    """What `@app.job(…)` says of every job of a type; a single job may say otherwise. `max_attempts` that is not said is 3, or
    1 for a type whose jobs are started once at most."""

    queue: str = "default"
    threads: int = 1
    max_attempts: int | None = None
    timeout: float | timedelta = 3600.0
    retry: RetryPolicy | None = None
    isolation: IsolationMode = "none"
    priority: int = 0
    tags: Sequence[str] = ()
    if_too_wide: TooWide = "narrow"
    at_most_once: bool = False
    memory_limit_mb: int | None = None


class JobType:
    """A named handler. Calling it calls the function: that is how it is tested. `hooks`: those of its app, if any."""

    __name__: str
    hooks: "Hooks | None" = None

    def __init__(self, fn: Callable[..., Any], name: str | None = None, defaults: Defaults | None = None) -> None:
        defaults = defaults or Defaults()
        self.at_most_once = defaults.at_most_once
        self.name: str = getattr(fn, "__name__", "") if name is None else name
        self.fn = fn
        with _blamed(fn, self.name):
            _refuse_what_is_no_function(fn)
            self.is_async = inspect.iscoroutinefunction(fn)
            self.signature = Signature(fn)
            _refuse_the_other_context(self.signature.ctx_kind, is_async=self.is_async)
            self.template = _template(self.name, defaults)
        self.wants_ctx = self.signature.wants_ctx
        self.result_type = self.signature.result_type
        self.queue = defaults.queue
        self.threads = defaults.threads
        self.max_attempts = self.template.max_attempts
        self.timeout_s = self.template.timeout_s
        self.retry = defaults.retry
        self.isolation: IsolationMode = defaults.isolation
        self.memory_limit_mb = defaults.memory_limit_mb
        self.priority = defaults.priority
        self.tags = self.template.tags
        self.if_too_wide: TooWide = defaults.if_too_wide
        self.arguments: Callable[[str], dict[str, Any]] = self.signature.arguments
        functools.update_wrapper(self, fn, updated=())

    @functools.cached_property
    def digest(self) -> str:
        """Which version of the type this is, as its worker has declared it."""
        return self.declared().digest

    def declared(self) -> Declared:
        """The type as others see it: its defaults, what its docstring says, and the schema of its payload."""
        return Declared(
            name=self.name,
            queue=self.queue,
            priority=self.priority,
            thread_demand=self.threads,
            max_attempts=self.max_attempts,
            timeout_s=self.timeout_s,
            retry=self.retry,
            tags=self.tags,
            if_too_wide=self.if_too_wide,
            isolation=self.isolation,
            at_most_once=self.at_most_once,
            description=(inspect.getdoc(self.fn) or "")[:description_max] or None,
            schema=self.signature.schema(),
            fields=self.signature.fields,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<job type {self.name}>"


class Registry(Mapping[str, JobType]):
    """Job types by name."""

    def __init__(self) -> None:
        self._types: dict[str, JobType] = {}

    def add(self, job: JobType) -> None:
        there = self._types.get(job.name)
        if there is not None:
            raise Misconfigured(
                f"two jobs are named {job.name!r}: {_where(there.fn)} and {_where(job.fn)}; give one another name="
            )
        self._types[job.name] = job

    def __getitem__(self, name: str) -> JobType:
        return self._types[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __len__(self) -> int:
        return len(self._types)


def _template(name: str, defaults: Defaults) -> NewJob:
    """A job of this type with nothing said: refused here if such a job could not be stored."""
    if defaults.isolation not in {"none", "process"}:
        raise InvalidJob("isolation", "must be none or process")
    if defaults.memory_limit_mb is not None:
        if defaults.isolation != "process":
            raise InvalidJob("memory_limit_mb", 'needs isolation="process": only a process of its own can be limited')
        check_number("memory_limit_mb", defaults.memory_limit_mb, 1, memory_limit_mb_max)
    if not isinstance(defaults.tags, list | tuple):  # a single text would become its letters
        raise InvalidJob("tags", "must be a tuple or list of texts")
    job = NewJob(
        type=name,
        queue=defaults.queue,
        priority=defaults.priority,
        thread_demand=defaults.threads,
        max_attempts=_max_attempts(defaults),
        timeout_s=seconds(defaults.timeout),
        retry=defaults.retry,
        tags=tuple(defaults.tags),
        if_too_wide=defaults.if_too_wide,
        inherited=declarable,
    )
    check_new_job(job)
    return job


def _max_attempts(defaults: Defaults) -> int:
    if defaults.max_attempts is None:
        return 1 if defaults.at_most_once else _ATTEMPTS
    if defaults.at_most_once and defaults.max_attempts != 1:
        raise InvalidJob("max_attempts", f"must be 1 or be left out with at_most_once, not {defaults.max_attempts}")
    return defaults.max_attempts


def _refuse_what_is_no_function(fn: Any) -> None:
    if not (inspect.isfunction(fn) or inspect.ismethod(fn)):
        raise Misconfigured("must be a function, made with def or async def")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise Misconfigured("is a generator: nobody would take what it yields; return a value")


def _refuse_the_other_context(kind: str | None, *, is_async: bool) -> None:
    """What it would call on the context is not there, or is never awaited; it would be told in every job."""
    if kind is not None and (kind == "AsyncContext") != is_async:
        right, wrong = ("async def", "AsyncContext") if is_async else ("def", "Context")
        raise Misconfigured(f"the context of {right} is {wrong}, not {kind}")


class _blamed:  # noqa: N801, reads as a clause: with _blamed(fn, name)
    """Whatever is wrong with a declaration, with the function it is about."""

    def __init__(self, fn: Any, name: str) -> None:
        self._about = f"job {name!r} ({_where(fn)})"

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, InvalidJob | Misconfigured):
            raise Misconfigured(f"{self._about}: {error}") from None


def _where(fn: Any) -> str:
    return f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', type(fn).__name__)}"

"""The programmer's way in, and the second place (after the cli) that wires parts together: `app = App()`.

An App holds the job types a program declares and enqueues them. A worker is told which App to run. Nothing is opened,
and no driver imported, before the first call that needs the database.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar, Unpack, overload
from uuid import UUID

from windlass.app_job import AppJob, Declare, Unannotated
from windlass.config import Config, RedisConfig, StoreConfig, load
from windlass.model import Enqueued, IsolationMode, NewJob, RetryPolicy, TooWide, check_text, type_name_max
from windlass.sdk.calls import Handle, JobOptions, check_id, listed, with_options
from windlass.sdk.link import Link, Opened
from windlass.store.protocol import Intake, Upkeep, Views
from windlass.worker.hooks import DeclaresHooks
from windlass.worker.registry import Defaults, JobType, Registry

if TYPE_CHECKING:  # importing it costs a program that only enqueues a third more time
    from windlass.worker.context import AsyncContext, Context

P = ParamSpec("P")
R = TypeVar("R")

_DECLARE_S: Final = 1.0
_log: Final = logging.getLogger(__name__)


class App(DeclaresHooks):
    """Job types by name, and the store they are enqueued to: `config`, or WINDLASS_DATABASE_URL at the first use."""

    def __init__(self, name: str | None = None, *, config: StoreConfig | None = None) -> None:
        if name is not None:
            check_text("name", name, type_name_max)
        super().__init__()
        self.name = name or "app"
        self._registry = Registry()
        self._wiring = _Wiring(config, self._registry)
        self._link = Link(self._wiring)

    @property
    def types(self) -> Mapping[str, JobType]:
        """What a worker of this program can run."""
        return self._registry

    # Declare. -------------------------------------------------------------------------------------------------------

    @overload
    def job(
        self, fn: Callable[Concatenate[Unannotated, ...], Coroutine[Any, Any, R]], /
    ) -> AppJob[..., R, ..., Coroutine[Any, Any, R]]: ...

    @overload
    def job(self, fn: Callable[Concatenate[Unannotated, ...], R], /) -> AppJob[..., R, ..., R]: ...

    @overload
    def job(
        self, fn: "Callable[Concatenate[AsyncContext, P], Coroutine[Any, Any, R]]", /
    ) -> "AppJob[P, R, Concatenate[AsyncContext, P], Coroutine[Any, Any, R]]": ...

    @overload
    def job(self, fn: "Callable[Concatenate[Context, P], R]", /) -> "AppJob[P, R, Concatenate[Context, P], R]": ...

    @overload
    def job(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AppJob[P, R, P, Coroutine[Any, Any, R]]: ...

    @overload
    def job(self, fn: Callable[P, R], /) -> AppJob[P, R, P, R]: ...

    @overload
    def job(
        self,
        fn: None = None,
        /,
        *,
        name: str | None = None,
        queue: str = ...,
        threads: int = ...,
        max_attempts: int | None = ...,
        timeout: float | timedelta = ...,
        retry: RetryPolicy | None = ...,
        isolation: IsolationMode = ...,
        priority: int = ...,
        tags: tuple[str, ...] = ...,
        if_too_wide: TooWide = ...,
        at_most_once: bool = ...,
        memory_limit_mb: int | None = ...,
    ) -> Declare: ...

    def job(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        threads: int = 1,
        max_attempts: int | None = None,
        timeout: float | timedelta = 3600.0,
        retry: RetryPolicy | None = None,
        isolation: IsolationMode = "none",
        priority: int = 0,
        tags: tuple[str, ...] = (),
        if_too_wide: TooWide = "narrow",
        at_most_once: bool = False,
        memory_limit_mb: int | None = None,
    ) -> Any:
        """Declare a function as a job type: `@app.job`, or `@app.job(queue="mail", timeout=30)`.

        Its name is the function's, unless another is given. `timeout` is in seconds, or a timedelta. `max_attempts` is 3 unless
        something else is said. With `at_most_once` no job of it is ever started twice; one whose start was lost is failed as
        MayHaveRun. `memory_limit_mb`, for isolation="process", is how many MiB its handler may allocate.
        """
        said = Defaults(
            queue, threads, max_attempts, timeout, retry, isolation, priority, tags, if_too_wide, at_most_once,
            memory_limit_mb,
        )  # fmt: skip

        def declare(fn: Callable[..., Any]) -> AppJob[..., Any, ..., Any]:
            declared: AppJob[..., Any, ..., Any] = AppJob(self._link, fn, name, said)
            declared.hooks = self.hooks
            self._registry.add(declared)
            return declared

        return declare if fn is None else declare(fn)

    # Enqueue. -------------------------------------------------------------------------------------------------------

    def enqueue_many(self, jobs: Iterable[NewJob], *, connection: Any = None) -> list[Handle[Any]]:
        """Store all of them or none: `app.enqueue_many([send.job("ann"), resize.options(priority=5).job(7)])`."""
        known = listed(jobs)
        return self._handles(known, self._link.enqueue(known, connection))

    async def aenqueue_many(self, jobs: Iterable[NewJob], *, connection: Any = None) -> list[Handle[Any]]:
        known = listed(jobs)
        return self._handles(known, await self._link.aenqueue(known, connection))

    def enqueue_named(
        self,
        type: str,  # noqa: A002
        payload: Any = None,
        *,
        connection: Any = None,
        **options: Unpack[JobOptions],
    ) -> Handle[Any]:
        """Enqueue a job whose code is in another program. Its payload is checked where it runs; its result is JSON."""
        (answer,) = self._link.enqueue([with_options(NewJob(type, payload), options)], connection)
        return Handle(self._link, answer.id, duplicate=answer.duplicate)

    async def aenqueue_named(
        self,
        type: str,  # noqa: A002
        payload: Any = None,
        *,
        connection: Any = None,
        **options: Unpack[JobOptions],
    ) -> Handle[Any]:
        (answer,) = await self._link.aenqueue([with_options(NewJob(type, payload), options)], connection)
        return Handle(self._link, answer.id, duplicate=answer.duplicate)

    def handle(self, job_id: UUID) -> Handle[Any]:
        """The handle of a job enqueued before, perhaps elsewhere. Its result is JSON; `send.handle(id)` knows the type."""
        return Handle(self._link, check_id(job_id))

    def _handles(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> list[Handle[Any]]:
        """A handle for each; their results are read as the handlers of this program say."""
        found = []
        for job, answer in zip(jobs, answers, strict=True):
            declared = self._registry.get(job.type)
            read = None if declared is None else declared.result_type.decode
            found.append(Handle[Any](self._link, answer.id, duplicate=answer.duplicate, read=read))
        return found

    # Open and close. ------------------------------------------------------------------------------------------------

    def attach(self, intake: Intake, views: Views) -> None:
        """Lend a store to the calls of the running loop and, from other threads, to blocking ones: a worker's own."""
        self._link.attach(intake, views)

    def use(self, config: Config) -> None:
        """Enqueue to this store from now on, whichever this App was made with: a worker's handlers enqueue to where
        their own jobs came from, in processes of isolated jobs and on loops of their own as well."""
        self._wiring.store, self._wiring.redis = config.store, config.redis

    def detach(self) -> None:
        self._link.detach()

    @contextmanager
    def using(self, store: StoreConfig) -> Iterator[None]:
        """Enqueue to this store inside the block, and to the one of before afterwards: for tests."""
        before = self._wiring.store, self._wiring.redis
        self._link.close()  # what blocking calls have opened is the other store's
        self._wiring.store, self._wiring.redis = store, RedisConfig()
        try:
            yield
        finally:
            self._link.close()
            self._wiring.store, self._wiring.redis = before

    def close(self) -> None:
        """Close the connections of blocking calls. The end of the program does it, too."""
        self._link.close()

    async def aclose(self) -> None:
        """Close the connections of calls on this loop. The end of `asyncio.run` does it, too."""
        await self._link.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Wiring:
    """The store and the bus behind an App's calls. Imported with the first call: the driver costs 50 ms."""

    def __init__(self, store: StoreConfig | None, types: Mapping[str, JobType]) -> None:
        self.store = store
        self.redis = RedisConfig()
        self._types = types
        self._declared = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Opened]:
        from windlass.bus.postgres import PostgresWaker  # noqa: PLC0415
        from windlass.bus.redis import reaching_all  # noqa: PLC0415
        from windlass.bus.waking import Waking  # noqa: PLC0415
        from windlass.store.store import open_store  # noqa: PLC0415

        config, redis = self.store, self.redis
        if config is None:
            loaded = load(os.environ, read=lambda path: Path(path).read_text(encoding="utf-8"))
            config, redis = loaded.store, loaded.redis
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(open_store(replace(config.for_callers(), pool_min=0)))
            hints = await stack.enter_async_context(reaching_all(store.hints, redis))
            waker = PostgresWaker(hints)
            stack.push_async_callback(waker.aclose)
            declaring = asyncio.create_task(self._declare_versions(store.upkeep))
            stack.push_async_callback(_cancelled, declaring)
            # Before the first job, so that a worker of an older version knows that there is a newer one. Not at any price:
            # in a caller's transaction it is enough that the caller reaches the database.
            await asyncio.wait([declaring], timeout=_DECLARE_S)
            yield Opened(Waking(store.intake, waker, hints), store.views)

    async def _declare_versions(self, upkeep: Upkeep) -> None:
        if self._declared:
            return
        try:
            await upkeep.add_versions([job.declared() for job in self._types.values()])
            self._declared = True
        except Exception as error:  # noqa: BLE001 - a role that may do nothing but enqueue; jobs are stored all the same
            _log.debug("the versions of job types were not declared: %s", error)

    @staticmethod
    def is_async(connection: Any) -> bool:
        from windlass.store.foreign import is_async  # noqa: PLC0415

        return is_async(connection)

    @staticmethod
    def is_blocking(connection: Any) -> bool:
        from windlass.store.foreign import is_blocking  # noqa: PLC0415

        return is_blocking(connection)

    @staticmethod
    async def adapted(connection: Any) -> Any:
        from windlass.store.foreign import adapted  # noqa: PLC0415

        return await adapted(connection)


async def _cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task])

"""The programmer's way in, and the second place (after the cli) that wires parts together: `app = App()`.

An App holds the job types a program declares and enqueues them. A worker is told which App to run. Nothing is opened,
and no driver imported, before the first call that needs the database.
"""

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Generic, ParamSpec, Self, TypeVar, Unpack, cast, overload
from uuid import UUID

from windlass.config import Config, RedisConfig, StoreConfig, load
from windlass.errors import InvalidId, Misconfigured
from windlass.model import IsolationMode, NewJob, RetryPolicy, TooWide, check_text, type_name_max
from windlass.sdk.calls import Call, Handle, JobOptions, handles, listed, with_options
from windlass.sdk.link import Link, Opened
from windlass.store.protocol import Intake, Views
from windlass.worker.registry import Defaults, JobType, Registry

P = ParamSpec("P")
R = TypeVar("R")


class App:
    """Job types by name, and the store they are enqueued to: `config`, or WINDLASS_DATABASE_URL at the first use."""

    def __init__(self, name: str | None = None, *, config: StoreConfig | None = None) -> None:
        if name is not None:
            check_text("name", name, type_name_max)
        self.name = name or "app"
        self._registry = Registry()
        self._wiring = _Wiring(config)
        self._link = Link(self._wiring)

    @property
    def types(self) -> Mapping[str, JobType]:
        """What a worker of this program can run."""
        return self._registry

    # Declare. -------------------------------------------------------------------------------------------------------

    @overload
    def job(self, fn: Callable[P, R], /) -> "AppJob[P, R]": ...

    @overload
    def job(
        self,
        fn: None = None,
        /,
        *,
        name: str | None = None,
        queue: str = ...,
        threads: int = ...,
        max_attempts: int = ...,
        timeout: float | timedelta = ...,
        retry: RetryPolicy | None = ...,
        isolation: IsolationMode = ...,
        priority: int = ...,
        tags: tuple[str, ...] = ...,
        if_too_wide: TooWide = ...,
    ) -> "Callable[[Callable[P, R]], AppJob[P, R]]": ...

    def job(
        self,
        fn: Callable[P, R] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        threads: int = 1,
        max_attempts: int = 3,
        timeout: float | timedelta = 3600.0,
        retry: RetryPolicy | None = None,
        isolation: IsolationMode = "none",
        priority: int = 0,
        tags: tuple[str, ...] = (),
        if_too_wide: TooWide = "narrow",
    ) -> "AppJob[P, R] | Callable[[Callable[P, R]], AppJob[P, R]]":
        """Declare a function as a job type: `@app.job`, or `@app.job(queue="mail", timeout=30)`.

        Its name is the function's, unless another is given. `timeout` is in seconds, or a timedelta.
        """
        said = Defaults(queue, threads, max_attempts, timeout, retry, isolation, priority, tags, if_too_wide)

        def declare(fn: Callable[P, R]) -> "AppJob[P, R]":
            declared = AppJob(self._link, fn, name, said)
            self._registry.add(declared)
            return declared

        return declare if fn is None else declare(fn)

    # Enqueue. -------------------------------------------------------------------------------------------------------

    def enqueue_many(self, jobs: Iterable[NewJob], *, connection: Any = None) -> list[Handle]:
        """Store all of them or none: `app.enqueue_many([send.job("ann"), resize.options(priority=5).job(7)])`."""
        return handles(self._link, self._link.enqueue(listed(jobs), connection))

    async def aenqueue_many(self, jobs: Iterable[NewJob], *, connection: Any = None) -> list[Handle]:
        return handles(self._link, await self._link.aenqueue(listed(jobs), connection))

    def enqueue_named(
        self,
        type: str,  # noqa: A002
        payload: Any = None,
        *,
        connection: Any = None,
        **options: Unpack[JobOptions],
    ) -> Handle:
        """Enqueue a job whose code is in another program. Its payload is checked where it runs."""
        return self.enqueue_many([with_options(NewJob(type, payload), options)], connection=connection)[0]

    async def aenqueue_named(
        self,
        type: str,  # noqa: A002
        payload: Any = None,
        *,
        connection: Any = None,
        **options: Unpack[JobOptions],
    ) -> Handle:
        return (await self.aenqueue_many([with_options(NewJob(type, payload), options)], connection=connection))[0]

    def handle(self, job_id: UUID) -> Handle:
        """The handle of a job enqueued before, perhaps elsewhere."""
        if not isinstance(job_id, UUID):
            raise InvalidId("id", f"must be a UUID, not a {type(job_id).__qualname__}; make one: UUID(text)")
        return Handle(self._link, job_id)

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


class AppJob(JobType, Generic[P, R]):
    """What `@app.job` makes of a function: the job type, and the ways to enqueue it."""

    def __init__(self, link: Link, fn: Callable[P, R], name: str | None, defaults: Defaults) -> None:
        super().__init__(fn, name, defaults)
        if "connection" in self.signature.names:
            raise Misconfigured(f"job {self.name!r}: a parameter cannot be named connection: enqueue has one")
        call = Call(link, self.template, self.signature.payload)
        self.job = call.job
        self.enqueue = call.enqueue
        self.aenqueue = call.aenqueue
        self.options = call.options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast("R", self.fn(*args, **kwargs))


class _Wiring:
    """The store and the bus behind an App's calls. Imported with the first call: the driver costs 50 ms."""

    def __init__(self, store: StoreConfig | None) -> None:
        self.store = store
        self.redis = RedisConfig()

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
            store = await stack.enter_async_context(open_store(replace(config, pool_min=0)))
            hints = await stack.enter_async_context(reaching_all(store.hints, redis))
            waker = PostgresWaker(hints)
            stack.push_async_callback(waker.aclose)
            yield Opened(Waking(store.intake, waker, hints), store.views)

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

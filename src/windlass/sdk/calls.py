"""What programs do with a declared job type: enqueue it, with options or many at once, and ask what became of it."""

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Final, Generic, ParamSpec, TypedDict, TypeVar, Unpack, cast
from uuid import UUID

from windlass.clock import steady_s
from windlass.errors import (
    InvalidId,
    InvalidJob,
    InvalidPayload,
    JobCancelled,
    JobFailed,
    ResultMismatch,
    ResultNotStored,
)
from windlass.model import (
    FINISHED,
    Enqueued,
    Job,
    NewJob,
    RetryPolicy,
    Status,
    TooWide,
    check_new_job,
    check_started_once,
    seconds,
)
from windlass.payload import decode
from windlass.sdk.link import Link

P = ParamSpec("P")
R = TypeVar("R")

ReadResult = Callable[[str | None], Any]
_FIRST_LOOK_S: Final = 0.005
_LOOK_S_MAX: Final = 0.5
_LAST_LOOK_S: Final = 1.0  # what a look may take when there is hardly any time left


class JobOptions(TypedDict, total=False):
    """What a single job may say of itself; what it does not say is its type's."""

    queue: str
    priority: int
    threads: int
    delay_s: float | None
    scheduled_at: datetime | None
    max_attempts: int
    timeout: float | timedelta
    retry: RetryPolicy | None
    tags: tuple[str, ...] | list[str]
    name: str | None
    idempotency_key: str | None
    if_too_wide: TooWide
    id: UUID | None


def with_options(job: NewJob, options: JobOptions) -> NewJob:
    """The job with these options; refused here, where they are said, if they are wrong."""
    said: dict[str, Any] = dict(options)
    unknown = said.keys() - JobOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"there is no option {', '.join(sorted(unknown))}")
    if "threads" in said:
        said["thread_demand"] = said.pop("threads")
    if "timeout" in said:
        said["timeout_s"] = seconds(said.pop("timeout"))
    changed = job._replace(**said, inherited=job.inherited.difference(said))
    check_new_job(changed)
    return changed


class Handle(Generic[R]):
    """A job that was enqueued. `duplicate`: it was there already, under the same id or idempotency key.

    Each question can be asked from a thread (`status`) or a loop (`astatus`). A job enqueued in a transaction of the
    caller's own is not found until that has committed.
    """

    def __init__(self, link: Link, job_id: UUID, *, duplicate: bool = False, read: ReadResult | None = None) -> None:
        self._link = link
        self._read = read or _as_json
        self.id = job_id
        self.duplicate = duplicate

    def __repr__(self) -> str:
        return f"<job {self.id}>"

    def job(self) -> Job:
        """Everything that is known of it."""
        return self._link.wait(lambda store: store.views.job(self.id))

    async def ajob(self) -> Job:
        return await self._link.ask(lambda store: store.views.job(self.id))

    def status(self) -> Status:
        return self.job().status

    async def astatus(self) -> Status:
        return (await self.ajob()).status

    def cancel(self, reason: str = "cancelled on request") -> Status:
        """Cancelled if it was waiting; running if its worker was asked to stop it."""
        return self._link.wait(lambda store: store.intake.cancel(self.id, reason))

    async def acancel(self, reason: str = "cancelled on request") -> Status:
        return await self._link.ask(lambda store: store.intake.cancel(self.id, reason))

    def result(self, timeout_s: float | None = None) -> R:
        """Wait until it is finished: what its handler returned, as the handler's signature says, or as JSON if this
        handle does not know the handler.

        Raises JobFailed or JobCancelled; ResultNotStored or ResultMismatch if the work was done and its result cannot
        be had; TimeoutError when it takes too long.
        """
        return self._link.wait(lambda store: self._result(store.views.job, timeout_s))

    async def aresult(self, timeout_s: float | None = None) -> R:
        return await self._link.ask(lambda store: self._result(store.views.job, timeout_s))

    async def _result(self, look: Callable[[UUID], Any], timeout_s: float | None) -> R:
        deadline_s = None if timeout_s is None else steady_s() + timeout_s
        pause_s = _FIRST_LOOK_S
        while True:
            # A database that does not answer must not make the wait longer than was said.
            async with asyncio.timeout(None if deadline_s is None else max(_LAST_LOOK_S, deadline_s - steady_s())):
                job: Job = await look(self.id)
            if job.status in FINISHED:
                return cast("R", _result_of(job, self._read))
            if deadline_s is not None:
                left_s = deadline_s - steady_s()
                if left_s <= 0:
                    raise TimeoutError(f"job {self.id} is {job.status} after {timeout_s:g} s")
                pause_s = min(pause_s, left_s)
            await asyncio.sleep(pause_s)
            pause_s = min(_LOOK_S_MAX, pause_s * 1.5)


def _result_of(job: Job, read: ReadResult) -> Any:
    if job.status is Status.FAILED:
        raise JobFailed(job.id, job.error)
    if job.status is Status.CANCELLED:
        raise JobCancelled(job.id, job.error)
    if job.error is not None and job.error.type == ResultNotStored.__name__:
        raise ResultNotStored(job.id, job.error)
    try:
        return read(job.result)
    except InvalidPayload as problem:
        raise ResultMismatch(job.id, str(problem)) from None


def _as_json(text: str | None) -> Any:
    return None if text is None else decode(text)


def listed(jobs: Iterable[NewJob]) -> list[NewJob]:
    """The jobs of a batch; one that is none is refused by its place, before anything is stored."""
    known = list(jobs)
    for n, each in enumerate(known):
        if not isinstance(each, NewJob):
            raise InvalidJob(f"jobs[{n}]", f"must be made by .job(…), not {type(each).__qualname__}")
    return known


class Call(Generic[P, R]):
    """A job type with everything decided but its arguments; type checkers know them, and what `result()` returns."""

    def __init__(
        self,
        link: Link,
        template: NewJob,
        payload: Callable[[tuple[Any, ...], dict[str, Any]], Any],
        read: ReadResult,
        connection: Any = None,
        *,
        started_once: bool = False,
    ) -> None:
        self._link = link
        self._started_once = started_once
        self._template = template
        self._payload = payload
        self._read = read
        self._connection = connection

    def job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """The job for these arguments, to be enqueued with others; raises InvalidPayload if they do not fit."""
        return self._template._replace(payload=self._payload(args, kwargs))

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Store a job for these arguments: when this returns it is kept. With `connection`, when that commits."""
        connection = self._taken_from(kwargs)
        return self._handle(self._link.enqueue([self.job(*args, **kwargs)], connection)[0])

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        connection = self._taken_from(kwargs)
        return self._handle((await self._link.aenqueue([self.job(*args, **kwargs)], connection))[0])

    def options(self, *, connection: Any = None, **options: Unpack[JobOptions]) -> "Call[P, R]":
        """The same with other options. `connection`: store the job in the transaction that this one is in."""
        template = with_options(self._template, options) if options else self._template
        if self._started_once:
            check_started_once(template.type, template.max_attempts)
        given = self._connection if connection is None else connection
        return Call(self._link, template, self._payload, self._read, given, started_once=self._started_once)

    def handle(self, job_id: UUID) -> Handle[R]:
        """The handle of a job of this type enqueued before, perhaps elsewhere."""
        return Handle(self._link, check_id(job_id), read=self._read)

    def _handle(self, answer: Enqueued) -> Handle[R]:
        return Handle(self._link, answer.id, duplicate=answer.duplicate, read=self._read)

    def _taken_from(self, kwargs: Any) -> Any:
        """`connection=` beside the arguments works as well; type checkers cannot be told of it (PEP 612)."""
        given = kwargs.pop("connection", None) if "connection" in kwargs else None
        return self._connection if given is None else given


def check_id(job_id: UUID) -> UUID:
    if not isinstance(job_id, UUID):
        raise InvalidId("id", f"must be a UUID, not a {type(job_id).__qualname__}; make one: UUID(text)")
    return job_id

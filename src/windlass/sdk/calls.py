"""What programs do with a declared job type: enqueue it, with options or many at once, and ask what became of it."""

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict, Unpack
from uuid import UUID

from windlass.clock import steady_s
from windlass.errors import InvalidJob, JobCancelled, JobFailed
from windlass.model import FINISHED, Enqueued, Job, NewJob, RetryPolicy, Status, TooWide, check_new_job, seconds
from windlass.payload import decode
from windlass.sdk.link import Link

_FIRST_LOOK_S: Final = 0.005
_LOOK_S_MAX: Final = 0.5


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


class Handle:
    """A job that was enqueued. `duplicate`: it was there already, under the same id or idempotency key.

    Each question can be asked from a thread (`status`) or a loop (`astatus`). A job enqueued in a transaction of the
    caller's own is not found until that has committed.
    """

    def __init__(self, link: Link, job_id: UUID, *, duplicate: bool = False) -> None:
        self._link = link
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

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait until it is finished; raises JobFailed, JobCancelled, or TimeoutError when that takes too long."""
        return self._link.wait(lambda store: self._result(store.views.job, timeout_s))

    async def aresult(self, timeout_s: float | None = None) -> Any:
        return await self._link.ask(lambda store: self._result(store.views.job, timeout_s))

    async def _result(self, look: Callable[[UUID], Any], timeout_s: float | None) -> Any:
        deadline_s = None if timeout_s is None else steady_s() + timeout_s
        pause_s = _FIRST_LOOK_S
        while True:
            job: Job = await look(self.id)
            if job.status in FINISHED:
                return _result_of(job)
            if deadline_s is not None:
                left_s = deadline_s - steady_s()
                if left_s <= 0:
                    raise TimeoutError(f"job {self.id} is {job.status} after {timeout_s:g} s")
                pause_s = min(pause_s, left_s)
            await asyncio.sleep(pause_s)
            pause_s = min(_LOOK_S_MAX, pause_s * 1.5)


def _result_of(job: Job) -> Any:
    if job.status is Status.FAILED:
        raise JobFailed(job.id, job.error)
    if job.status is Status.CANCELLED:
        raise JobCancelled(job.id, job.error)
    return None if job.result is None else decode(job.result)


def listed(jobs: Iterable[NewJob]) -> list[NewJob]:
    """The jobs of a batch; one that is none is refused by its place, before anything is stored."""
    known = list(jobs)
    for n, each in enumerate(known):
        if not isinstance(each, NewJob):
            raise InvalidJob(f"jobs[{n}]", f"must be made by .job(…), not {type(each).__qualname__}")
    return known


def handles(link: Link, answers: list[Enqueued]) -> list[Handle]:
    return [Handle(link, answer.id, duplicate=answer.duplicate) for answer in answers]


class Call:
    """A job type with everything decided but its arguments."""

    def __init__(self, link: Link, template: NewJob, payload: Callable[[tuple[Any, ...], dict[str, Any]], Any]) -> None:
        self._link = link
        self._template = template
        self._payload = payload

    def job(self, *args: Any, **kwargs: Any) -> NewJob:
        """The job for these arguments, to be enqueued with others; raises InvalidPayload if they do not fit."""
        return self._template._replace(payload=self._payload(args, kwargs))

    def enqueue(self, *args: Any, connection: Any = None, **kwargs: Any) -> Handle:
        """Store a job for these arguments: when this returns it is kept. With `connection`, when that commits."""
        return handles(self._link, self._link.enqueue([self.job(*args, **kwargs)], connection))[0]

    async def aenqueue(self, *args: Any, connection: Any = None, **kwargs: Any) -> Handle:
        return handles(self._link, await self._link.aenqueue([self.job(*args, **kwargs)], connection))[0]

    def options(self, **options: Unpack[JobOptions]) -> "Call":
        """The same with other options."""
        return Call(self._link, with_options(self._template, options), self._payload)

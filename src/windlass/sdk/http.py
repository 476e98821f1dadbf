"""The HTTP client: `Client` for programs that block, `AsyncClient` for those with a loop.

    with Client("http://127.0.0.1:8080", api_key="wl_…") as client:
        handle = client.submit("add_numbers", {"a": 2, "b": 3})
        print(handle.result(timeout_s=30))

Without an address and credentials they are taken from WINDLASS_URL and WINDLASS_TOKEN or WINDLASS_API_KEY. Errors are
those of windlass.errors, as if the store were here. The blocking client is the async one on a thread of its own.
"""

import contextlib
import os
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any, Self, TypeVar, Unpack
from uuid import UUID

import httpx2

from windlass import wire
from windlass.model import Decision
from windlass.sdk.asks import Action, Ask, Filters, Job, JobType, Options, submission
from windlass.sdk.async_http import AsyncClient, AsyncHandle
from windlass.sdk.chunks import One
from windlass.sdk.credentials import Mint
from windlass.sdk.portal import Portal

__all__ = ["AsyncClient", "AsyncHandle", "Client", "Handle", "Job", "submission"]

T = TypeVar("T")


class Client:
    """The same for programs without a loop, from any thread."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | Mint | None = None,
        api_key: str | None = None,
        login: tuple[str, str] | None = None,
        timeout_s: float = 30.0,
        patience_s: float | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._client = AsyncClient(
            url,
            token=token,
            api_key=api_key,
            login=login,
            timeout_s=timeout_s,
            patience_s=patience_s,
            transport=transport,
        )
        self._portal = Portal(self._client.aclose)
        _clients.add(self)

    @property
    def url(self) -> str:
        return self._client.url

    def ask(self, ask: Ask[T], *, timeout_s: float | None = None) -> T:
        return self._wait(lambda: self._client.ask(ask, timeout_s=timeout_s))

    def submit(self, type_: str, payload: Any = None, **options: Unpack[Options]) -> "Handle":
        """Store a job: when this returns it is kept, once, however often it had to be sent."""
        stored = self.submit_one(submission(type_, payload, **options))
        return Handle(self, stored.id, duplicate=stored.duplicate)

    def submit_one(self, job: wire.Submission) -> wire.Stored:
        return self._wait(lambda: self._client.submit_one(job))

    def submit_many(self, jobs: Iterable[One], *, chunk: int = 1000) -> list[UUID]:
        """Store as many as an iterable gives; see AsyncClient. The iterable is run on the client's own thread."""
        return self._wait(lambda: self._client.submit_many(jobs, chunk=chunk))

    def handle(self, job_id: UUID) -> "Handle":
        return Handle(self, job_id)

    def job(self, job_id: UUID) -> Job:
        return self._wait(lambda: self._client.job(job_id))

    def jobs(self, *, limit: int | None = None, **filters: Unpack[Filters]) -> Iterator[Job]:
        """Newest first, page by page as they are taken; `limit` of them, or all."""
        return self._each(self._client.jobs(limit=limit, **filters))

    def dead_letters(self, *, limit: int | None = None, **filters: Unpack[Filters]) -> Iterator[Job]:
        return self._each(self._client.dead_letters(limit=limit, **filters))

    def attempts(self, job_id: UUID) -> list[wire.Attempt]:
        return self._wait(lambda: self._client.attempts(job_id))

    def logs(self, job_id: UUID, *, follow: bool = False) -> list[wire.Log]:
        return self._wait(lambda: self._client.logs(job_id, follow=follow))

    def explain(self, job_id: UUID) -> wire.Explanation:
        return self._wait(lambda: self._client.explain(job_id))

    def result(self, job_id: UUID, timeout_s: float | None = None) -> Any:
        """Wait until it is finished; raises JobFailed, JobCancelled, or TimeoutError when that takes too long."""
        return self._wait(lambda: self._client.result(job_id, timeout_s))

    def finished(
        self, job_id: UUID, timeout_s: float | None = None, *, on_held: Callable[[Job], None] | None = None
    ) -> Job:
        """Wait until it is finished, whatever became of it. `on_held` is called, in another thread, once with the
        job, when it is first seen to be held: it waits for a person, or for a worker that knows it."""
        return self._wait(lambda: self._client.finished(job_id, timeout_s, on_held=on_held))

    def stats(self) -> wire.Stats:
        return self._wait(self._client.stats)

    def queues(self) -> list[wire.Queue]:
        return self._wait(self._client.queues)

    def workers(self) -> list[wire.Worker]:
        return self._wait(self._client.workers)

    def types(self) -> list[JobType]:
        return self._wait(self._client.types)

    def cancel(self, job_id: UUID, reason: str | None = None) -> wire.Moved:
        return self._wait(lambda: self._client.cancel(job_id, reason))

    def retry(self, job_id: UUID) -> wire.Moved:
        return self._wait(lambda: self._client.retry(job_id))

    def run_now(self, job_id: UUID) -> wire.Moved:
        return self._wait(lambda: self._client.run_now(job_id))

    def decide(self, job_id: UUID, decision: Decision, effect: str | None = None) -> wire.Moved:
        """Say whether an effect of a held job has happened: `done`, or `redo`. `effect` names it where several wait."""
        return self._wait(lambda: self._client.decide(job_id, decision, effect))

    def replay(self, job_id: UUID) -> wire.Moved:
        return self._wait(lambda: self._client.replay(job_id))

    def discard(self, job_id: UUID, reason: str | None = None) -> wire.Moved:
        """Take a failed job out of the dead letters: it is cancelled, and keeps its attempts."""
        return self._wait(lambda: self._client.discard(job_id, reason))

    def replay_many(self, which: wire.BulkAction) -> wire.BulkResult:
        return self._wait(lambda: self._client.replay_many(which))

    def discard_many(self, which: wire.BulkAction) -> wire.BulkResult:
        return self._wait(lambda: self._client.discard_many(which))

    def pause(self, queue: str) -> None:
        self._wait(lambda: self._client.pause(queue))

    def resume(self, queue: str) -> None:
        self._wait(lambda: self._client.resume(queue))

    def drain_worker(self, worker_id: UUID) -> wire.Worker:
        """Let a worker finish its jobs and go; no other takes its place."""
        return self._wait(lambda: self._client.drain_worker(worker_id))

    def stop_worker(self, worker_id: UUID) -> wire.Worker:
        """Let a worker give its jobs back at once; another takes its place."""
        return self._wait(lambda: self._client.stop_worker(worker_id))

    def act_on_many(self, action: Action, which: wire.BulkAction) -> wire.BulkResult:
        return self._wait(lambda: self._client.act_on_many(action, which))

    def close(self) -> None:
        """Close the connections. The end of the program does it, too."""
        self._portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def forget(self) -> None:
        """In the child of a fork: the thread and the connections are the parent's."""
        self._portal.forget()

    def _wait(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._portal.run(work)

    def _each(self, jobs: AsyncIterator[Job]) -> Iterator[Job]:
        async def following() -> Job | None:
            return await anext(jobs, None)

        while (job := self._wait(following)) is not None:
            yield job


class Handle:
    """A job that was submitted. `duplicate`: it was there already, under the same id or idempotency key."""

    def __init__(self, client: Client, job_id: UUID, *, duplicate: bool = False) -> None:
        self._client = client
        self.id = job_id
        self.duplicate = duplicate

    def __repr__(self) -> str:
        return f"<job {self.id}>"

    def job(self) -> Job:
        return self._client.job(self.id)

    def status(self) -> wire.StatusName:
        return self.job().status

    def result(self, timeout_s: float | None = None) -> Any:
        return self._client.result(self.id, timeout_s)

    def cancel(self, reason: str | None = None) -> wire.Moved:
        return self._client.cancel(self.id, reason)


_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def _forget_all() -> None:
    for client in list(_clients):
        client.forget()


with contextlib.suppress(AttributeError):  # systems without fork
    os.register_at_fork(after_in_child=_forget_all)

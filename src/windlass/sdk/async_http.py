"""The HTTP client of programs with a loop. A submission carries an idempotency key, made up if none is given: so it is sent
again after a lost answer, and stored once.
"""

import contextlib
import os
import weakref
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final, Self, TypeVar, Unpack
from uuid import UUID

import httpx2

from windlass import config, wire
from windlass.errors import Misconfigured, WindlassError
from windlass.model import Decision
from windlass.sdk import asks, waiting
from windlass.sdk.asks import Action, Ask, Filters, Job, Jobs, JobTypes, Options, submission
from windlass.sdk.chunks import Submissions, chunks
from windlass.sdk.credentials import Credentials, Mint
from windlass.sdk.exchange import Exchange
from windlass.sdk.problems import displaced

T = TypeVar("T")
P = TypeVar("P", wire.Queues, wire.Workers, JobTypes)

_HERE: Final = "http://127.0.0.1:8080"
_BULK_TIMEOUT_S: Final = 120.0


class AsyncClient:
    """Calls to one API from one event loop at a time. `timeout_s` holds for a call with all its repetitions; an API that
    cannot be reached at all is given up after `patience_s`, if that is less. `transport`: another way to it than the network,
    as httpx has them; it is closed with the client."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | Mint | None = None,
        api_key: str | None = None,
        login: tuple[str, str] | None = None,
        timeout_s: float = 30.0,
        patience_s: float | None = None,
        connections: int = 100,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        if url is None or (token is None and api_key is None and login is None):
            said = config.load(os.environ, read=lambda path: Path(path).read_text(encoding="utf-8")).client
            url = url or said.url or _HERE
            if token is None and api_key is None and login is None:
                token, api_key = said.token, None if said.token else said.api_key
        credentials = Credentials(token, _login(token, api_key, login))
        self._exchange = Exchange(
            url,
            credentials,
            timeout_s=timeout_s,
            patience_s=patience_s,
            connections=connections,
            transport=transport,
        )
        _clients.add(self)

    @property
    def url(self) -> str:
        return self._exchange.url

    async def ask(self, ask: Ask[T], *, timeout_s: float | None = None) -> T:
        """Anything the API can be asked, as windlass.sdk.asks describes it."""
        return await self._exchange.ask(ask, timeout_s)

    async def token(self) -> str | None:
        """The token that calls are made with just now, for what calls the API by other means."""
        return await self._exchange.token()

    # Submit. --------------------------------------------------------------------------------------------------------

    async def submit(self, type_: str, payload: Any = None, **options: Unpack[Options]) -> "AsyncHandle":
        """Store a job: when this returns it is kept, once, however often it had to be sent."""
        stored = await self.submit_one(submission(type_, payload, **options))
        return AsyncHandle(self, stored.id, duplicate=stored.duplicate)

    async def submit_one(self, job: wire.Submission) -> wire.Stored:
        job, made_up = asks.keyed(job)
        stored = await self.ask(asks.submit(job))
        stored.duplicate = stored.duplicate and not made_up  # of nobody but our own first try
        return stored

    async def submit_many(self, jobs: Submissions, *, chunk: int = 1000) -> list[UUID]:
        """Store as many as a (perhaps async) iterable gives, as {"type": …, "payload": …, "priority": …} each, in chunks of
        at most 10,000. A chunk is stored as a whole or not at all. An error names the job by its place, and has in
        `stored` the ids of the chunks before."""
        stored: list[UUID] = []
        async for lines in chunks(jobs, chunk):
            try:
                stored += (await self.ask(asks.submit_lines(lines), timeout_s=_BULK_TIMEOUT_S)).ids
            except WindlassError as error:
                error.__dict__["stored"] = stored
                raise displaced(error, len(stored)) from error.__cause__
        return stored

    def handle(self, job_id: UUID) -> "AsyncHandle":
        return AsyncHandle(self, job_id)

    # Look. ----------------------------------------------------------------------------------------------------------

    async def job(self, job_id: UUID) -> Job:
        return await self.ask(asks.job(job_id))

    def jobs(self, *, limit: int | None = None, **filters: Unpack[Filters]) -> AsyncIterator[Job]:
        """Newest first, page by page as they are taken; `limit` of them, or all."""
        return self._pages(lambda size, cursor: asks.jobs(filters, limit=size, cursor=cursor), limit)

    def dead_letters(self, *, limit: int | None = None, **filters: Unpack[Filters]) -> AsyncIterator[Job]:
        """Jobs that failed for good."""
        return self._pages(lambda size, cursor: asks.dead_letters(filters, limit=size, cursor=cursor), limit)

    async def attempts(self, job_id: UUID) -> list[wire.Attempt]:
        return (await self.ask(asks.attempts(job_id))).attempts

    async def logs(self, job_id: UUID, *, follow: bool = False) -> list[wire.Log]:
        """What its attempts wrote. `follow`: also the running one, so far; for those who ask again every second."""
        return (await self.ask(asks.logs(job_id, follow=follow))).logs

    async def explain(self, job_id: UUID) -> wire.Explanation:
        """Why the job is where it is, and what would help."""
        return await self.ask(asks.explain(job_id))

    async def result(self, job_id: UUID, timeout_s: float | None = None) -> Any:
        """Wait until it is finished; raises JobFailed, JobCancelled, or TimeoutError when that takes too long."""
        return waiting.result_of(await self.finished(job_id, timeout_s))

    async def finished(
        self, job_id: UUID, timeout_s: float | None = None, *, on_held: Callable[[Job], None] | None = None
    ) -> Job:
        """Wait until it is finished, whatever became of it. `on_held` is called once with the job, when it is first
        seen to be held: it waits for a person, or for a worker that knows it."""
        return await waiting.finished(self._exchange, job_id, timeout_s, on_held)

    async def stats(self) -> wire.Stats:
        return await self.ask(asks.stats())

    async def queues(self) -> list[wire.Queue]:
        return await self._whole(asks.queues, lambda page: page.queues)

    async def workers(self) -> list[wire.Worker]:
        return await self._whole(asks.workers, lambda page: page.workers)

    async def types(self) -> list[asks.JobType]:
        return await self._whole(asks.types, lambda page: page.types)

    # Act. -----------------------------------------------------------------------------------------------------------

    async def cancel(self, job_id: UUID, reason: str | None = None) -> wire.Moved:
        """Cancelled if it was waiting; running if its worker was asked to stop it."""
        return await self.ask(asks.act("cancel", job_id, reason))

    async def retry(self, job_id: UUID) -> wire.Moved:
        return await self.ask(asks.act("retry", job_id))

    async def run_now(self, job_id: UUID) -> wire.Moved:
        return await self.ask(asks.act("run-now", job_id))

    async def decide(self, job_id: UUID, decision: Decision, effect: str | None = None) -> wire.Moved:
        """Say whether an effect of a held job has happened: `done`, or `redo`. `effect` names it where several wait."""
        return await self.ask(asks.decide(job_id, decision, effect))

    async def replay(self, job_id: UUID) -> wire.Moved:
        return await self.ask(asks.replay(job_id))

    async def discard(self, job_id: UUID, reason: str | None = None) -> wire.Moved:
        """Take a failed job out of the dead letters: it is cancelled, and keeps its attempts."""
        return await self.ask(asks.discard(job_id, reason))

    async def replay_many(self, which: wire.BulkAction) -> wire.BulkResult:
        return await self.ask(asks.replay_many(which))

    async def discard_many(self, which: wire.BulkAction) -> wire.BulkResult:
        return await self.ask(asks.discard_many(which))

    async def pause(self, queue: str) -> None:
        await self.ask(asks.set_paused(queue, paused=True))

    async def resume(self, queue: str) -> None:
        await self.ask(asks.set_paused(queue, paused=False))

    async def drain_worker(self, worker_id: UUID) -> wire.Worker:
        """Let a worker finish its jobs and go; no other takes its place."""
        return await self.ask(asks.ask_to_leave(worker_id, "drain"))

    async def stop_worker(self, worker_id: UUID) -> wire.Worker:
        """Let a worker give its jobs back at once; another takes its place."""
        return await self.ask(asks.ask_to_leave(worker_id, "stop"))

    async def act_on_many(self, action: Action, which: wire.BulkAction) -> wire.BulkResult:
        return await self.ask(asks.act_on_many(action, which))

    # Close. ---------------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        await self._exchange.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def forget(self) -> None:
        self._exchange.forget()

    async def _pages(self, ask: Callable[[int, str | None], Ask[Jobs]], limit: int | None) -> AsyncIterator[Job]:
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            page = await self.ask(ask(asks.page_max if left is None else min(left, asks.page_max), cursor))
            for job in page.jobs:
                yield job
            left = None if left is None else left - len(page.jobs)
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _whole(self, ask: Callable[[str | None], Ask[P]], entries: Callable[[P], list[T]]) -> list[T]:
        """A list sorted by name, from all its pages: the first alone holds a thousand, and looks complete."""
        found: list[T] = []
        cursor: str | None = None
        while True:
            page = await self.ask(ask(cursor))
            found += entries(page)
            cursor = page.next_cursor
            if cursor is None:
                return found


class AsyncHandle:
    """A job that was submitted. `duplicate`: it was there already, under the same id or idempotency key."""

    def __init__(self, client: AsyncClient, job_id: UUID, *, duplicate: bool = False) -> None:
        self._client = client
        self.id = job_id
        self.duplicate = duplicate

    def __repr__(self) -> str:
        return f"<job {self.id}>"

    async def job(self) -> Job:
        return await self._client.job(self.id)

    async def status(self) -> wire.StatusName:
        return (await self.job()).status

    async def result(self, timeout_s: float | None = None) -> Any:
        return await self._client.result(self.id, timeout_s)

    async def cancel(self, reason: str | None = None) -> wire.Moved:
        return await self._client.cancel(self.id, reason)


def _login(token: str | Mint | None, api_key: str | None, login: tuple[str, str] | None) -> wire.Login | None:
    if sum(each is not None for each in (token, api_key, login)) > 1:
        raise Misconfigured("give one of token, api_key and login")
    if api_key is not None:
        return wire.Login(api_key=api_key)
    return None if login is None else wire.Login(username=login[0], password=login[1])


_clients: "weakref.WeakSet[AsyncClient]" = weakref.WeakSet()


def _forget_all() -> None:
    for client in list(_clients):
        client.forget()


with contextlib.suppress(AttributeError):  # systems without fork
    os.register_at_fork(after_in_child=_forget_all)

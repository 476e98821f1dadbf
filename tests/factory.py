"""Jobs in any state, made the way users and workers make them: no row is written past the store."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from tests.eventually import aeventually
from windlass.lifecycle import Completed, Failed, Outcome, settle
from windlass.model import Error, Job, Lease, NewJob, NewWorker, Status
from windlass.store.claims import Claims
from windlass.store.postgres import Postgres
from windlass.store.protocol import Ask, Receipt
from windlass.store.store import Store

TYPES = ("echo", "other")


@dataclass(frozen=True, slots=True)
class WorkerRig:
    """One registered worker and its slice of the store."""

    id: UUID
    claims: Claims
    threads: int
    queues: Sequence[str]
    types: Sequence[str]

    async def claim(self, free: int | None = None, **over: Any) -> list[Lease]:
        """Claim with a full look, so that a test sees what is there now."""
        self.claims.look_afresh()
        ask = {"free": self.threads if free is None else free, **over}
        return await self.claims.claim(Ask(self.id, self.queues, self.types, **ask))

    async def give_back_strays(self, held: Collection[UUID] = (), *, older_than_s: float = 0) -> list[UUID]:
        strays = await self.claims.strays(self.id, held, older_than_s=older_than_s)
        return list((await self.claims.release(strays)).moved)

    async def settle(self, lease: Lease, outcome: Outcome, jitter: float = 0.5) -> Receipt:
        return await self.claims.settle([settle(lease, outcome, jitter=jitter)])


async def present(connection: Any, hand_key: UUID) -> None:
    """Be the listener that jobs are handed to by this key, for as long as the connection lasts."""
    await connection.execute("select pg_advisory_lock_shared(hashtextextended($1, 0))", str(hand_key))


class OnConnection:
    """A Postgres whose statements all run on one connection, so that a test can look into its transaction."""

    def __init__(self, postgres: Postgres, connection: Any) -> None:
        self.config = postgres.config
        self.sent: list[str] = []
        self._postgres = postgres
        self._connection = connection

    async def fetch(self, name: str, *args: Any) -> list[Any]:
        self.sent.append(name)
        return await self._postgres.fetch(name, *args, connection=self._connection)

    pinned = fetch


async def reached(store: Store, job_id: UUID, *statuses: Status, timeout_s: float = 10) -> Job:
    """The job, once it is in one of these states."""

    async def there() -> Job | None:
        job = await store.views.job(job_id)
        return job if job.status in statuses else None

    job = await aeventually(there, timeout_s)
    assert job is not None
    return job


@dataclass(frozen=True, slots=True)
class Rig:
    store: Store

    async def enqueue(self, count: int = 1, **fields: Any) -> list[UUID]:
        """Enqueue equal jobs; returns their ids."""
        job = NewJob(**{"type": "echo", "payload": {}, **fields})
        return [one.id for one in await self.store.intake.enqueue([job] * count)]

    async def worker(
        self,
        *,
        threads: int = 8,
        queues: Sequence[str] = ("default",),
        types: Sequence[str] = TYPES,
        lease_ttl_s: float = 60,
    ) -> WorkerRig:
        worker_id = uuid4()
        new = NewWorker(worker_id, f"test-{worker_id}", threads, list(queues), list(types))
        await self.store.upkeep.register(new, lease_ttl_s=lease_ttl_s)
        return WorkerRig(worker_id, self.store.claims(), threads, list(queues), list(types))

    async def job(self, status: Status, **fields: Any) -> UUID:
        """One job in the given state, alone in a queue of its own."""
        fields.setdefault("queue", f"q-{uuid4().hex[:8]}")
        if status is Status.SCHEDULED:
            return (await self.enqueue(delay_s=3600, **fields))[0]
        if status is Status.HELD:
            return await self._hold(fields)
        (job_id,) = await self.enqueue(**fields)
        if status is Status.READY:
            return job_id
        if status is Status.CANCELLED:
            await self.store.intake.cancel(job_id)
            return job_id
        worker = await self.worker(queues=[fields["queue"]])
        (lease,) = await worker.claim()
        if status is Status.COMPLETED:
            await worker.settle(lease, Completed({"ok": True}))
        elif status is Status.FAILED:
            await worker.settle(lease, Failed(Error("ValueError", "no"), final=True))
        return job_id

    async def _hold(self, fields: dict[str, Any]) -> UUID:
        """Held the real way: workers live, and none knows the type."""
        await self.worker()
        (job_id,) = await self.enqueue(**{**fields, "type": f"strange-{uuid4().hex[:8]}"})
        await self.store.upkeep.hold_unknown(after_s=0)
        return job_id

    async def status(self, job_id: UUID) -> Status:
        return (await self.store.views.job(job_id)).status

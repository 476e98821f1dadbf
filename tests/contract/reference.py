"""What the store should do, as plain Python over a dict: no SQL, no clock of its own, nothing at once.

Decisions come from the pure core: `lifecycle.settle` says what becomes of an attempt (the caller passes its
settlement in), `lifecycle.TRANSITIONS` which moves exist, `placement.fit` how many jobs fit. Moments are whole
microseconds, moved by the caller. Where the store may choose (which of several due jobs a short page takes), the
reference is told the choice and says whether it was allowed.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from tests.contract.reference_values import DAY, HEAD_START, SECOND, Record, RefJob, RefWorker
from windlass.errors import IdTaken, InvalidId, JobNotFound, KeyReused, NotPossible
from windlass.lifecycle import TRANSITIONS, Ended, Lost, Released, Settlement, retry_policy, settle
from windlass.model import FINISHED, Enqueued, Lease, NewJob, RetryPolicy, Status, Want, needs_decision, unknown_type
from windlass.payload import encode
from windlass.placement import fit
from windlass.store.protocol import Ask, JobQuery, Receipt


class Reference:
    def __init__(self, now: int) -> None:
        self.now = now
        self.jobs: dict[UUID, RefJob] = {}
        self.workers: dict[UUID, RefWorker] = {}
        self.keys: dict[str, tuple[UUID, NewJob, int]] = {}
        self.paused: set[str] = set()

    # What people see. -----------------------------------------------------------------------------------------------

    def living(self) -> list[RefWorker]:
        return [w for w in self.workers.values() if w.died_at is None and w.lease_until > self.now]

    def known(self, type_: str) -> bool:
        return any(type_ in worker.new.types for worker in self.living())

    def shown(self, job: RefJob) -> Status:
        strange = bool(self.living()) and not self.known(job.body.type)
        aside = job.status is Status.READY and (job.body.queue in self.paused or strange)
        return Status.HELD if aside else job.status

    def has_ready(self) -> bool:
        return any(self.shown(job) is Status.READY for job in self.jobs.values())

    def has_lost(self) -> bool:
        living = {worker.new.id for worker in self.living()}
        return any(job.lease is not None and job.lease.worker_id not in living for job in self.jobs.values())

    def counts(self) -> dict[tuple[str, str, Status], int]:
        return dict(Counter((job.body.queue, job.body.type, self.shown(job)) for job in self.jobs.values()))

    def matches(self, job: RefJob, query: JobQuery) -> bool:
        return (
            (not query.statuses or self.shown(job) in query.statuses)
            and query.type in {None, job.body.type}
            and query.queue in {None, job.body.queue}
            and (query.tag is None or query.tag in job.body.tags)
        )

    def attempts(self, job: RefJob) -> list[Record]:
        last = [job.outcome] if job.outcome and job.outcome.worker_id else []
        return sorted(job.records + last, key=lambda record: (record.attempt, record.ended_at))

    # Intake. --------------------------------------------------------------------------------------------------------

    def enqueue(self, jobs: Sequence[NewJob]) -> list[tuple[UUID | None, bool]]:
        """All or none. Answers (id, duplicate); no id: a new one is to be made. `store_new` then stores those."""
        given = [job.id for job in jobs if job.id is not None]
        if len(set(given)) != len(given):
            raise InvalidId("id", "two jobs of one batch have the same id")
        holders = {key: (job_id, body) for key, (job_id, body, _) in self.keys.items()}
        first: dict[str, int] = {}
        for n, job in enumerate(jobs):
            if job.idempotency_key is not None:
                held = holders.get(job.idempotency_key) or (None, _body(jobs[first.setdefault(job.idempotency_key, n)]))
                if held[1] != _body(job):
                    raise KeyReused(job.idempotency_key)
        answers: list[tuple[UUID | None, bool]] = []
        for n, job in enumerate(jobs):
            if job.idempotency_key in holders and holders[job.idempotency_key][0] != job.id:
                answers.append((holders[job.idempotency_key][0], True))
            elif job.idempotency_key in first and first[job.idempotency_key] != n:
                answers.append((None, True))  # the id that its first in this batch gets
            else:
                answers.append((job.id, self._is_repeated(job)))
        return answers

    def _is_repeated(self, job: NewJob) -> bool:
        if job.id is None or job.id not in self.jobs:
            return False
        if _body(self.jobs[job.id].body) != _body(job):
            raise IdTaken(job.id)
        return True

    def store_new(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        """Store what the store says it stored, under its ids."""
        place = 0
        for job, answer in zip(jobs, answers, strict=True):
            if job.idempotency_key is not None and job.idempotency_key not in self.keys:
                self.keys[job.idempotency_key] = (answer.id, _body(job), self.now)
            assert job.idempotency_key is None or self.keys[job.idempotency_key][0] == answer.id, "not the key's job"
            if answer.duplicate:
                continue
            place += 1
            ready_at = self.now + round((job.delay_s or 0) * SECOND)
            status = Status.SCHEDULED if ready_at > self.now else Status.READY
            assert status in TRANSITIONS[None]
            rank = ready_at + place - job.priority * HEAD_START
            self.jobs[answer.id] = RefJob(answer.id, job, status, rank, ready_at, job.thread_demand)

    def cancel(self, job_id: UUID) -> Status:
        job = self._job(job_id)
        if job.status in FINISHED:
            raise NotPossible(job.status)
        if job.status is Status.RUNNING:
            job.cancel_requested = True
        else:
            job.finish(Status.CANCELLED, Record(job.attempt, "cancelled", self.now))
        return job.status

    def retry(self, job_id: UUID) -> Status:
        job = self._job(job_id)
        if job.outcome is None:
            raise NotPossible(job.status)
        job.move(Status.READY)
        job.records.append(job.outcome)
        job.outcome, job.failures, job.suspect, job.crashed_at = None, 0, False, []
        job.ready_at, job.demand = self.now, job.body.thread_demand
        job.rank = self.now - job.body.priority * HEAD_START
        return job.status

    def discard(self, job_id: UUID) -> Status:
        job = self._job(job_id)
        if job.status is not Status.FAILED or job.outcome is None:
            raise NotPossible(job.status)
        job.records.append(job.outcome)
        job.finish(Status.CANCELLED, Record(job.attempt, "cancelled", self.now))
        return job.status

    def run_now(self, job_id: UUID) -> Status:
        job = self._job(job_id)
        if job.status not in {Status.SCHEDULED, Status.HELD} or job.reason == needs_decision:
            raise NotPossible(job.status)
        job.move(Status.READY)
        job.wait_until(self.now)
        return job.status

    def _job(self, job_id: UUID) -> RefJob:
        if job_id not in self.jobs:
            raise JobNotFound(job_id)
        return self.jobs[job_id]

    # Claims. --------------------------------------------------------------------------------------------------------

    def line(self, ask: Ask) -> list[RefJob]:
        """Everything this worker might be given now, in the order in which it should be."""
        worker = self.workers.get(ask.worker_id)
        if worker is None or worker not in self.living() or worker.draining:
            return []
        waiting = [
            job
            for job in self.jobs.values()
            if job.status is Status.READY and job.body.queue in ask.queues and job.body.type in ask.types
            and job.body.queue not in self.paused and job.demand <= ask.free
        ]  # fmt: skip
        return sorted(waiting, key=lambda job: (job.rank, job.id))

    def judge_claim(self, ask: Ask, leases: Sequence[Lease], *, full: bool) -> None:
        """A full look gives the head of the line as far as it fits; a look from a floor may overlook some."""
        line = self.line(ask)
        budget = ask.free if ask.budget is None else ask.budget
        taken = [self.jobs[lease.job_id] for lease in leases]
        demands = [job.demand for job in taken]
        assert len({job.id for job in taken}) == len(taken), "one job twice"
        assert all(job in line for job in taken), "a job that this worker may not have"
        assert taken == sorted(taken, key=lambda job: (job.rank, job.id)), "not in rank order"
        assert fit(budget, demands, ask.most) == len(taken), "more than fits"
        if full:
            head = fit(budget, [job.demand for job in line], ask.most)
            # By rank: of equals, any may be first.
            assert [job.rank for job in taken] == [job.rank for job in line[:head]], "not the head of the line"

    def take(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            job = self.jobs[lease.job_id]
            job.move(Status.RUNNING)
            job.attempt += 1
            job.lease, job.claimed_at = lease, self.now
            assert _comparable(lease) == _comparable(self._lease(job, lease)), "the lease says otherwise"

    def _lease(self, job: RefJob, lease: Lease) -> Lease:
        body = job.body
        return Lease(
            job.id, job.attempt, lease.token, lease.worker_id, body.type, body.queue, job.demand, job.rank, job.failures,
            job.suspect, self._crashes(job), body.max_attempts, body.timeout_s, lease.retry, encode(body.payload),
            body.name, body.priority, body.thread_demand, body.tags, body.idempotency_key, body.trace,
            (self.now - job.ready_at) / SECOND,
        )._replace(retry=lease.retry if retry_policy(lease.retry) == (body.retry or RetryPolicy()) else "?")  # fmt: skip

    def _crashes(self, job: RefJob) -> int:
        return sum(moment > self.now - DAY for moment in job.crashed_at)

    def settle(self, batch: Iterable[Settlement]) -> Receipt:
        """Repeated: the very same was written before. One that only looks the same is in `repeated` and `refused`."""
        moved: dict[UUID, Status] = {}
        repeated: set[UUID] = set()
        refused: set[UUID] = set()
        for s in batch:
            job = self.jobs[s.job_id]
            records = [record for record in (*job.records, job.outcome) if record]
            if job.lease is not None and job.lease[:4] == s[:4]:
                moved[s.job_id] = self._accept(job, s)
                continue
            if any(record.could_be(s) for record in records):
                repeated.add(s.job_id)
            if all(record.settlement != s for record in records):
                refused.add(s.job_id)
        return Receipt(moved, frozenset(repeated), frozenset(refused))

    def _accept(self, job: RefJob, s: Settlement) -> Status:
        status = s.status
        if job.cancel_requested and status is not Status.COMPLETED:
            status = Status.CANCELLED
        job.failures += s.failed
        job.suspect = s.suspect
        if s.crashed:
            job.crashed_at.append(self.now)
        if status in FINISHED:
            job.finish(status, Record(s.attempt, status, self.now, s.worker_id, s.token, s))
            return status
        job.move(status)
        job.lease, job.cancel_requested, job.reason = None, False, s.reason
        if s.ended is not None:
            job.records.append(Record(s.attempt, Ended(s.ended), self.now, s.worker_id, s.token, s))
        if status is Status.SCHEDULED:
            job.wait_until(self.now + round((s.delay_s or 0) * SECOND))
        return status

    def strays(self, worker_id: UUID, held: Collection[UUID], older_than_s: float) -> list[Settlement]:
        return [
            settle(job.lease, Released(), jitter=0)
            for job in self.jobs.values()
            if job.lease is not None and job.lease.worker_id == worker_id and job.id not in held
            and job.claimed_at < self.now - older_than_s * SECOND
        ]  # fmt: skip

    # Upkeep. --------------------------------------------------------------------------------------------------------

    def _not_buried(self) -> set[UUID]:
        return {i for i, worker in self.workers.items() if worker.died_at is None}

    def bury_expired(self) -> set[UUID]:
        return self.bury([w.new.id for w in self.workers.values() if w.lease_until <= self.now], "expired")

    def bury(self, worker_ids: Collection[UUID], cause: str) -> set[UUID]:
        buried = self._not_buried() & set(worker_ids)
        for worker_id in buried:
            self.workers[worker_id].died_at, self.workers[worker_id].cause = self.now, cause
        return buried

    def reap(self, jitter: float) -> int:
        lost = []
        for job in self.jobs.values():
            if job.lease is not None and job.lease.worker_id not in self._not_buried():
                lease = job.lease._replace(crashes=self._crashes(job))
                lost.append(settle(lease, Lost(self._crashed(lease.worker_id)), jitter=jitter))
        return len(self.settle(lost).moved)

    def _crashed(self, worker_id: UUID) -> bool:
        """Its lease ended although the database was there: someone renewed after that."""
        worker = self.workers.get(worker_id)
        if worker is None or worker.cause != "expired":
            return False
        return any(w is not worker and w.renewed_at > worker.lease_until for w in self.workers.values())

    def forget_workers(self, older_than_s: float) -> set[UUID]:
        holders = {job.lease.worker_id for job in self.jobs.values() if job.lease is not None}
        old = {
            i
            for i, worker in self.workers.items()
            if worker.died_at is not None and worker.died_at < self.now - older_than_s * SECOND and i not in holders
        }
        for worker_id in old:
            del self.workers[worker_id]
        return old

    def renew(self, worker_id: UUID, ttl_s: float) -> dict[UUID, bool]:
        if worker_id not in self._not_buried():
            return {}
        worker = self.workers[worker_id]
        worker.renewed_at, worker.lease_until = self.now, self.now + round(ttl_s * SECOND)
        return {worker_id: worker.draining}

    def drain(self, worker_ids: Collection[UUID]) -> set[UUID]:
        found = self._not_buried() & set(worker_ids)
        for worker_id in found:
            self.workers[worker_id].draining = True
        return found

    def due(self) -> list[RefJob]:
        waiting = [j for j in self.jobs.values() if j.status is Status.SCHEDULED and j.ready_at <= self.now]
        return sorted(waiting, key=lambda job: job.ready_at)

    def promote(self, due: Sequence[RefJob]) -> list[Want]:
        for job in due:
            job.move(Status.READY)
        shapes = Counter((job.body.queue, job.body.type, job.demand) for job in due)
        return sorted(Want(*shape, count) for shape, count in shapes.items())

    def hold_unknown(self, after_s: float) -> int:
        old = [j for j in self.jobs.values() if j.status is Status.READY and j.ready_at < self.now - after_s * SECOND]
        strange = [job for job in old if self.living() and not self.known(job.body.type)]
        for job in strange:
            job.move(Status.HELD)
            job.reason = unknown_type
        return len(strange)

    def admit_known(self) -> list[Want]:
        held = [job for job in self.jobs.values() if job.status is Status.HELD and job.reason == unknown_type]
        return self.promote([job for job in held if self.known(job.body.type)])

    def wide(self, queues: Collection[str], widest: int, waited_s: float) -> list[RefJob]:
        found = [
            job
            for job in self.jobs.values()
            if job.status is Status.READY and job.body.queue in queues and job.demand > widest
            and job.ready_at < self.now - waited_s * SECOND and job.body.if_too_wide != "wait"
        ]  # fmt: skip
        return sorted(found, key=lambda job: job.rank)

    def narrow(self, jobs: Sequence[RefJob]) -> set[UUID]:
        for job in jobs:
            job.demand = 1
        return {job.id for job in jobs}

    def give_up(self, jobs: Sequence[RefJob]) -> set[UUID]:
        for job in jobs:
            job.finish(Status.FAILED, Record(job.attempt, "failed", self.now))
        return {job.id for job in jobs}

    def expire_keys(self, ttl_s: float) -> int:
        old = [
            key
            for key, (job_id, _, made_at) in self.keys.items()
            if made_at < self.now - ttl_s * SECOND and self.jobs[job_id].outcome is not None
        ]
        for key in old:
            del self.keys[key]
        return len(old)


def _body(job: NewJob) -> NewJob:
    """What makes two submissions the same."""
    return job._replace(id=None, idempotency_key=None, trace=None, delay_s=job.delay_s or None)


def _comparable(lease: Lease) -> Lease:
    return lease._replace(tags=tuple(lease.tags or ()), waited_s=round(lease.waited_s, 3))

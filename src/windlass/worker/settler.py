"""Writes what became of attempts: in batches, one at a time, whatever has come together while the last was written.

A batch whose answer was lost is written again; the store tells what had been written from what is lost. What is
refused belongs to somebody else by now: said, and dropped. Log lines about the ends of attempts are written here, once
the database has answered.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

from windlass.attempt_report import JobsLogged, SuccessLines, is_success, report_end
from windlass.bus.protocol import NO_LOCKS, ExecutionLocks, Waker
from windlass.errors import Contended, InvalidPayload, Unavailable
from windlass.lifecycle import Completed, Failed, Held, Outcome, Released, Settlement, settle
from windlass.model import Error, Lease, Status, Want, newer_worker_reason
from windlass.pauses import Pauses
from windlass.rollups import Recorder
from windlass.store.protocol import Claims, Receipt
from windlass.telemetry import about
from windlass.worker.hook_runner import HookRunner
from windlass.worker.run import Run, encoded, qualified, unanswered
from windlass.worker.run_loop import create_own_task

_BATCH: Final = 250
_PAUSE_S: Final = 0.05
_PAUSE_S_MAX: Final = 1.0
_log: Final = logging.getLogger(__name__)

# The run is None for a lease that goes back without having begun.
Ended = tuple[Lease, Settlement, Run | None]


class Settler:
    """`written` is called on the loop after every batch. `logged`: whose ends get log lines. `hooks`: who is told of them.
    `recorder`: who counts them for charts."""

    def __init__(
        self,
        claims: Claims,
        waker: Waker,
        written: Callable[[], None],
        *,
        logged: JobsLogged = JobsLogged.FAILURES,
        hooks: HookRunner | None = None,
        locks: ExecutionLocks = NO_LOCKS,
        recorder: Recorder | None = None,
    ) -> None:
        self._recorder = recorder or Recorder()
        self._claims = claims
        self._waker = waker
        self._locks = locks
        self._written = written
        self._done: deque[Ended] = deque()
        self._writing: list[Ended] = []
        self._undecided: dict[UUID, Lease] = {}  # perhaps a newer worker knows what to do with them
        self._deciding: set[asyncio.Task[None]] = set()
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._called = False
        self._hooks = hooks
        self._successes = SuccessLines(logged, self._loop.call_later)

    def finish(self, run: Run, outcome: Outcome, ended_s: float) -> None:
        """One attempt has ended. From any thread; never blocks."""
        if run.settled:
            if not isinstance(outcome, Completed | Released):
                said = "job %s had finished in its own transaction; what its handler did after that is dropped: %s"
                _log.warning(said, run.lease.job_id, outcome, extra=about(run.lease))
            self._loop.call_soon_threadsafe(self._locks.release, [run.lease])
            self._finished_itself(run, ended_s - run.began_s)
            return
        if run.undecided is not None and type(outcome) is Completed:
            outcome = unanswered(run)
        if type(outcome) is Failed and outcome.final and (fields := unknown_fields(run, outcome)):
            self._undecided[run.lease.job_id] = run.lease
            self._loop.call_soon_threadsafe(self._decide_soon, run, outcome, ended_s, fields)
            return
        log = None if run.log is None else run.log.text()
        self._put(run.lease, _settlement(run, outcome, ended_s - run.began_s, log), run)

    # Payloads with fields that our version does not know. -----------------------------------------------------------

    def _decide_soon(self, run: Run, failed: Failed, ended_s: float, fields: list[str]) -> None:
        task = create_own_task(self._loop, self._decide(run, failed, ended_s, fields))
        self._deciding.add(task)
        task.add_done_callback(self._deciding.discard)

    async def _decide(self, run: Run, failed: Failed, ended_s: float, fields: list[str]) -> None:
        """Hold the job for a worker of another version if there is one that knows these fields; else it has failed."""
        pauses = Pauses(_PAUSE_S, _PAUSE_S_MAX)
        outcome: Outcome = failed
        # All fields: two versions that each lack a field of the other's would hand the job to each other for ever.
        given = run.job.signature.given_fields(run.lease.payload)
        while True:
            try:
                if await self._claims.taken_by_other_version(run.lease.type, run.job.digest, given):
                    outcome = Held(newer_worker_reason(fields))
                    run.start_recorded = False  # its handler was never called: it may still be started, once
            except Unavailable as error:
                _log.warning("a job with fields of another version waits for the database: %s", error)
                await pauses.wait()
                continue
            except Exception:  # noqa: BLE001 - the lease must end: without an answer the job has failed, as before
                _log.exception("job %s: other versions of its type cannot be looked up", run.lease.job_id)
            break
        log = None if run.log is None else run.log.text()
        self._put(run.lease, _settlement(run, outcome, ended_s - run.began_s, log), run)
        del self._undecided[run.lease.job_id]  # only now: a lease that nobody holds would be given back as orphaned

    # Writing. -------------------------------------------------------------------------------------------------------

    def release(self, leases: Iterable[Lease], outcome: Outcome) -> None:
        """Leases that were never begun go back."""
        for lease in leases:
            self._put(lease, settle(lease, outcome, jitter=0))

    def _finished_itself(self, run: Run, execution_s: float) -> None:
        """It was stored by a transaction of the handler's, and only needs to be reported."""
        if self._successes.wanted or self._hooks is not None:
            settlement = settle(run.lease, Completed(), jitter=0, execution_s=execution_s)
            self._loop.call_soon_threadsafe(self._tell_finished, run, settlement)

    def _tell_finished(self, run: Run, settlement: Settlement) -> None:
        if self._successes.wanted:
            self._successes.report([(run.lease, settlement, Status.COMPLETED)])
        if self._hooks is not None:
            self._hooks.ended(run, settlement, Status.COMPLETED)

    def _put(self, lease: Lease, settlement: Settlement, run: Run | None = None) -> None:
        self._done.append((lease, settlement, run))
        if not self._called:  # one wake-up however many end at once
            self._called = True
            self._loop.call_soon_threadsafe(self._event.set)

    @property
    def backlog(self) -> int:
        """What is still to be done about ends: to write them, and to tell hooks of them."""
        waiting = 0 if self._hooks is None else self._hooks.backlog
        return len(self._done) + len(self._writing) + len(self._undecided) + waiting

    def held(self) -> list[Lease]:
        """Leases whose end is not written yet."""
        # The undecided first: one that is decided in between is then in what is done, never in neither.
        return [*tuple(self._undecided.values()), *(lease for lease, _, _ in (*self._writing, *tuple(self._done)))]

    async def work(self) -> None:
        """Write until cancelled."""
        while True:
            if not self._done:
                self._called = False
                if not self._done:  # looked at again: one may have been put between the two
                    await self._event.wait()
                self._event.clear()
                continue
            self._called = True
            count = min(len(self._done), _BATCH)
            self._writing = [self._done.popleft() for _ in range(count)]
            # Before the end is written: who claims the job next must not find it locked by an execution that is over.
            self._locks.release([lease for lease, _, _ in self._writing])
            await self._write(self._writing)
            self._writing = []
            self._written()

    async def _write(self, batch: list[Ended]) -> None:
        """Write a batch, however long it takes. What cannot be written, because somebody's open transaction holds its row
        or the store will not have it, is found by halving, and tried again behind the others."""
        pauses = Pauses(_PAUSE_S, _PAUSE_S_MAX)
        while True:
            try:
                receipt = await self._claims.settle([settlement for _, settlement, _ in batch])
            except Contended as error:
                await self._write_apart(batch, error)
                return
            except Unavailable as error:
                _log.warning("%d settlements wait for the database: %s", len(batch), error)
                await pauses.wait()
            except Exception as error:  # noqa: BLE001 - the work was done: ending the process over it would lose all of it
                await self._write_apart(batch, error)
                return
            else:
                self._look(batch, receipt)
                return

    async def _write_apart(self, batch: list[Ended], error: Exception) -> None:
        if len(batch) > 1:
            half = len(batch) // 2
            await self._write(batch[:half])
            await self._write(batch[half:])
            return
        ((lease, settlement, run),) = batch
        ours = None if isinstance(error, Unavailable) else error
        _log.error("job %s cannot be settled yet: %s", lease.job_id, error, exc_info=ours, extra=about(lease))
        await asyncio.sleep(_PAUSE_S if self._done else _PAUSE_S_MAX)
        self._done.append((lease, settlement, run))

    def _look(self, batch: list[Ended], receipt: Receipt) -> None:
        # Two looks at each job, and nothing else for those that completed: there may be 40,000 of them a second.
        ended, again = self._recorder.ended, (Status.SCHEDULED, Status.READY)
        for lease, settlement, run in batch:
            if run is not None:
                retried = settlement.failed and settlement.status in again
                ended(lease.queue, lease.type, lease.waited_s, settlement.execution_s, retried=retried)
        completed = Status.COMPLETED
        others = [ended for ended in batch if ended[1].status is not completed or ended[1].error is not None]
        self.wake_for(
            lease for lease, settlement, _ in others
            if settlement.status is Status.READY and lease.job_id in receipt.moved
        )  # fmt: skip
        if receipt.refused:
            self._report_refused(batch, receipt)
        self._report(batch if self._successes.wanted else others, receipt)
        if self._hooks is not None:
            for lease, settlement, run in batch:
                if run is not None and lease.job_id not in receipt.refused:
                    self._hooks.ended(run, settlement, receipt.moved.get(lease.job_id, settlement.status))

    def _report(self, ends: list[Ended], receipt: Receipt) -> None:
        successes = []
        for lease, settlement, run in ends:
            if run is None or lease.job_id in receipt.refused:
                continue
            status = receipt.moved.get(lease.job_id, settlement.status)
            if not is_success(settlement) or status is not settlement.status:
                report_end(lease, settlement, status)
            elif self._successes.wanted:
                successes.append((lease, settlement, status))
        if successes:
            self._successes.report(successes)

    def _report_refused(self, batch: list[Ended], receipt: Receipt) -> None:
        for lease, settlement, _ in batch:
            if lease.job_id in receipt.refused:
                _log.warning(
                    "job %s (%s, attempt %d): its lease was lost, and what this attempt made of it (%s) is dropped",
                    lease.job_id, lease.type, lease.attempt, settlement.status,
                    extra=about(lease),
                )  # fmt: skip

    def wake_for(self, leases: Iterable[Lease]) -> None:
        """These have gone back."""
        if wants := [Want(lease.queue, lease.type, lease.threads) for lease in leases]:
            self._waker.wake(wants)


def unknown_fields(run: Run, failed: Failed) -> list[str]:
    """The fields of its payload that the handler has no parameter for, if that is why it was never called. Python's names
    only: no version has a parameter of another name."""
    if not failed.error.type.endswith("InvalidPayload"):
        return []
    try:
        fields = run.job.signature.unknown_fields(run.lease.payload)
    except InvalidPayload:
        return []
    return fields if all(field.isidentifier() for field in fields) else []


def _settlement(run: Run, outcome: Outcome, execution_s: float, log: str | None) -> Settlement:
    once = run.start_recorded
    try:
        if type(outcome) is Completed and outcome.result is not None:
            outcome = Completed(encoded(run, outcome.result))
        return settle(run.lease, outcome, jitter=random.random(), execution_s=execution_s, log=log, at_most_once=once)
    except Exception as error:  # noqa: BLE001 - an outcome that a handler made by itself, of anything
        _log.exception("job %s: its outcome cannot be written", run.lease.job_id, extra=about(run.lease))
        failed = Failed(Error(qualified(error), f"its outcome cannot be written: {error}"))
        return settle(run.lease, failed, jitter=random.random(), execution_s=execution_s, log=log, at_most_once=once)

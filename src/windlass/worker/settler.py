"""Writes what became of attempts: in batches, one at a time, whatever has come together while the last was written.

A batch whose answer was lost is written again; the store tells what had been written from what is lost. What is
refused belongs to somebody else by now: said, and dropped.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from windlass.bus.protocol import Waker
from windlass.errors import Contended, Unavailable
from windlass.lifecycle import Completed, Failed, Outcome, Released, Settlement, settle
from windlass.model import Error, Lease, Status, Want
from windlass.pauses import Pauses
from windlass.store.protocol import Claims, Receipt
from windlass.telemetry import about
from windlass.worker.run import Run, qualified

_BATCH: Final = 250
_PAUSE_S: Final = 0.05
_PAUSE_S_MAX: Final = 1.0
_log: Final = logging.getLogger(__name__)

Ended = tuple[Lease, Settlement]


class Settler:
    """`written` is called on the loop after every batch."""

    def __init__(self, claims: Claims, waker: Waker, written: Callable[[], None]) -> None:
        self._claims = claims
        self._waker = waker
        self._written = written
        self._done: deque[Ended] = deque()
        self._writing: list[Ended] = []
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._called = False

    def finish(self, run: Run, outcome: Outcome, ended_s: float) -> None:
        """One attempt has ended. From any thread; never blocks."""
        if run.settled:
            if not isinstance(outcome, Completed | Released):
                said = "job %s had finished in its own transaction; what its handler did after that is dropped: %s"
                _log.warning(said, run.lease.job_id, outcome, extra=about(run.lease))
            return
        log = None if run.log is None else run.log.text()
        self._put(run.lease, _settlement(run, outcome, ended_s - run.began_s, log))

    def release(self, leases: Iterable[Lease], outcome: Outcome) -> None:
        """Leases that were never begun go back."""
        for lease in leases:
            self._put(lease, settle(lease, outcome, jitter=0))

    def _put(self, lease: Lease, settlement: Settlement) -> None:
        self._done.append((lease, settlement))
        if not self._called:  # one wake-up however many end at once
            self._called = True
            self._loop.call_soon_threadsafe(self._event.set)

    @property
    def backlog(self) -> int:
        return len(self._done) + len(self._writing)

    def held(self) -> list[Lease]:
        """Leases whose end is not written yet."""
        return [lease for lease, _ in (*self._writing, *tuple(self._done))]

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
            await self._write(self._writing)
            self._writing = []
            self._written()

    async def _write(self, batch: list[Ended]) -> None:
        """Write a batch, however long it takes. What cannot be written, because somebody's open transaction holds its row
        or the store will not have it, is found by halving, and tried again behind the others."""
        pauses = Pauses(_PAUSE_S, _PAUSE_S_MAX)
        while True:
            try:
                receipt = await self._claims.settle([settlement for _, settlement in batch])
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
        ((lease, settlement),) = batch
        ours = None if isinstance(error, Unavailable) else error
        _log.error("job %s cannot be settled yet: %s", lease.job_id, error, exc_info=ours, extra=about(lease))
        await asyncio.sleep(_PAUSE_S if self._done else _PAUSE_S_MAX)
        self._done.append((lease, settlement))

    def _look(self, batch: list[Ended], receipt: Receipt) -> None:
        for lease, settlement in batch if receipt.refused else ():
            if lease.job_id in receipt.refused:
                _log.warning(
                    "job %s (%s, attempt %d): its lease was lost, and what this attempt made of it (%s) is dropped",
                    lease.job_id, lease.type, lease.attempt, settlement.status,
                    extra=about(lease),
                )  # fmt: skip
        self.wake_for(
            lease for lease, settlement in batch
            if settlement.status is Status.READY and lease.job_id in receipt.moved
        )  # fmt: skip

    def wake_for(self, leases: Iterable[Lease]) -> None:
        """These have gone back."""
        if wants := [Want(lease.queue, lease.type, lease.threads) for lease in leases]:
            self._waker.wake(wants)


def _settlement(run: Run, outcome: Outcome, execution_s: float, log: str | None) -> Settlement:
    try:
        return settle(run.lease, outcome, jitter=random.random(), execution_s=execution_s, log=log)
    except Exception as error:  # noqa: BLE001 - a result whose own code fails while it is encoded
        _log.exception("job %s: its outcome cannot be written", run.lease.job_id, extra=about(run.lease))
        failed = Failed(Error(qualified(error), f"its outcome cannot be written: {error}"))
        return settle(run.lease, failed, jitter=random.random(), execution_s=execution_s, log=log)

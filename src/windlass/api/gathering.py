"""Single submissions that are in flight together share one transaction.

The first goes at once. Those that come while it is under way go together when it is done: the busier it is, the larger
the groups, and nobody waits for a timer. An answer is given after the commit, to each caller his own: one that cannot be
stored fails alone. Jobs with an idempotency key go apart from the others, since they take longer; and one whose key
another transaction holds waits for it aside, where nobody stands behind it.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

from windlass.errors import KeyBusy, Unavailable
from windlass.model import Enqueued, NewJob
from windlass.store.protocol import Intake

_TOGETHER: Final = 500  # what one transaction takes at most: more would make the next ones wait longer than it saves
_WAITING: Final = 10_000
_ASIDE: Final = 4  # each has a connection meanwhile, and there are few


class _Waiting(NamedTuple):
    job: NewJob
    answer: asyncio.Future[Enqueued]


class Gathering:
    def __init__(self, intake: Intake, *, plain_lanes: int = 1, keyed_lanes: int = 2) -> None:
        self._intake = intake
        self._held: set[str] = set()  # keys that someone waits for aside
        self._plain = _Line(intake, plain_lanes)
        self._keyed = _Line(intake, keyed_lanes)

    async def submit(self, job: NewJob) -> Enqueued:
        """Stored, or refused, when this returns."""
        key = job.idempotency_key
        if key is None:
            return await (self._plain if job.id is None else self._keyed).submit(job)
        if key not in self._held:
            try:
                return await self._keyed.submit(job)
            except KeyBusy:
                pass
        return await self._aside(key, job)

    async def _aside(self, key: str, job: NewJob) -> Enqueued:
        """Wait for whoever holds the key, one caller for each key: another is told at once that it is held."""
        if key in self._held or len(self._held) >= _ASIDE:
            raise KeyBusy(key)
        self._held.add(key)
        try:
            return (await self._intake.enqueue([job]))[0]
        finally:
            self._held.discard(key)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._plain.close()
        await self._keyed.close()


class _Line:
    """Those who wait, and up to `lanes` groups under way."""

    def __init__(self, intake: Intake, lanes: int) -> None:
        self._intake = intake
        self._lanes = lanes
        self._busy = 0
        self._waiting: deque[_Waiting] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._groups: list[list[_Waiting]] = []  # what they are about

    def submit(self, job: NewJob) -> asyncio.Future[Enqueued]:
        answer: asyncio.Future[Enqueued] = asyncio.get_running_loop().create_future()
        if len(self._waiting) >= _WAITING:
            answer.set_exception(Unavailable("too many submissions are waiting to be stored; try again"))
            return answer
        self._waiting.append(_Waiting(job, answer))
        if self._busy < self._lanes:
            self._start()
        return answer

    def _start(self) -> None:
        self._busy += 1
        task = asyncio.create_task(self._go())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _go(self) -> None:
        try:
            while self._waiting:
                group = [self._waiting.popleft() for _ in range(min(len(self._waiting), _TOGETHER))]
                # Who has gone before his turn was promised nothing: a shutdown need not wait until all are stored.
                if present := [each for each in group if not each.answer.done()]:
                    await self._store(present)
        finally:
            # At once, not when the task is seen to have ended: who comes in between would wait for a lane that is gone.
            self._busy -= 1

    async def _store(self, group: list[_Waiting]) -> None:
        answers: Sequence[Enqueued | Exception]
        self._groups.append(group)
        try:
            answers = await self._intake.enqueue_each([each.job for each in group])
        except Exception as error:  # noqa: BLE001 - a fault of ours must not leave callers waiting for ever
            answers = [error] * len(group)
        finally:
            self._groups.remove(group)
        for each, answer in zip(group, answers, strict=True):
            if each.answer.done():  # its caller has gone
                continue
            if isinstance(answer, Exception):
                each.answer.set_exception(answer)
            else:
                each.answer.set_result(answer)

    async def close(self) -> None:
        """Let what is under way end, for callers who are still there. Where they are not, a database that has fallen silent
        must not hold up the end."""
        if answers := [each.answer for group in (self._waiting, *self._groups) for each in group]:
            await asyncio.wait(answers)
        for task in (left := list(self._under_way)):
            task.cancel()
        if left:
            await asyncio.wait(left)

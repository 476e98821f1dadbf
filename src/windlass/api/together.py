"""Requests in flight together are answered together, by one statement or transaction.

The first goes at once. Those that come while it is under way go together when it is done: the busier it is, the larger
the groups, and nobody waits for a timer. What began before a question was asked does not answer it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from windlass.errors import Unavailable

Q = TypeVar("Q")
A = TypeVar("A")

_TOGETHER: Final = 500  # what one group holds at most: more would make the next ones wait longer than it saves
_WAITING: Final = 10_000


class _Waiting(NamedTuple, Generic[Q, A]):
    question: Q
    answer: asyncio.Future[A]


class Together(Generic[Q, A]):
    """`ask_all` gets a group and answers each in order, with an exception for one that fails alone. `lanes`: how many groups
    may be under way. `what`: those who are turned away are told that there are too many of these."""

    def __init__(
        self, ask_all: Callable[[list[Q]], Awaitable[Sequence[A | Exception]]], *, what: str, lanes: int = 1
    ) -> None:
        self._ask_all = ask_all
        self._what = what
        self._lanes = lanes
        self._busy = 0
        self._waiting: deque[_Waiting[Q, A]] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._groups: list[list[_Waiting[Q, A]]] = []  # what they are about

    def ask(self, question: Q) -> asyncio.Future[A]:
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        if len(self._waiting) >= _WAITING:
            answer.set_exception(Unavailable(f"too many {self._what}; try again"))
            return answer
        self._waiting.append(_Waiting(question, answer))
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
                # Who has gone before his turn was promised nothing: a shutdown need not wait until all are answered.
                if present := [each for each in group if not each.answer.done()]:
                    await self._answer(present)
        finally:
            # At once, not when the task is seen to have ended: who comes in between would wait for a lane that is gone.
            self._busy -= 1

    async def _answer(self, group: list[_Waiting[Q, A]]) -> None:
        answers: Sequence[A | Exception]
        self._groups.append(group)
        try:
            answers = await self._ask_all([each.question for each in group])
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

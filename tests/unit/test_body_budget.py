"""The memory that bodies share: who holds the most gives way, and nobody else."""

import asyncio

import pytest

from windlass.api.bodies import BodyBudget, HeldBody, Turns
from windlass.errors import Unavailable

_MB = 2**20
_FREE = 65_536


class Upload:
    """A body whose task waits for more of it."""

    def __init__(self, budget: BodyBudget, caller: str) -> None:
        self._made: asyncio.Future[HeldBody] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._run(budget, caller))

    async def _run(self, budget: BodyBudget, caller: str) -> str:
        held = HeldBody(budget, caller)
        self._made.set_result(held)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return held.ended().code
        return ""

    async def take(self, size: int) -> HeldBody:
        held = await self._made
        held.take(size)
        return held


async def test_two_unfinished_uploads_of_one_caller_keep_no_other_out() -> None:
    budget = BodyBudget(64 * _MB)
    hogs = [Upload(budget, "hog") for _ in range(2)]
    for hog in hogs:
        await hog.take(32 * _MB + _FREE)
    await Upload(budget, "other").take(_MB)
    async with asyncio.timeout(5):
        done, waiting = await asyncio.wait([hog.task for hog in hogs], return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in done] == ["unavailable"]
    assert len(waiting) == 1


async def test_whoever_holds_the_most_is_refused_and_takes_from_nobody() -> None:
    budget = BodyBudget(64 * _MB)
    other = Upload(budget, "other")
    await other.take(10 * _MB)
    await Upload(budget, "hog").take(54 * _MB)
    with pytest.raises(Unavailable):
        await Upload(budget, "hog").take(2 * _MB)
    assert not other.task.done()


async def test_equal_callers_do_not_take_from_each_other_in_turns() -> None:
    budget = BodyBudget(64 * _MB)
    for n in range(2):
        await Upload(budget, f"caller {n}").take(32 * _MB + _FREE)
    for n in range(2):
        with pytest.raises(Unavailable):
            await Upload(budget, f"caller {n}").take(_MB + _FREE)


async def test_what_is_whole_does_not_give_way() -> None:
    budget = BodyBudget(64 * _MB)
    (await Upload(budget, "hog").take(64 * _MB + _FREE)).complete = True
    with pytest.raises(Unavailable):
        await Upload(budget, "other").take(_MB)


async def test_a_small_body_needs_no_room() -> None:
    budget = BodyBudget(64 * _MB)
    await Upload(budget, "hog").take(64 * _MB + _FREE)
    for _ in range(100):
        await Upload(budget, "hog").take(_FREE)


async def test_what_is_given_back_twice_counts_once() -> None:
    budget = BodyBudget(_MB)
    held = await Upload(budget, "a").take(_MB + _FREE)
    budget.give_back(held)
    budget.give_back(held)
    await Upload(budget, "b").take(_MB + _FREE)
    with pytest.raises(Unavailable):
        await Upload(budget, "a").take(_MB + _FREE)


async def test_a_caller_has_one_turn_at_a_time_and_the_others_theirs() -> None:
    turns = Turns()
    under_way: list[str] = []
    three, go = asyncio.Event(), asyncio.Event()

    async def decode(caller: str) -> None:
        async with turns.turn(caller, _MB):
            under_way.append(caller)
            if len(under_way) == 3:
                three.set()
            await go.wait()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        for caller in ("hog", "hog", "hog", "one", "two"):
            group.create_task(decode(caller))
        await three.wait()
        assert sorted(under_way) == ["hog", "one", "two"]
        go.set()
    assert len(under_way) == 5

"""Effects of handlers (ctx.effect): done once, skipped, repeated, or asked about, in every place where handlers run."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.eventually import aeventually
from tests.worker.placed import Placed, placed, types_of
from windlass import AsyncContext, Context, Retry
from windlass.config import StoreConfig
from windlass.errors import Unavailable, WindlassError
from windlass.model import Job, RetryPolicy, Status, needs_decision
from windlass.store.protocol import Intention

done: list[tuple[str, int]] = []
AT_ONCE = RetryPolicy(base_s=0, jitter=0)


async def paid(ctx: AsyncContext, how: str = "fine", if_unknown: Any = "ask") -> Any:
    """`how` is what happens in the block of the first attempt."""
    async with ctx.effect("pay", if_unknown=if_unknown) as effect:
        if effect.needed:
            if ctx.attempt == 1:
                await _happen(effect, how)
            done.append((how, ctx.attempt))
            effect.result = {"receipt": ctx.attempt}
    if how == "fails after" and ctx.attempt == 1:
        raise ValueError("after the block")
    return effect.result


def paid_blocking(ctx: Context, how: str = "fine", if_unknown: Any = "ask") -> Any:
    with ctx.effect("pay", if_unknown=if_unknown) as effect:
        if effect.needed:
            if ctx.attempt == 1:
                _happen_blocking(effect, how)
            done.append((how, ctx.attempt))
            effect.result = {"receipt": ctx.attempt}
    if how == "fails after" and ctx.attempt == 1:
        raise ValueError("after the block")
    return effect.result


async def _happen(effect: Any, how: str) -> None:
    if how == "hangs":
        await asyncio.sleep(60)
    _raise(effect, how)


def _happen_blocking(effect: Any, how: str) -> None:
    while how == "hangs":
        time.sleep(0.01)
    _raise(effect, how)


def _raise(effect: Any, how: str) -> None:
    if how in {"uncertain", "refused"}:
        effect.may_have_happened()
    if how == "refused":
        effect.has_not_happened()
    if how in {"raises", "uncertain", "refused"}:
        raise ValueError("no connection")
    if how == "retries":
        raise Retry(0)
    if how == "times out":
        raise TimeoutError("no answer")
    if how == "group":
        raise ExceptionGroup("two", [ValueError("a"), TimeoutError("b")])


async def twice_at_once(ctx: AsyncContext) -> None:
    async with ctx.effect("pay"), ctx.effect("pay"):
        pass


async def twice_by_two_tasks(ctx: AsyncContext) -> None:
    """The second asks while the first still waits for the database."""

    async def pay() -> None:
        async with ctx.effect("pay") as effect:
            if effect.needed:
                done.append(("task", ctx.attempt))
                await asyncio.sleep(0)

    ends = await asyncio.gather(pay(), pay(), return_exceptions=True)
    raise next(end for end in ends if end is not None)


async def again_after_lost_record(ctx: AsyncContext) -> list[bool]:
    """It happened, and the record of that failed; the handler tries the block again."""
    needed = []
    for _ in range(2):
        try:
            async with ctx.effect("pay", if_unknown="skip") as effect:
                needed.append(effect.needed)
        except WindlassError:
            continue
    return needed


async def again_after_unknown(ctx: AsyncContext) -> list[bool]:
    needed = []
    for _ in range(2):
        try:
            async with ctx.effect("pay", if_unknown="skip") as effect:
                needed.append(effect.needed)
                _raise(effect, "times out" if effect.needed else "fine")
        except TimeoutError:
            pass
    return needed


async def unkeepable(ctx: AsyncContext) -> None:
    async with ctx.effect("pay") as effect:
        if effect.needed:
            done.append(("unkeepable", ctx.attempt))
            effect.result = object()


async def swallows(ctx: AsyncContext) -> None:
    try:
        async with ctx.effect("pay") as effect:
            _raise(effect, "times out")
    except Exception:  # noqa: BLE001 - what must not catch it
        done.append(("swallowed", ctx.attempt))


async def gathers(ctx: AsyncContext) -> str:
    async def pay() -> None:
        async with ctx.effect("pay") as effect:
            _raise(effect, "times out")

    await asyncio.gather(pay(), return_exceptions=True)
    return "never mind"


def swallows_blocking(ctx: Context) -> str:
    try:
        with ctx.effect("pay") as effect:
            _raise(effect, "times out")
    except BaseException:  # noqa: BLE001 - as a handler of a careless author does
        done.append(("swallowed", ctx.attempt))
    return "never mind"


async def reserved(ctx: AsyncContext) -> None:
    async with ctx.effect("windlass:start"):
        pass


HANDLERS = types_of(
    paid, paid_blocking, twice_at_once, twice_by_two_tasks, again_after_unknown, again_after_lost_record, unkeepable,
    swallows, gathers, swallows_blocking, reserved,
)  # fmt: skip


@pytest.fixture
async def site(config: StoreConfig) -> AsyncIterator[Placed]:
    done.clear()
    async with placed(config, HANDLERS) as one:
        yield one


@pytest.fixture(params=["paid", "paid_blocking"])
def handler(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def ran(site: Placed, handler: str, how: str, if_unknown: str = "ask", **fields: Any) -> Job:
    """Run it to its end, or until somebody is asked."""
    payload = {"how": how, "if_unknown": if_unknown}
    job_id = await site.enqueue(handler, payload, retry=AT_ONCE, **fields)

    async def over() -> Job | None:
        job = await site.store.views.job(job_id)
        if job.status is Status.SCHEDULED:
            await site.store.intake.run_now(job_id)
            site.worker.hint()
        return job if job.status in {Status.COMPLETED, Status.FAILED, Status.HELD} else None

    job = await aeventually(over)
    assert job is not None
    return job


async def test_an_effect_that_is_done_is_not_needed_again_and_its_result_is_there(site: Placed, handler: str) -> None:
    job = await ran(site, handler, "fails after")
    assert (job.status, job.attempt, job.result) == (Status.COMPLETED, 2, '{"receipt":1}')
    assert done == [("fails after", 1)]


@pytest.mark.parametrize("how", ["raises", "retries", "refused"])
async def test_an_exception_means_that_it_has_not_happened(site: Placed, handler: str, how: str) -> None:
    job = await ran(site, handler, how)
    assert (job.status, job.attempt) == (Status.COMPLETED, 2)
    assert done == [(how, 2)]


@pytest.mark.parametrize("how", ["uncertain", "times out", "group"])
async def test_one_that_may_have_happened_stops_the_job_for_a_person(site: Placed, handler: str, how: str) -> None:
    job = await ran(site, handler, how)
    assert (job.status, job.reason, job.attempt, job.failures) == (Status.HELD, needs_decision, 1, 0)
    (attempt,) = await site.store.views.attempts(job.id)
    assert (attempt.status, attempt.error and attempt.error.type) == ("held", "NeedsDecision")
    assert "'pay' may have happened" in str(attempt.error)
    assert "_raise" in str(attempt.error and attempt.error.traceback), "the handler's own frames"
    await site.store.intake.decide(job.id, "redo")
    site.worker.hint()
    assert (await site.reaches(job.id, Status.COMPLETED)).result == '{"receipt":2}'
    assert done == [(how, 2)]


async def test_one_that_a_person_says_was_done_is_not_done_again(site: Placed, handler: str) -> None:
    job = await ran(site, handler, "times out")
    await site.store.intake.decide(job.id, "done")
    site.worker.hint()
    assert (await site.reaches(job.id, Status.COMPLETED)).result is None
    assert done == []


@pytest.mark.parametrize(("if_unknown", "times"), [("repeat", 1), ("skip", 0)])
async def test_one_that_may_have_happened_is_repeated_or_skipped_by_choice(
    site: Placed, handler: str, if_unknown: str, times: int
) -> None:
    job = await ran(site, handler, "times out", if_unknown)
    assert (job.status, job.attempt, job.failures) == (Status.COMPLETED, 2, 1)
    assert len(done) == times


async def test_a_timeout_of_the_job_within_the_block_leaves_the_effect_unknown(site: Placed, handler: str) -> None:
    job = await ran(site, handler, "hangs", timeout_s=0.2)
    assert (job.status, job.reason, job.failures) == (Status.HELD, needs_decision, 0)
    assert done == []


async def test_a_cancel_within_the_block_cancels_the_job(site: Placed, handler: str) -> None:
    job_id = await site.enqueue(handler, {"how": "hangs"})
    await site.reaches(job_id, Status.RUNNING)
    await site.cancel(job_id)
    await site.reaches(job_id, Status.CANCELLED)


async def test_the_question_cannot_be_swallowed(site: Placed) -> None:
    job_id = await site.enqueue("swallows")
    assert (await site.reaches(job_id, Status.HELD)).reason == needs_decision
    assert done == []


@pytest.mark.parametrize("handler", ["gathers", "swallows_blocking"])
async def test_a_handler_that_goes_on_without_the_answer_does_not_complete_its_job(site: Placed, handler: str) -> None:
    job_id = await site.enqueue(handler)
    job = await site.reaches(job_id, Status.HELD, Status.COMPLETED)
    assert (job.status, job.reason) == (Status.HELD, needs_decision)
    (attempt,) = await site.store.views.attempts(job_id)
    assert "'pay' may have happened" in str(attempt.error)


async def test_one_effect_is_not_begun_twice_at_once(site: Placed) -> None:
    job = await site.run("twice_at_once", max_attempts=1)
    assert "under way already" in str(job.error)


async def test_one_effect_is_not_begun_by_two_tasks_at_once(site: Placed) -> None:
    job = await site.run("twice_by_two_tasks", max_attempts=1)
    assert "under way already" in str(job.error)
    assert done == [("task", 1)]


async def test_one_that_happened_and_could_not_be_recorded_is_not_new_to_the_same_attempt(
    site: Placed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any) -> None:
        raise WindlassError("the disk is full")

    monkeypatch.setattr(site.worker._steps, "finish_effect", fails)
    assert (await site.run("again_after_lost_record")).result == "[true,false]"


async def test_an_attempt_that_left_an_effect_unknown_meets_it_as_unknown_itself(site: Placed) -> None:
    assert (await site.run("again_after_unknown")).result == "[true,false]"


async def test_an_effect_whose_result_cannot_be_kept_is_done_all_the_same(site: Placed) -> None:
    job = await site.run("unkeepable", retry=AT_ONCE, max_attempts=1)
    assert "result of effect 'pay'" in str(job.error)
    await site.store.intake.retry(job.id)
    site.worker.hint()
    await site.reaches(job.id, Status.COMPLETED)
    assert done == [("unkeepable", 1)]


async def test_keys_of_our_own_are_refused(site: Placed) -> None:
    assert "must not begin with windlass:" in str((await site.run("reserved", max_attempts=1)).error)


async def test_an_effect_insists_through_an_outage_of_the_database(
    site: Placed, handler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write fails twice: once before it reached the database, once with its answer lost."""
    failed: dict[str, int] = {}
    for name in ("intend", "finish_effect"):
        real = getattr(site.worker._steps, name)

        async def unreliable(*args: Any, _real: Any = real, _name: str = name, **kwargs: Any) -> Intention | None:
            failed[_name] = failed.get(_name, 0) + 1
            if failed[_name] == 1:
                raise Unavailable("the database is away")
            answer: Intention | None = await _real(*args, **kwargs)
            if failed[_name] == 2:
                raise Unavailable("the answer is lost")
            return answer

        monkeypatch.setattr(site.worker._steps, name, unreliable)
    job = await ran(site, handler, "fine")
    assert (job.status, job.attempt) == (Status.COMPLETED, 1)
    assert failed == {"intend": 3, "finish_effect": 3}
    assert done == [("fine", 1)]

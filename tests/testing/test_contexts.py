"""A context for calling handlers directly: the real one, with nothing behind it but memory."""

import logging
from uuid import UUID

import pytest

from tests.testing import shop
from windlass import AsyncContext, Context, Retry
from windlass.errors import Misconfigured
from windlass.telemetry import JobLogHandler
from windlass.testing import context_for, recorded
from windlass.testing.logs import keeping_logs
from windlass.worker.run import NeedsDecision


async def test_steps_progress_and_log_are_kept_in_memory() -> None:
    ctx = context_for(shop.charge)
    assert isinstance(ctx, AsyncContext)
    assert await shop.charge(ctx, 5) == "charge-5"
    assert await shop.charge(ctx, 5) == "charge-5"
    assert shop.ran == [("charge", 5)]
    assert recorded(ctx).steps == {"charge": "charge-5"}
    assert recorded(ctx).progress == [(0.5, "asked"), (0.5, "asked")]


async def test_what_an_earlier_attempt_has_done_is_not_done_again() -> None:
    ctx = context_for(shop.charge, attempt=2, failures=1, steps={"charge": "charge-of-before"})
    assert await shop.charge(ctx, 5) == "charge-of-before"
    assert (shop.ran, ctx.attempt, ctx.failures) == ([], 2, 1)


async def test_a_handler_that_was_told_to_stop_sees_it() -> None:
    with pytest.raises(Retry):
        await shop.charge(context_for(shop.charge, cancelled=True), 5)


def test_a_def_handler_gets_a_context_of_its_kind() -> None:
    job_id = UUID(int=1)
    ctx = context_for(shop.isolated, threads=2, job_id=job_id, tags=["a"])
    assert type(ctx) is Context
    assert shop.isolated(ctx) == 2
    assert (ctx.id, ctx.type, ctx.queue, ctx.tags) == (job_id, "isolated", "default", ("a",))
    assert ctx.once("step", lambda: 7) == 7
    ctx.log.info("done", n=1)
    (line,) = recorded(ctx).log
    assert line.endswith("done n=1")


def test_a_line_is_kept_once_also_where_the_process_keeps_logs_as_a_worker_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [JobLogHandler()])
    monkeypatch.setattr(logging.getLogger("job"), "handlers", [])
    ctx = context_for(shop.isolated)
    with keeping_logs():
        ctx.log.warning("done")
    (line,) = recorded(ctx).log
    assert line.endswith("done")


def test_a_transaction_of_the_handlers_own_is_finished() -> None:
    ctx = context_for(shop.isolated)
    with ctx.transaction("a connection"):
        ctx.finish({"n": 1})
    assert (recorded(ctx).finished, recorded(ctx).result) == (True, {"n": 1})


async def test_a_transaction_without_a_database_says_what_to_do() -> None:
    with pytest.raises(Misconfigured, match=r"enqueue the job and drain\(\) it"):
        await shop.settles(context_for(shop.settles))


async def test_effects_are_kept_in_memory_and_found_as_they_are_said_to_be() -> None:
    ctx = context_for(shop.charge)
    async with ctx.effect("mail") as effect:
        assert (effect.needed, recorded(ctx).effects) == (True, {"mail": "unknown"})
        effect.result = 7
    async with ctx.effect("mail") as effect:
        assert (effect.needed, effect.result) == (False, 7)
    assert recorded(ctx).effects == {"mail": "done"}
    with pytest.raises(NeedsDecision):
        await context_for(shop.charge, effects={"mail": "unknown"}).effect("mail").__aenter__()


def test_effects_of_def_handlers_are_too() -> None:
    ctx = context_for(shop.isolated, effects={"mail": "done"})
    with ctx.effect("mail") as mail, ctx.effect("sms") as sms:
        assert (mail.needed, sms.needed) == (False, True)
    assert (ctx.effect_state("sms"), ctx.effect_state("fax")) == ("done", "new")

"""Effects of handlers on the world outside: `async with ctx.effect("welcome-mail") as effect: if effect.needed: …`.

An effect that is not in our database cannot be undone with the attempt that had it. So it is recorded as intended before
the block and as done after it, both durably. An attempt that finds it done skips it. One that finds it intended cannot know
whether it has happened, and does what the handler chose: repeat it, skip it, or stop and ask a person.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Protocol, TypeVar, get_args

from windlass.errors import InvalidJob, InvalidPayload, MayHaveRun, Unavailable, WindlassError
from windlass.lifecycle import result_bytes_max
from windlass.model import IfUnknown, Lease, check_text, key_max, reserved_prefix, start_key
from windlass.pauses import Pauses
from windlass.payload import decode, encode
from windlass.store.protocol import EffectState, EffectWriter, Intention
from windlass.worker.run import NeedsDecision, Run, Stopped

T = TypeVar("T")
_LAST_WRITE_S: Final = 1.0


class EffectReach(EffectWriter, Protocol):
    """What effects need of the process they happen in."""

    def wait(self, work: Coroutine[Any, Any, T]) -> T: ...


async def insist(run: Run, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Through a restart of the database: giving up after something was done would do it again."""
    pauses = Pauses(0.05, 1.0)
    while True:
        try:
            return await ask()
        except Unavailable:
            if run.stop is not None or run.time_left_s <= 0:
                raise
            await pauses.wait()


class Effect:
    """One effect, inside its block. Do it only if it is `needed`. `result` is a JSON value that is kept with it: set it after
    the effect, and a later attempt that skips the effect finds it here."""

    def __init__(self, key: str, *, needed: bool, result: Any = None) -> None:
        self.key = key
        self.needed = needed
        self.result = result
        self.is_uncertain = False

    def may_have_happened(self) -> None:
        """Say this before the point of no return: an exception that follows does not mean that it has not happened."""
        self.is_uncertain = True

    def has_not_happened(self) -> None:
        """Say this when it is certain after all, as when a server has refused: an exception that follows takes it back."""
        self.is_uncertain = False


def checked_key(key: str) -> str:
    check_text("key", key, key_max)
    if key.startswith(reserved_prefix):
        raise InvalidJob("key", f"must not begin with {reserved_prefix}")
    return key


async def state_of(run: Run, reach: EffectWriter, key: str) -> EffectState:
    """What is recorded of an effect of this job."""
    intention = await insist(run, lambda: reach.effect_state(run.lease, checked_key(key)))
    return intention.found


class EffectBlock:
    """One `with ctx.effect(…)` block, blocking or async."""

    def __init__(self, run: Run, reach: EffectReach, key: str, if_unknown: IfUnknown) -> None:
        if if_unknown not in get_args(IfUnknown):
            raise InvalidJob("if_unknown", "must be repeat, skip or ask")
        self._run = run
        self._reach = reach
        self._key = checked_key(key)
        self._if_unknown: IfUnknown = if_unknown
        self._effect: Effect | None = None

    @property
    def _lease(self) -> Lease:
        return self._run.lease

    # Blocking. ------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Effect:
        return self._reach.wait(self._enter())

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._reach.wait(self._leave(error))
        self._ask_after(error)

    # Async. ---------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Effect:
        try:
            return await _to_the_end(self._enter())
        except asyncio.CancelledError:
            # Nothing was done yet: where the database answers in time, nobody need be asked whether it was.
            if self._run.open_effects.pop(self._key, None) is not None:
                with contextlib.suppress(WindlassError, TimeoutError):
                    async with asyncio.timeout(_LAST_WRITE_S):
                        await self._reach.take_back_effect(self._lease, self._key)
            raise

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        await _to_the_end(self._leave(error))
        self._ask_after(error)

    # Both. ----------------------------------------------------------------------------------------------------------

    async def _enter(self) -> Effect:
        run, key = self._run, self._key
        if key in run.open_effects or key in run.entered_effects:
            raise InvalidJob("key", f"the effect {key!r} of this job is under way already")
        was_left_unknown = key in run.unknown_effects
        run.entered_effects.add(key)  # before the answer: another task of the handler would find it new, too
        try:
            intention: Intention = await insist(
                run, lambda: self._reach.intend(self._lease, key, self._if_unknown, unknown=was_left_unknown)
            )
        finally:
            run.entered_effects.discard(key)
        if intention.found == "unknown" and self._if_unknown == "ask":
            run.undecided = run.undecided or key
            raise NeedsDecision(f"effect {key!r} may have happened in an earlier attempt")
        needed = intention.found == "new" or (intention.found == "unknown" and self._if_unknown == "repeat")
        result = None if needed or intention.result is None else decode(intention.result)
        self._effect = Effect(key, needed=needed, result=result)
        if needed:
            run.open_effects[key] = self._effect
        return self._effect

    async def _leave(self, error: BaseException | None) -> None:
        effect = self._effect
        if effect is None or not effect.needed:
            return
        self._run.open_effects.pop(self._key, None)
        if error is None:
            await self._finish(effect)
        elif effect.is_uncertain or not _is_definite(error):
            self._run.unknown_effects.add(self._key)
        else:
            try:
                await insist(self._run, lambda: self._reach.take_back_effect(self._lease, self._key))
            except WindlassError:  # the handler's own error is what counts; what is recorded stays, and is unknown
                self._run.unknown_effects.add(self._key)
            else:
                self._run.unknown_effects.discard(self._key)

    async def _finish(self, effect: Effect) -> None:
        """It has happened, whatever else is wrong: with a result that cannot be kept it is recorded without one."""
        problem: InvalidPayload | None = None
        text: str | None = None
        try:
            where = f"result of effect {self._key!r}"
            text = None if effect.result is None else encode(effect.result, where, bytes_max=result_bytes_max)
        except InvalidPayload as error:
            problem = error
        self._run.unknown_effects.add(
            self._key
        )  # until it is recorded: a handler that tries again must not find it new
        await insist(self._run, lambda: self._reach.finish_effect(self._lease, self._key, text))
        self._run.unknown_effects.discard(self._key)
        if problem is not None:
            raise problem

    def _ask_after(self, error: BaseException | None) -> None:
        """Ask a person at once instead of after the next attempt has met it. What stops the attempt from outside goes on."""
        if error is None or self._if_unknown != "ask" or self._key not in self._run.unknown_effects:
            return
        self._run.undecided = self._run.undecided or self._key
        if isinstance(error, Exception):
            said = f"{type(error).__name__}: {error}"
            raise NeedsDecision(f"effect {self._key!r} may have happened: {said}") from error


def _is_definite(error: BaseException) -> bool:
    """Whether the error says that the effect has not happened. A time-out does not, nor does an end from outside."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_definite(each) for each in error.exceptions)
    return isinstance(error, Exception) and not isinstance(error, TimeoutError)


async def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Let a write that is under way end before a cancel goes on: else nobody knows whether it was made."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait([task], timeout=_LAST_WRITE_S)
        if task.done() and not task.cancelled():
            task.exception()  # looked at: nobody else will
        raise


# Jobs that are started once at most. ----------------------------------------------------------------------------------


async def record_start(run: Run, reach: EffectWriter) -> None:
    """Record durably that the handler is about to begin. Raises MayHaveRun if an earlier attempt did."""
    try:
        intention = await _to_the_end(insist(run, lambda: reach.intend(run.lease, start_key, "ask")))
    except (
        asyncio.CancelledError
    ):  # stopped before it began: what may have been recorded would keep it from ever beginning
        with contextlib.suppress(WindlassError, TimeoutError):
            async with asyncio.timeout(_LAST_WRITE_S):
                await reach.take_back_effect(run.lease, start_key)
        raise
    if intention.found != "new":
        raise MayHaveRun("an earlier attempt began, and nobody knows how far it came; it is not started again")
    run.start_recorded = True
    if run.stop is not None:  # told to stop meanwhile: it has not begun, and may begin elsewhere
        run.start_recorded = False
        with contextlib.suppress(WindlassError):
            await reach.take_back_effect(run.lease, start_key)
        raise Stopped

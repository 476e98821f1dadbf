"""One attempt under way, how it is told to stop, and what its end means.

Shared by every way of running a handler: lanes of the worker (lanes.py) and processes of their own (isolation.py).
"""

import ctypes
import traceback
from asyncio import CancelledError
from enum import Enum
from functools import cached_property
from types import CoroutineType, FrameType
from typing import TYPE_CHECKING, Any, Final, Protocol

from windlass.clock import steady_s
from windlass.errors import Cancel, Fail, InvalidPayload, MayHaveRun, Retry, Snooze, WindlassError
from windlass.lifecycle import Cancelled, Completed, Failed, Held, Outcome, Released, Snoozed, TimedOut, Written
from windlass.model import Error, Lease, needs_decision

if TYPE_CHECKING:
    from windlass.worker.effects import Effect
    from windlass.worker.registry import JobType

_HEADER: Final = "Traceback (most recent call last):\n"


class Stop(Enum):
    """Why a handler is told to stop."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    SHUTDOWN = "shutdown"
    LOST = "lost"  # its lease is somebody else's, or nobody's: a crash of the database forgot the claim


class Stopped(BaseException):
    """Thrown into a handler that must stop. Not an Exception: a handler's own `except Exception` must not eat it."""


class NeedsDecision(BaseException):
    """Stops an attempt that has met an effect which may have happened, until a person says. Not an Exception, as Stopped."""


def throw(thread_id: int, kind: type[BaseException] | None) -> None:
    """Have the interpreter raise `kind` in that thread at its next step; None takes back what has not struck yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread_id), None if kind is None else ctypes.py_object(kind)
    )


class LogSink(Protocol):
    """Keeps the log of one attempt."""

    def text(self) -> str | None: ...


class Lane(Protocol):
    """Where a handler runs."""

    def throw(self, run: "Run") -> None:
        """Throw an exception into the handler of this run, and into no other."""

    def frames(self, run: "Run") -> str:
        """Where the handler of this run is at the moment, as lines of a traceback; empty where that is not known."""


class Run:
    """One attempt under way. `stop` is why it was told to stop, if it was; `settled`: it finished in a transaction."""

    # On the class, because one is made for every job and most are never told to stop: five stores instead of thirteen.
    stop: Stop | None = None
    stop_s = 0.0
    thrown_s = 0.0
    stuck = False
    settled = False
    finishing = False  # its handler finishes it in a transaction: its row may go before it ends
    log: LogSink | None = None
    progress: tuple[float, str | None] | None = None
    lane: Lane | None = None
    exception: BaseException | None = None  # what its handler raised, where a hook wants to see it
    undecided: str | None = None  # the effect that a person must decide about
    start_recorded = False  # of a job that is started once at most: it must not begin again

    def __init__(self, lease: Lease, job: "JobType", began_s: float, slot: int) -> None:
        self.lease = lease
        self.job = job
        self.began_s = began_s
        self.deadline_s = began_s + lease.timeout_s
        self.slot = slot

    @cached_property
    def open_effects(self) -> "dict[str, Effect]":
        """Effects that are under way, by key."""
        return {}

    @cached_property
    def entered_effects(self) -> set[str]:
        """Effects whose block waits for what is recorded of them."""
        return set()

    @cached_property
    def unknown_effects(self) -> set[str]:
        """Effects that this attempt has tried and does not know the outcome of."""
        return set()

    @property
    def time_left_s(self) -> float:
        return self.deadline_s - steady_s()

    @property
    def isolated(self) -> bool:
        return self.lease.suspect or self.job.isolation == "process"

    def tell_to_stop(self, why: Stop) -> None:
        """The first reason stands, but a cancel overrules a shutdown: it would come back only to be cancelled."""
        if self.stop is None or (self.stop is Stop.SHUTDOWN and why is not Stop.SHUTDOWN):
            self.stop = why
            self.stop_s = self.stop_s or steady_s()


def completed(result: object) -> Completed:
    """What it means that a handler returned. A coroutine is work that was never done: nobody awaited it."""
    if isinstance(result, CoroutineType):
        result.close()
        raise TypeError(
            "returned a coroutine that nobody awaits: is an async function hidden behind a plain decorator?"
        )
    return Completed(result)


def encoded(run: Run, result: object) -> Written:
    """What a handler returned, as its type says. One that ran in a process of its own has been encoded there."""
    return result if type(result) is Written else run.job.result_type.encode(result)


def outcome_of(error: BaseException, run: Run) -> Outcome:
    """What it means that a handler ended with this error. Whatever the error does, there is an answer: without one the
    run would never end."""
    if run.job.hooks is not None and run.job.hooks.after:
        run.exception = error
    try:
        return _outcome_of(error, run)
    except Stopped:  # thrown while the error was described
        raise
    except BaseException as problem:  # noqa: BLE001 - an error whose own code fails, by sys.exit() say
        return Failed(Error(type(error).__name__, f"it cannot be described: {type(problem).__name__}"))


def _outcome_of(error: BaseException, run: Run) -> Outcome:
    if run.undecided is not None:
        return _asked(run, error)
    match error:
        case MayHaveRun():
            return Failed(Error("MayHaveRun", str(error)), final=True)
        case Retry(delay_s=delay_s):
            return Failed(_described(error, "Retry"), delay_s=delay_s)
        case Snooze(delay_s=delay_s):
            return Snoozed(delay_s)
        case Cancel():
            return Cancelled(_text(error))
        case Fail() | InvalidPayload():
            return Failed(_described(error), final=True)
    # What a shutdown makes a handler raise is no failure of its job; what a timeout does is one either way.
    if run.stop in {Stop.SHUTDOWN, Stop.LOST} or (run.stop is not None and not isinstance(error, Exception)):
        return stopped(run, error)
    return Failed(_described(error))


def stopped(run: Run, error: BaseException | None = None) -> Outcome:
    """What it means that a handler heeded its request to stop. `error`: what it was stopped with; its frames show where
    the handler spent its time."""
    if run.undecided is not None:
        return _asked(run)
    match run.stop:
        case Stop.TIMEOUT:
            return TimedOut(steady_s() - run.began_s, "" if error is None else _described(error).traceback)
        case Stop.CANCEL:
            return Cancelled("cancelled on request")
        case _:
            return Released()


def unanswered(run: Run) -> Held:
    """What it means that a handler returned although a person must decide first: it has swallowed that it was to stop."""
    message = f"effect {run.undecided!r} may have happened, and the handler went on without knowing"
    return Held(needs_decision, Error("NeedsDecision", message))


def _asked(run: Run, error: BaseException | None = None) -> Outcome:
    """Whatever the handler made of it, the job waits for the decision: another attempt could not go on either."""
    message = f"effect {run.undecided!r} may have happened"
    if error is None or isinstance(error, Stopped | CancelledError):
        return Held(needs_decision, Error("NeedsDecision", f"{message}: the attempt was stopped in the midst of it"))
    said = _described(error.__cause__ or error)
    text = _text(error) if isinstance(error, NeedsDecision) else f"{message}: {_text(error)}"
    return Held(needs_decision, Error("NeedsDecision", text, said.traceback))


def _described(error: BaseException, name: str | None = None) -> Error:
    """With what caused it, and what a group holds: the error that says something is often one of those."""
    described = traceback.TracebackException.from_exception(error, compact=True)
    # Our own frames lead to the handler, and through its middleware: its author looks for the others.
    described.stack = _handlers_frames(described.stack)
    if isinstance(error, NeedsDecision | WindlassError):  # we raised it on purpose: how is of no interest to its author
        while described.stack and _is_ours(described.stack[-1]):
            del described.stack[-1]
    lines = list(described.format())
    return Error(name or qualified(error), _text(error), "".join(lines[1:] if lines[0] == _HEADER else lines))


def format_frames(frame: FrameType | None) -> str:
    """The handler's frames of a thread that is under way, as lines of a traceback."""
    stack = traceback.StackSummary.extract(traceback.walk_stack(frame))
    stack.reverse()
    while stack and not _is_ours(stack[0]):  # the thread's own start
        del stack[0]
    return "".join(_handlers_frames(stack).format())


def _handlers_frames(stack: traceback.StackSummary) -> traceback.StackSummary:
    frames = list(stack)
    first = next((n for n, frame in enumerate(frames) if not _is_ours(frame)), len(frames))
    return traceback.StackSummary.from_list(frame for frame in frames[first:] if not _is_between(frame))


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return "/windlass/worker/" in frame.filename.replace("\\", "/")


def _is_between(frame: traceback.FrameSummary) -> bool:
    return frame.filename.replace("\\", "/").endswith("/windlass/worker/hooks.py")


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Stopped:  # thrown meanwhile
        raise
    except BaseException as problem:  # noqa: BLE001 - a class of the handler's: its text must not cost the outcome
        return f"its text cannot be made: {qualified(problem)}"


def qualified(error: Any) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"

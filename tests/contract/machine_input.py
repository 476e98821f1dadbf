"""What the state machine draws: jobs, questions for work, outcomes, forged leases."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

from hypothesis import strategies as st

from windlass.errors import WindlassError
from windlass.lifecycle import Cancelled, Completed, Failed, Held, Lost, Outcome, Released, Snoozed, TimedOut
from windlass.model import Error, Lease, NewJob, RetryPolicy
from windlass.store.protocol import Ask

T = TypeVar("T")

QUEUES: Final = ("a", "b")
WRONG: Final = ("", "", "", "token", "attempt", "worker_id")  # the part of the fence that is forged
BY_ID: Final = attrgetter("job_id")
_FAULT: Final = Error("ValueError", "no")
_FIELDS: Final = ("type", "payload", "queue", "priority", "thread_demand", "delay_s", "max_attempts", "retry", "tags")

OUTCOMES: Final[tuple[Outcome, ...]] = (
    Completed({"ok": True}),
    Completed(float("nan")),  # cannot be stored: completed all the same
    Failed(_FAULT),
    Failed(_FAULT, delay_s=0),
    Failed(_FAULT, final=True),
    TimedOut(1.5),
    Snoozed(20),
    Cancelled("enough"),
    Lost(crashed=True),
    Lost(crashed=True),
    Lost(crashed=True, begun=False),
    Lost(crashed=False),
    Released(),
    Held("needs decision", _FAULT),
    Held("no room"),
)
outcomes: Final = st.sampled_from(OUTCOMES)


def new_job(*fields: Any) -> NewJob:
    return NewJob(**dict(zip(_FIELDS, fields, strict=True)))


bodies: Final = st.builds(
    new_job,
    st.sampled_from(["echo", "echo", "echo", "echo", "other", "strange"]),
    st.sampled_from([None, {"n": 1}]),
    st.sampled_from(QUEUES),
    st.sampled_from([0, 0, 1, 5, -1]),
    st.sampled_from([1, 1, 2, 3]),
    st.sampled_from([None, None, None, 0.0, 45.0]),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([RetryPolicy(base_s=30, cap_s=100), RetryPolicy(base_s=0), None]),
    st.sampled_from([(), ("x",), ("x", "y")]),
)


def keyed_job(key: str | None, priority: int) -> NewJob:
    return NewJob("echo", queue="a", priority=priority, tags=("x",), idempotency_key=key)


keyed: Final = st.builds(keyed_job, st.sampled_from(["k1", "k2", None]), st.sampled_from([0, 0, 0, 1]))


def ask_for(free: int, budget: int | None, most: int, queues: tuple[str, ...]) -> Ask:
    """The worker and its types are put in later."""
    return Ask(UUID(int=0), queues, (), free, budget=budget, most=most)


asks: Final = st.builds(
    ask_for,
    st.integers(1, 4),
    st.sampled_from([None, None, None, 9, 3, 0]),
    st.sampled_from([1000, 3, 1]),
    st.sampled_from([QUEUES, QUEUES, ("b",)]),
)


def forged(lease: Lease, wrong: str) -> Lease:
    other: dict[str, Any] = {"token": uuid4(), "attempt": lease.attempt + 1, "worker_id": uuid4()}
    return lease._replace(**{name: value for name, value in other.items() if name == wrong})


def answer_of(call: Callable[[], T]) -> T | type[WindlassError]:
    """What a call says: its answer, or the kind of error."""
    try:
        return call()
    except WindlassError as error:
        return type(error)

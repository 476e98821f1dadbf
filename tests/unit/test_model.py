"""Each field of a job has limits, and whatever a caller sends gives InvalidJob naming the field, never another error."""

import contextlib
import math
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.errors import InvalidId, InvalidJob
from windlass.model import FINISHED, PENDING, NewJob, RetryPolicy, Status, Worker, check_new_job

V7 = UUID("0198c5f0-0000-7000-8000-000000000000")
SOON = datetime(2030, 1, 1, tzinfo=UTC)
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

ODD: list[Any] = [[], {}, set(), b"", b"x", 1.5, object(), (), ["a"], {"a": 1}, True, False, 1j, math.nan, NewJob]

GOOD: list[tuple[str, Any]] = [
    ("type", "a"),
    ("type", "a" * 200),
    ("type", "Mail.send:v2/now-1_x"),
    ("type", "_x"),
    ("type", "9"),
    ("queue", "q" * 100),
    ("name", "Ünïcode name, with spaces 😀"),
    ("name", "n" * 200),
    ("priority", -100),
    ("priority", 100),
    ("thread_demand", 1),
    ("thread_demand", 1024),
    ("max_attempts", 1),
    ("max_attempts", 1000),
    ("timeout_s", 0.001),
    ("timeout_s", 30 * 86_400),
    ("delay_s", 0),
    ("delay_s", 3650 * 86_400.0),
    ("scheduled_at", SOON),
    ("scheduled_at", SOON.astimezone(timezone(timedelta(hours=-12)))),
    ("scheduled_at", datetime(1970, 1, 2, tzinfo=UTC)),
    ("tags", ()),
    ("tags", []),
    ("tags", ["a", "b c", "ü"]),
    ("tags", tuple(map(str, range(20)))),
    ("tags", ["t" * 100]),
    ("idempotency_key", "k" * 255),
    ("id", V7),
    ("id", None),
    ("retry", RetryPolicy(0, 1, 0, 0)),
    ("retry", RetryPolicy(10.5, 100, 86_400, 1)),
    ("if_too_wide", "narrow"),
    ("if_too_wide", "wait"),
    ("if_too_wide", "fail"),
    ("trace", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ("payload", object()),
]

BAD: list[tuple[str, Any]] = [
    *[
        ("type", bad)
        for bad in ["", "a" * 201, "a b", "-a", ".a", "ä", "a\n", "\n", "a\0", "a;b", "a'b", None, 1, *ODD]
    ],
    *[("queue", bad) for bad in ["", "q" * 101, "q q", "/q", None, *ODD]],
    *[("name", bad) for bad in ["", "n" * 201, "a\nb", "\0", "\ud800", "\x7f", "\x9b", "\u2028", 1, *ODD]],
    *[("priority", bad) for bad in [-101, 101, "1", None, 1.0, 10**400, *ODD]],
    *[("thread_demand", bad) for bad in [0, -1, 1025, "1", None, 2.0, 2**63, *ODD]],
    *[("max_attempts", bad) for bad in [0, 1001, "3", None, *ODD]],
    *[("timeout_s", bad) for bad in [0, 0.0009, -1, 30 * 86_400 + 1, math.inf, "1", None, [], True, math.nan, 10**400]],
    *[("delay_s", bad) for bad in [-1, -0.001, 3650 * 86_400 + 1, math.inf, math.nan, "1", [], True]],
    *[
        ("scheduled_at", bad)
        for bad in [
            SOON.replace(tzinfo=None),
            SOON.date(),
            "2030-01-01T00:00:00Z",
            1893456000,
            datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))),
            datetime.min.replace(tzinfo=timezone(timedelta(hours=5))),
            [],
            True,
        ]
    ],
    *[("tags", bad) for bad in ["abc", "", None, 0, 5, {"a"}, b"ab", object(), True, list(map(str, range(21)))]],
    *[("tags", [bad]) for bad in ["", "t" * 101, "a\n", "\ud800", 1, None, ["a"], {"a": 1}, True]],
    ("tags", {}),
    ("tags", ["a", "b", "a"]),
    *[("idempotency_key", bad) for bad in ["", "k" * 256, "a\0", "\udfff", 1, *ODD]],
    *[("id", bad) for bad in [str(V7), UUID(int=1), UUID("0198c5f0-0000-4000-8000-000000000000"), V7.int, *ODD]],
    ("id", UUID("0198c5f0-0000-7000-c000-000000000000")),
    *[("retry", bad) for bad in [{"base_s": 1}, (1, 2, 3, 0.2), "fast", 1, *ODD]],
    *[("if_too_wide", bad) for bad in ["", "NARROW", None, 1, *ODD]],
    *[("trace", bad) for bad in ["", "t" * 513, "a\r\nb", 1, *ODD]],
]


def job(field: str, value: Any) -> NewJob:
    return NewJob(**{"type": "t", field: value})


@pytest.mark.parametrize(("field", "value"), GOOD, ids=[f"{field}-{n}" for n, (field, _) in enumerate(GOOD)])
def test_the_limits_themselves_are_allowed(field: str, value: Any) -> None:
    check_new_job(job(field, value))


@pytest.mark.parametrize(("field", "value"), BAD, ids=[f"{field}-{n}" for n, (field, _) in enumerate(BAD)])
def test_whatever_is_outside_the_limits_names_its_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidJob) as caught:
        check_new_job(job(field, value))
    assert caught.value.field.startswith(field)
    assert str(caught.value).isprintable()
    assert type(caught.value) is (InvalidId if field == "id" else InvalidJob)


@pytest.mark.parametrize(
    "policy",
    [
        RetryPolicy(base_s=-1),
        RetryPolicy(factor=0.5),
        RetryPolicy(factor=101),
        RetryPolicy(cap_s=math.inf),
        RetryPolicy(jitter=1.1),
        RetryPolicy(jitter=math.nan),
        RetryPolicy(base_s=True),
        RetryPolicy(base_s="1"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_retry_policy_names_the_number_that_is_wrong(policy: RetryPolicy) -> None:
    with pytest.raises(InvalidJob) as caught:
        check_new_job(job("retry", policy))
    assert caught.value.field.startswith("retry.")


def test_a_job_is_due_by_delay_or_by_moment_not_both() -> None:
    with pytest.raises(InvalidJob, match="not both"):
        check_new_job(NewJob("t", delay_s=1, scheduled_at=SOON))


odd_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(codec=None)),
    st.binary(),
    st.datetimes(),
    st.uuids(),
    st.lists(st.integers() | st.text(max_size=3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.none(), max_size=2),
    st.sets(st.integers(), max_size=2),
)


@given(st.sampled_from([field for field in NewJob._fields if field != "payload"]), odd_values)
def test_no_value_of_any_field_raises_anything_but_invalid_job(field: str, value: Any) -> None:
    with contextlib.suppress(InvalidJob):
        check_new_job(job(field, value))


def test_every_status_is_pending_running_or_finished() -> None:
    assert PENDING | FINISHED | {Status.RUNNING} == set(Status)
    assert not PENDING & FINISHED
    assert [str(status) for status in Status] == [
        "scheduled",
        "held",
        "ready",
        "running",
        "completed",
        "failed",
        "cancelled",
    ]


def test_a_worker_is_alive_while_its_lease_lasts_and_never_after_its_death() -> None:
    worker = Worker(V7, "w", 8, 0, 0, ["q"], ["t"], None, EPOCH, EPOCH, 10.0, False, None, None)
    assert worker.alive
    assert not replace(worker, lease_left_s=0.0).alive
    assert not replace(worker, died_at=EPOCH).alive
    with pytest.raises(FrozenInstanceError):
        worker.threads = 9  # type: ignore[misc]

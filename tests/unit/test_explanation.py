"""Whatever is in a job's way is named, by a code that stays, in the order in which it should be removed."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from windlass.explanation import Facts, Hand, ahead_max, explain
from windlass.model import Error, Job, Status

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOB = Job(
    id=UUID(int=1), type="email", status=Status.READY, reason=None, name=None, queue="mail", priority=0, thread_demand=2,
    threads_granted=None, max_attempts=3, timeout_s=60.0, retry=None, if_too_wide="narrow", trace=None, tags=(),
    idempotency_key=None, created_at=NOW, scheduled_at=None, ready_at=NOW, started_at=None, finished_at=None, attempt=0,
    failures=0, worker_id=None, cancel_requested=False, result=None, error=None, queue_s=None, execution_s=None,
    total_s=None,
)  # fmt: skip
HAND = Hand(
    UUID(int=7), "w-7", threads=4, busy=0, lost_threads=0, serves=True, knows=True, draining=False, reserved_for=None
)
FACTS = Facts(
    JOB,
    paused=False,
    set_aside=False,
    thread_demand=2,
    age_s=1,
    ended=None,
    error=None,
    led=True,
    ahead=0,
    hands=[HAND],
)


def hand(n: int = 8, **over: Any) -> Hand:
    return replace(HAND, worker_id=UUID(int=n), name=f"w-{n}", **over)


def facts(status: Status = Status.READY, *, job: dict[str, Any] | None = None, **over: Any) -> Facts:
    return replace(FACTS, job=replace(JOB, status=status, **(job or {})), **over)


def codes(told: Facts) -> list[str]:
    return [obstacle.code for obstacle in explain(told).obstacles]


WAITING: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing": ({}, []),
    "paused": ({"paused": True}, ["queue_paused"]),
    "nobody": ({"hands": []}, ["no_workers"]),
    "nobody, and paused": ({"hands": [], "paused": True, "ahead": 3}, ["queue_paused", "no_workers"]),
    "unknown": ({"hands": [hand(knows=False)], "ahead": 3}, ["type_unknown"]),
    "unserved": ({"hands": [hand(serves=False)]}, ["queue_unserved"]),
    "neither": ({"hands": [hand(knows=False, serves=False)]}, ["type_unknown", "queue_unserved"]),
    "not both": ({"hands": [hand(1, knows=False), hand(2, serves=False)]}, ["queue_unserved"]),
    "leaving": ({"hands": [hand(draining=True), hand(9, knows=False)]}, ["draining"]),
    "set aside": ({"set_aside": True, "ahead": None}, ["set_aside"]),
    "too wide": ({"thread_demand": 5, "ahead": 3}, ["too_wide"]),
    "as wide as one that leaves": (
        {"thread_demand": 5, "hands": [HAND, hand(threads=8, draining=True)]},
        ["waits_for_threads"],
    ),
    "as wide as one was": ({"thread_demand": 4, "hands": [hand(lost_threads=1, busy=1)]}, ["waits_for_threads"]),
    "no room": ({"hands": [hand(busy=3)]}, ["waits_for_threads"]),
    "room for others": ({"hands": [hand(reserved_for=UUID(int=99))]}, ["waits_for_threads"]),
    "kept room": ({"hands": [hand(busy=3, reserved_for=JOB.id)]}, ["waits_for_threads"]),
    "claimed ahead": ({"hands": [hand(busy=30)]}, ["waits_for_threads"]),
    "in line": ({"ahead": 1}, ["behind_others"]),
    "in line, no room": ({"ahead": 2, "hands": [hand(busy=4)]}, ["waits_for_threads", "behind_others"]),
}


@pytest.mark.parametrize("status", [Status.READY, Status.HELD])
@pytest.mark.parametrize("case", WAITING)
def test_a_job_that_waits_is_told_what_for(case: str, status: Status) -> None:
    over, expected = WAITING[case]
    assert codes(facts(status, **over)) == expected


def test_where_nobody_knows_the_type_the_app_of_the_built_in_ones_is_named() -> None:
    (obstacle,) = explain(facts(Status.HELD, hands=[hand(knows=False)])).obstacles
    assert obstacle.detail == f"no living worker, of 1, knows the type {JOB.type}"
    assert obstacle.cure is not None
    assert "the built-in types: windlass.jobs:app" in obstacle.cure


SCHEDULED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "first": ({}, ["scheduled"]),
    "failed": ({"job": {"attempt": 1, "failures": 1}, "ended": "failed"}, ["backing_off"]),
    "crashed": ({"job": {"attempt": 2}, "ended": "lost"}, ["backing_off"]),
    "snoozed": ({"job": {"attempt": 1}}, ["snoozed"]),
    "due": ({"age_s": 0.5}, ["due"]),
    "in vain": ({"hands": []}, ["scheduled", "no_workers"]),
    "for nobody": ({"hands": [hand(knows=False)], "paused": True}, ["scheduled", "queue_paused", "type_unknown"]),
    "while they leave": ({"hands": [hand(draining=True)]}, ["scheduled"]),
}


@pytest.mark.parametrize("case", SCHEDULED)
def test_a_scheduled_job_is_told_until_when_and_what_would_stop_it_then(case: str) -> None:
    over, expected = SCHEDULED[case]
    assert codes(facts(Status.SCHEDULED, **{"age_s": -60, "ahead": None, **over})) == expected


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ({"worker_id": HAND.worker_id}, ["running"]),
        ({"worker_id": HAND.worker_id, "cancel_requested": True}, ["cancelling", "running"]),
        ({"worker_id": UUID(int=99)}, ["worker_lost"]),
    ],
)
def test_a_running_job_is_told_where(job: dict[str, Any], expected: list[str]) -> None:
    assert codes(facts(Status.RUNNING, job={"attempt": 1, **job})) == expected


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
def test_a_finished_job_has_one_reason_and_a_way_back(status: Status) -> None:
    told = explain(facts(status, age_s=90, job={"error": Error("ValueError", "no\n\x1b[31m such   user")}))
    (reason,) = told.obstacles
    assert reason.code == f"finished_{status}"
    assert "1 min 30 s ago" in reason.detail
    assert ("ValueError: no" in reason.detail) == (status is not Status.COMPLETED)
    assert str(JOB.id) in (reason.cure or "")


def test_of_a_job_that_may_have_run_one_is_told_to_find_out_before_it_is_replayed() -> None:
    (reason,) = explain(facts(Status.FAILED, job={"error": Error("MayHaveRun", "its process died")})).obstacles
    assert reason.cure is not None
    assert reason.cure.startswith("find out whether its work was done")
    assert f"windlass dead-letters discard {JOB.id}" in reason.cure


def test_whatever_waits_for_a_leader_says_so_when_there_is_none() -> None:
    for told in (
        facts(Status.SCHEDULED, age_s=60, led=False),
        facts(Status.HELD, set_aside=True, led=False),
        facts(Status.RUNNING, job={"worker_id": UUID(int=99)}, led=False),
    ):
        assert "no worker leads" in (explain(told).obstacles[0].cure or "")


@pytest.mark.parametrize("policy", ["narrow", "wait", "fail"])
def test_a_job_too_wide_for_all_is_told_what_becomes_of_it(policy: str) -> None:
    (obstacle,) = explain(facts(thread_demand=9, job={"if_too_wide": policy})).obstacles
    words = {"narrow": "on one thread", "wait": "waits for a wider one", "fail": "be failed"}
    assert words[policy] in obstacle.detail
    assert "asks for 9 threads, and the widest worker for it has 4" in obstacle.detail
    assert obstacle.cure == "start a worker with --threads 9 or more"


def test_a_reservation_is_told_with_what_is_free_so_far() -> None:
    hands = [hand(7, busy=2), hand(8, busy=3, reserved_for=JOB.id)]
    (obstacle,) = explain(facts(hands=hands, thread_demand=4)).obstacles
    assert "w-8 keeps what becomes free for it, 1 so far" in obstacle.detail


def test_the_line_ahead_is_counted_as_far_as_it_matters() -> None:
    words = {1: "1 job of", 999: "999 jobs of", ahead_max: "1,000 or more jobs of"}
    for ahead, said in words.items():
        told = explain(facts(ahead=ahead))
        assert told.ahead == ahead
        assert told.obstacles[-1].detail.startswith(said)


def test_able_workers_are_counted_and_those_with_room() -> None:
    hands = [
        hand(1),
        hand(2, busy=3),
        hand(3, draining=True),
        hand(4, knows=False),
        hand(5, threads=1),
        hand(6, reserved_for=JOB.id),
        hand(7, reserved_for=UUID(int=99)),
    ]
    told = explain(facts(hands=hands))
    assert (told.workers_able, told.workers_free) == (4, 2)
    assert told.summary == "ready: nothing is in its way; 2 workers can start it now"


def test_the_summary_is_the_first_thing_to_remove() -> None:
    told = explain(facts(Status.HELD, paused=True, ahead=3))
    assert told.summary == "held: queue mail is paused"
    assert told.obstacles[0].cure == "windlass queues resume mail"


@pytest.mark.parametrize(
    ("span_s", "said"),
    [
        (0.2, "less than a second"),
        (1, "1 s"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (3661, "1 h 1 min"),
        (90_000, "1 d 1 h"),
        (86_460, "1 d"),
    ],
)
def test_a_span_is_told_in_its_two_largest_units(span_s: float, said: str) -> None:
    (obstacle,) = explain(facts(Status.SCHEDULED, age_s=-span_s, ahead=None)).obstacles
    assert obstacle.detail == f"is to run in {said}"


def test_a_job_that_needs_a_newer_worker_says_which_fields_it_must_know() -> None:
    told = explain(facts(Status.HELD, job={"reason": "needs newer worker: colour, note"}, set_aside=True))
    (obstacle,) = told.obstacles
    assert obstacle.code == "needs_newer_worker"
    assert "(colour, note)" in told.summary
    assert "windlass worker" in (obstacle.cure or "")

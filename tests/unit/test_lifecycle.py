"""What becomes of a job after an attempt."""

import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from windlass.lifecycle import (
    MOVES,
    TRANSITIONS,
    Cancelled,
    Completed,
    Ended,
    Failed,
    Held,
    Lost,
    Outcome,
    Released,
    Settlement,
    Snoozed,
    TimedOut,
    backoff,
    crashes_max,
    diagram,
    error_chars_max,
    fingerprint,
    log_chars_max,
    result_bytes_max,
    retry_policy,
    settle,
)
from windlass.model import FINISHED, PENDING, Error, Lease, RetryPolicy, Status, delay_s_max, reason_chars_max
from windlass.payload import decode

from .values import JOB, TOKEN, WORKER, lease

BOOM = Error("ValueError", "boom", "Traceback …")

texts = st.text(st.characters(codec=None), max_size=30)
delays = st.floats() | st.none()
errors = st.builds(Error, texts, texts, texts)
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Completed, st.none() | st.integers() | texts | st.floats() | st.binary()),
    st.builds(Failed, errors, delays, st.booleans()),
    st.builds(TimedOut, st.floats(0, 1e9), killed=st.booleans()),
    st.builds(Snoozed, st.floats()),
    st.builds(Cancelled, texts),
    st.builds(Lost, st.booleans(), st.booleans(), isolated=st.booleans()),
    st.just(Released()),
    st.builds(Held, texts, st.none() | errors),
)
leases: st.SearchStrategy[Lease] = st.builds(
    lease,
    attempt=st.integers(1, 10**6),
    failures=st.integers(0, 10**6),
    max_attempts=st.integers(1, 1000),
    suspect=st.booleans(),
    crashes=st.integers(0, 5),
    retry=st.none() | st.just('{"base_s":5,"factor":3,"cap_s":60,"jitter":1}'),
)
jitters = st.floats(0, 1, exclude_max=True)


def error_of(settlement: Settlement) -> dict[str, Any]:
    assert settlement.error is not None
    kept: dict[str, Any] = json.loads(settlement.error)
    return kept


@pytest.mark.parametrize(
    ("outcome", "over", "status", "ended", "failed", "crashed", "suspect"),
    [
        (Completed(1), {}, Status.COMPLETED, Ended.COMPLETED, False, False, False),
        (Completed(), {"failures": 2}, Status.COMPLETED, Ended.COMPLETED, False, False, False),
        (Failed(BOOM), {}, Status.SCHEDULED, Ended.FAILED, True, False, False),
        (Failed(BOOM), {"failures": 1}, Status.SCHEDULED, Ended.FAILED, True, False, False),
        (Failed(BOOM), {"failures": 2}, Status.FAILED, Ended.FAILED, True, False, False),
        (Failed(BOOM), {"max_attempts": 1}, Status.FAILED, Ended.FAILED, True, False, False),
        (Failed(BOOM, final=True), {}, Status.FAILED, Ended.FAILED, True, False, False),
        (Failed(BOOM, delay_s=9), {"failures": 2}, Status.FAILED, Ended.FAILED, True, False, False),
        (Failed(BOOM), {"attempt": 99}, Status.SCHEDULED, Ended.FAILED, True, False, False),
        (TimedOut(3601.0), {}, Status.SCHEDULED, Ended.FAILED, True, False, False),
        (TimedOut(3601.0), {"failures": 2}, Status.FAILED, Ended.FAILED, True, False, False),
        (TimedOut(3601.0, killed=True), {}, Status.SCHEDULED, Ended.FAILED, True, False, True),
        (TimedOut(3601.0), {"suspect": True}, Status.SCHEDULED, Ended.FAILED, True, False, True),
        (Snoozed(5), {"failures": 2}, Status.SCHEDULED, None, False, False, False),
        (Cancelled("no"), {}, Status.CANCELLED, Ended.CANCELLED, False, False, False),
        (Released(), {"failures": 2}, Status.READY, None, False, False, False),
        (Held("needs decision", BOOM), {"failures": 2}, Status.HELD, Ended.HELD, False, False, False),
        (Held("no room"), {"suspect": True}, Status.HELD, None, False, False, True),
        (Lost(crashed=False), {"failures": 2}, Status.READY, Ended.LOST, False, False, False),
        (Lost(crashed=True), {"failures": 1}, Status.READY, Ended.LOST, True, False, True),
        (Lost(crashed=True), {"failures": 2}, Status.FAILED, Ended.LOST, True, False, True),
        (Lost(crashed=True), {"max_attempts": 1}, Status.FAILED, Ended.LOST, True, False, True),
        (Lost(crashed=True, begun=False, spent=True), {}, Status.READY, Ended.LOST, True, False, False),
        (Lost(crashed=False, spent=True), {"max_attempts": 1}, Status.FAILED, Ended.LOST, True, False, False),
        (Lost(crashed=False), {"max_attempts": 1}, Status.READY, Ended.LOST, False, False, False),
        (Lost(crashed=True, spent=True), {"max_attempts": None}, Status.READY, Ended.LOST, True, False, True),
        (Lost(crashed=True, begun=False), {}, Status.READY, Ended.LOST, False, False, False),
        (Lost(crashed=False, spent=True, isolated=True), {}, Status.READY, Ended.LOST, True, False, True),
        (Lost(crashed=True), {"suspect": True}, Status.SCHEDULED, Ended.LOST, True, True, True),
        (Lost(crashed=True), {"suspect": True, "crashes": 1}, Status.SCHEDULED, Ended.LOST, True, True, True),
        (Lost(crashed=True), {"suspect": True, "crashes": 2}, Status.FAILED, Ended.LOST, True, True, True),
        (Lost(crashed=True), {"suspect": True, "failures": 2}, Status.FAILED, Ended.LOST, True, True, True),
        (Lost(crashed=False), {"suspect": True, "crashes": 2}, Status.READY, Ended.LOST, False, False, True),
        (Lost(True, begun=False), {"suspect": True, "crashes": 2}, Status.READY, Ended.LOST, False, False, True),
    ],
)
def test_every_outcome_has_one_settlement(
    outcome: Outcome,
    over: dict[str, Any],
    status: Status,
    ended: Ended | None,
    failed: bool,
    crashed: bool,
    suspect: bool,
) -> None:
    settlement = settle(lease(**over), outcome, jitter=0.5)
    assert settlement[:4] == (JOB, over.get("attempt", 1), TOKEN, WORKER)
    assert settlement.status is status
    assert (settlement.ended, settlement.failed) == (ended, failed)
    assert (settlement.crashed, settlement.suspect) == (crashed, suspect)


@given(leases, outcomes, jitters)
def test_every_settlement_is_an_allowed_move_and_can_be_stored(held: Lease, outcome: Outcome, jitter: float) -> None:
    settlement = settle(held, outcome, jitter=jitter, execution_s=1.0, log="a\0b\ud800")
    assert settlement.status in TRANSITIONS[Status.RUNNING]
    assert settlement[:4] == held[:4]
    assert (settlement.delay_s is None) == (settlement.status is not Status.SCHEDULED)
    assert settlement.delay_s is None or 0 <= settlement.delay_s <= delay_s_max
    assert settlement.log == "a\ufffdb\ufffd"
    for text in (settlement.result, settlement.error):
        if text is not None:
            assert "\0" not in text
            text.encode()
            json.loads(text)


@given(leases, outcomes, jitters)
def test_failures_timeouts_and_starts_that_died_burn_a_failure(held: Lease, outcome: Outcome, jitter: float) -> None:
    settlement = settle(held, outcome, jitter=jitter)
    died = isinstance(outcome, Lost) and (
        (outcome.crashed and outcome.begun) if outcome.spent is None else outcome.spent
    )
    assert settlement.failed == (isinstance(outcome, (Failed, TimedOut)) or died)
    if died:
        poison = settlement.crashed and held.crashes + 1 >= crashes_max
        used_up = held.failures + 1 >= held.max_attempts
        assert (settlement.status is Status.FAILED) == (poison or used_up)
    elif settlement.failed:
        spent = held.failures + 1 >= held.max_attempts or (isinstance(outcome, Failed) and outcome.final)
        assert (settlement.status is Status.FAILED) == spent


@given(leases, outcomes, jitters)
def test_a_held_settlement_says_what_the_job_waits_for(held: Lease, outcome: Outcome, jitter: float) -> None:
    settlement = settle(held, outcome, jitter=jitter)
    assert (settlement.status is Status.HELD) == isinstance(outcome, Held)
    assert bool(settlement.reason) == isinstance(outcome, Held)
    assert len(settlement.reason or "") <= reason_chars_max


@given(leases, outcomes, jitters)
def test_a_crash_counts_only_against_a_begun_suspect(held: Lease, outcome: Outcome, jitter: float) -> None:
    settlement = settle(held, outcome, jitter=jitter)
    blamed = isinstance(outcome, Lost) and outcome.crashed and outcome.begun
    assert settlement.crashed == (held.suspect and blamed)
    if isinstance(outcome, Lost) and settlement.status is Status.FAILED:
        expected = "PoisonPill" if settlement.crashed and held.crashes + 1 >= crashes_max else "MayHaveRun"
        assert error_of(settlement)["type"] == expected


@given(leases, outcomes, jitters)
def test_a_suspect_stays_one_until_it_has_finished(held: Lease, outcome: Outcome, jitter: float) -> None:
    settlement = settle(held, outcome, jitter=jitter)
    if held.suspect and settlement.status not in FINISHED:
        assert settlement.suspect
    if settlement.suspect and not held.suspect:
        crashed = isinstance(outcome, Lost) and outcome.crashed and outcome.begun
        held_up = isinstance(outcome, Lost) and outcome.isolated
        assert crashed or held_up or (isinstance(outcome, TimedOut) and outcome.killed)


@given(leases, st.integers(0, 900), jitters)
def test_a_job_that_forces_kills_waits_longer_each_time_whatever_its_own_policy(
    held: Lease, failures: int, jitter: float
) -> None:
    mine = held._replace(failures=failures, max_attempts=1_000, retry='{"base_s":0,"factor":1,"cap_s":0,"jitter":0}')
    settlement = settle(mine, TimedOut(1.0, killed=True), jitter=jitter)
    assert settlement.delay_s == backoff(failures + 1, RetryPolicy(), jitter=jitter)


@given(st.lists(st.builds(Lost, st.booleans(), st.booleans()), max_size=30))
def test_poison_is_found_at_the_third_counted_crash_and_never_before(losses: list[Lost]) -> None:
    suspect, crashes = False, 0
    for loss in losses:
        settlement = settle(lease(suspect=suspect, crashes=crashes, max_attempts=100), loss, jitter=0.5)
        crashes += settlement.crashed
        suspect = settlement.suspect
        if settlement.status is Status.FAILED:
            assert crashes == crashes_max
            assert error_of(settlement)["type"] == "PoisonPill"
            return
    begun_crashes = sum(loss == Lost(crashed=True, begun=True) for loss in losses)
    assert begun_crashes <= crashes_max, "the first crash makes a suspect, three more a poison pill"


@pytest.mark.parametrize(
    ("max_attempts", "error"), [(1, "MayHaveRun"), (2, "MayHaveRun"), (3, "MayHaveRun"), (9, "PoisonPill")]
)
def test_a_job_whose_process_dies_every_time_is_started_no_more_often_than_max_attempts(
    max_attempts: int, error: str
) -> None:
    suspect, crashes, failures = False, 0, 0
    for start in range(1, 10):
        held = lease(suspect=suspect, crashes=crashes, failures=failures, max_attempts=max_attempts)
        settlement = settle(held, Lost(crashed=True), jitter=0.5)
        suspect, crashes = settlement.suspect, crashes + settlement.crashed
        failures += settlement.failed
        if settlement.status is Status.FAILED:
            assert start == min(max_attempts, crashes_max + 1)
            assert error_of(settlement)["type"] == error
            return
    raise AssertionError("started without end")


@given(leases, outcomes, jitters)
def test_a_job_that_is_started_once_at_most_is_never_to_start_again(
    held: Lease, outcome: Outcome, jitter: float
) -> None:
    settlement = settle(held, outcome, jitter=jitter, at_most_once=True)
    if isinstance(outcome, Held):
        assert settlement.status is Status.HELD  # the record of its start keeps it from a second one
    else:
        assert settlement.status in FINISHED
    if isinstance(outcome, Lost | Released):
        assert error_of(settlement)["type"] == "MayHaveRun"


@given(st.lists(st.sampled_from([Lost(crashed=False), Lost(crashed=True, begun=False)]), max_size=50))
def test_an_innocent_neighbour_is_never_suspected(losses: list[Lost]) -> None:
    for loss in losses:
        settlement = settle(lease(), loss, jitter=0.5)
        assert (settlement.status, settlement.suspect, settlement.crashed) == (Status.READY, False, False)


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [(0, 1), (1, 1), (2, 2), (3, 4), (4, 8), (10, 512), (11, 600), (10**6, 600)],
)
def test_backoff_doubles_up_to_the_cap(failures: int, seconds: float) -> None:
    assert backoff(failures, RetryPolicy(), jitter=0.5) == seconds


@given(
    st.integers(0, 10**6),
    st.builds(RetryPolicy, st.floats(0, 1e9), st.floats(1, 100), st.floats(0, 1e9), st.floats(0, 1)),
    jitters,
)
@example(160, RetryPolicy(base_s=1e-300, factor=100.0, cap_s=1e9), 0.5)
def test_backoff_stays_within_the_jitter_around_the_capped_delay(
    failures: int, policy: RetryPolicy, jitter: float
) -> None:
    middle = backoff(failures, policy, jitter=0.5)
    assert 0 <= middle <= policy.cap_s
    assert middle <= backoff(failures + 1, policy, jitter=0.5) * (1 + 1e-12)
    drawn = backoff(failures, policy, jitter=jitter)
    assert math.isfinite(drawn)
    assert middle * (1 - policy.jitter) * (1 - 1e-9) <= drawn <= middle * (1 + policy.jitter) * (1 + 1e-9)


def test_jitter_spreads_even_at_the_cap() -> None:
    assert backoff(50, RetryPolicy(), jitter=0.0) == pytest.approx(480)
    assert backoff(50, RetryPolicy(), jitter=0.999999) == pytest.approx(720, rel=1e-4)


def test_the_jobs_own_retry_policy_and_the_handlers_own_delay_overrule_the_default() -> None:
    own = '{"base_s": 5, "factor": 3, "cap_s": 60, "jitter": 0}'
    assert settle(lease(retry=own, failures=1), Failed(BOOM), jitter=0.9).delay_s == 15
    assert settle(lease(retry=own), Failed(BOOM, delay_s=7.5), jitter=0.9).delay_s == 7.5
    assert retry_policy(None) == RetryPolicy()


@pytest.mark.parametrize(
    ("asked", "given_"),
    [(5, 5), (0, 0), (-1, 0), (math.nan, 0), (math.inf, delay_s_max), (1e300, delay_s_max), (-math.inf, 0)],
)
def test_a_delay_no_interval_can_hold_is_brought_into_range(asked: float, given_: float) -> None:
    assert settle(lease(), Snoozed(asked), jitter=0.5).delay_s == given_
    assert settle(lease(), Failed(BOOM, delay_s=asked), jitter=0.5).delay_s == given_


UNSTORABLE = {
    "object": object(),
    "bytes": b"x",
    "nan": float("nan"),
    "number as key": {1: 2},
    "huge number as key": {10**5000: 1},
    "huge number": 10**5000,
    "NUL": "\0",
    "lone surrogate": "\ud800",
    "too large": "x" * result_bytes_max,
    "set": {1, 2},
    "complex": 1j,
}


@pytest.mark.parametrize("result", UNSTORABLE.values(), ids=UNSTORABLE)
def test_a_result_that_cannot_be_stored_still_completes_and_says_why(result: object) -> None:
    settlement = settle(lease(), Completed(result), jitter=0.5, execution_s=2.0, log="l")
    assert (settlement.status, settlement.ended) == (Status.COMPLETED, Ended.COMPLETED)
    assert settlement.result is None
    assert error_of(settlement)["type"] == "ResultNotStored"
    assert error_of(settlement)["message"].startswith("result")
    assert (settlement.execution_s, settlement.log) == (2.0, "l")


@pytest.mark.parametrize("result", [0, False, "", [], {}, {"a": [1, None]}, 2**70])
def test_a_result_comes_back_as_it_was_returned(result: object) -> None:
    stored = settle(lease(), Completed(result), jitter=0.5).result
    assert stored is not None
    assert decode(stored) == result


def test_no_result_is_stored_as_none() -> None:
    assert settle(lease(), Completed(None), jitter=0.5).result is None


def test_long_errors_keep_the_head_of_the_message_and_the_end_of_the_traceback() -> None:
    error = Error("T" * 999, "m" + "x" * 99_999, "y" * 99_999 + "last line")
    kept = error_of(settle(lease(), Failed(error), jitter=0.5))
    assert len(kept["type"]) == 200
    assert len(kept["message"]) == len(kept["traceback"]) == error_chars_max
    assert kept["message"].startswith("mx")
    assert kept["traceback"].endswith("last line")
    assert len(settle(lease(), Completed(), jitter=0.5, log="z" * 10**6).log or "") == log_chars_max


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("job 17 failed after 3 tries", "job 18 failed after 12 tries"),
        ("took 1.5 s", "took 2 s"),
        ("offset -5", "offset 1e-07"),
        ("no such user 'ann'", "no such user 'bob'"),
        ("can't open 'a.txt'", "can't open 'b.txt'"),
        ('key "a" is missing', 'key "b" is missing'),
        ("<Thing at 0x7f00deadbeef>", "<Thing at 0x1234>"),
        ("job 0198c5f0-aaaa-7000-8000-0123456789ab", "job 0198c5f1-bbbb-7fff-9000-abcdefabcdef"),
        ("blob 9e107d9d372bb6826bd81d3542a419d6", "blob e4d909c290d0fb1ca068ffaddf22cbd0"),
    ],
)
def test_a_fingerprint_leaves_out_what_varies(one: str, other: str) -> None:
    assert fingerprint(Error("E", one)) == fingerprint(Error("E", other))


def test_a_fingerprint_tells_causes_apart() -> None:
    causes = [("E", "connection refused"), ("E", "connection reset"), ("F", "connection refused"), ("E", "")]
    assert len({fingerprint(Error(*cause)) for cause in causes}) == len(causes)


@given(st.text(max_size=40), st.integers(), st.integers())
def test_a_fingerprint_is_the_same_for_any_number(words: str, one: int, other: int) -> None:
    shape = words.translate(dict.fromkeys(map(ord, "'\"abcdefABCDEFxX.,_:+-"), " "))
    assert fingerprint(Error("E", f"{shape} {one} !")) == fingerprint(Error("E", f"{shape} {other} !"))


def test_a_traceback_does_not_change_the_fingerprint() -> None:
    assert fingerprint(Error("E", "m", "line 1")) == fingerprint(Error("E", "m", "line 2"))


def test_the_moves_reach_every_state_and_finished_jobs_leave_only_when_a_person_says_so() -> None:
    reached = {Status.READY, Status.SCHEDULED}
    for _ in Status:
        reached |= {target for source in reached for target in TRANSITIONS[source]}
    assert reached == set(Status)
    for move in MOVES:
        if move.source in FINISHED:
            assert (move.verb.split()[0], move.target) in {("retry", Status.READY), ("discard", Status.CANCELLED)}
    assert TRANSITIONS[None] <= PENDING | {Status.RUNNING}
    assert all(Status.CANCELLED in TRANSITIONS[status] for status in Status if status not in FINISHED)
    assert {move.verb for move in MOVES if move.target is Status.RUNNING} == {"hand over", "claim"}, "two ways to start"


def test_the_diagram_draws_every_move_once() -> None:
    assert len(diagram().splitlines()) == len(MOVES) + 1
    assert len({(move.source, move.target) for move in MOVES}) == len(MOVES)

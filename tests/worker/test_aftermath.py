"""The verdict over each job of a dead worker: by what its slots say, and by who ended it."""

from uuid import UUID, uuid4

import pytest

from tests.unit.values import lease as make_lease
from windlass.lifecycle import Cancelled, Lost, Outcome, Released, TimedOut
from windlass.worker.aftermath import Culprit, End, verdict
from windlass.worker.run import Stop
from windlass.worker.slots import Begun, State

JOB = UUID("0199c0de-0000-7000-8000-00000000cafe")
ASKED = Cancelled("cancelled on request")
NOT_BEGUN = Lost(crashed=True, begun=False, spent=False)


def entry(state: State = State.BEGUN, job_id: UUID = JOB, attempt: int = 1) -> Begun:
    return Begun(0, job_id, attempt, 10.0, 70.0, state)


def blamed(why: Stop, job_id: UUID = JOB) -> Culprit:
    return Culprit(job_id, 1, why)


@pytest.mark.parametrize(
    ("begun", "crashed", "culprit", "expected"),
    [
        ([entry()], True, None, Lost(crashed=True, begun=True, spent=True)),
        ([entry()], False, None, Lost(crashed=False, begun=True, spent=False)),
        ([], True, None, NOT_BEGUN),
        ([entry(attempt=2)], True, None, NOT_BEGUN),
        ([entry(job_id=uuid4())], True, None, NOT_BEGUN),
        # It did not crash the worker, but its own process died with it.
        ([entry(State.ISOLATED)], True, None, Lost(crashed=True, begun=False, spent=True)),
        ([entry(State.ISOLATED)], False, None, Lost(crashed=False, begun=False, spent=False)),
        ([entry(State.STUCK_BY_TIMEOUT)], False, None, TimedOut(20.0, killed=True)),
        ([entry(State.STUCK_BY_TIMEOUT)], True, None, TimedOut(20.0, killed=True)),
        ([entry(State.STUCK_BY_CANCEL)], False, None, ASKED),
        ([entry()], False, blamed(Stop.TIMEOUT), TimedOut(20.0, killed=True)),
        ([entry()], False, blamed(Stop.CANCEL), ASKED),
        ([entry(State.ISOLATED)], False, blamed(Stop.TIMEOUT), TimedOut(20.0)),
        ([entry()], False, blamed(Stop.TIMEOUT, uuid4()), Lost(crashed=False, begun=True, spent=False)),
    ],
)
def test_each_job_gets_what_it_did(
    begun: list[Begun], crashed: bool, culprit: Culprit | None, expected: Outcome
) -> None:
    held = make_lease(job_id=JOB, attempt=1)
    assert verdict(held, End(held.worker_id, crashed, begun, culprit), now_s=30.0) == expected


@pytest.mark.parametrize("state", [State.BEGUN, State.ISOLATED])
def test_of_a_worker_whose_loop_stood_still_all_that_ran_in_it_is_isolated(state: State) -> None:
    held = make_lease(job_id=JOB, attempt=1)
    end = End(held.worker_id, crashed=False, begun=[entry(state)], culprit=blamed(Stop.TIMEOUT, uuid4()), held_up=True)
    shared = state is State.BEGUN
    assert verdict(held, end, now_s=30.0) == Lost(crashed=False, begun=shared, spent=False, isolated=shared)


def test_a_job_whose_row_is_out_of_sight_goes_back() -> None:
    held = make_lease(job_id=JOB, attempt=1, max_attempts=None)
    end = End(held.worker_id, crashed=False, begun=[entry(State.STUCK_BY_TIMEOUT)])
    assert verdict(held, end, now_s=30.0) == Lost(crashed=False, begun=True, spent=False)


@pytest.mark.parametrize("state", [State.BEGUN, State.ISOLATED])
def test_what_a_clean_stop_could_not_wait_for_is_given_back_and_not_lost(state: State) -> None:
    held = make_lease(job_id=JOB, attempt=1)
    end = End(held.worker_id, crashed=False, begun=[entry(state)], clean=True)
    assert verdict(held, end, now_s=30.0) == Released()


@pytest.mark.parametrize("begun", [True, False])
def test_what_was_begun_is_spent_when_its_worker_was_killed_without_being_told_to_leave(begun: bool) -> None:
    held = make_lease(job_id=JOB, attempt=1)
    end = End(held.worker_id, crashed=False, begun=[entry()] if begun else [], spent=True)
    assert verdict(held, end, now_s=30.0) == Lost(crashed=False, begun=begun, spent=begun)


@pytest.mark.parametrize(
    ("crashed", "spent", "charged"), [(True, False, True), (False, True, True), (False, False, False)]
)
def test_what_had_ended_and_was_not_written_is_spent_and_not_suspected(
    crashed: bool, spent: bool, charged: bool
) -> None:
    held = make_lease(job_id=JOB, attempt=1)
    for started, expected in (({(JOB, 1)}, charged), ({(JOB, 2)}, False), (set(), False)):
        end = End(held.worker_id, crashed, begun=[], spent=spent, started=frozenset(started))
        assert verdict(held, end, now_s=30.0) == Lost(crashed=crashed, begun=False, spent=expected)


def test_of_a_worker_that_was_broken_all_it_ran_are_suspected_and_none_is_charged() -> None:
    """What broke it may have ended in that very moment: its slot is free, and its end is not written."""
    held = make_lease(job_id=JOB, attempt=1)
    for begun, started in (([entry()], {(JOB, 1)}), ([], {(JOB, 1)})):
        end = End(held.worker_id, crashed=True, begun=begun, started=frozenset(started), fault=True)
        assert verdict(held, end, now_s=30.0) == Lost(crashed=True, begun=True, spent=False)
    end = End(held.worker_id, crashed=True, begun=[], fault=True)
    assert verdict(held, end, now_s=30.0) == NOT_BEGUN


def test_a_suspect_that_had_ended_in_its_child_is_not_blamed_for_a_broken_worker() -> None:
    held = make_lease(job_id=JOB, attempt=1, suspect=True)
    end = End(held.worker_id, crashed=True, begun=[], started=frozenset({(JOB, 1)}), fault=True)
    assert verdict(held, end, now_s=30.0) == NOT_BEGUN

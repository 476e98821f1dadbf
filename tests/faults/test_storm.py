"""A short storm, and whether the judge would have seen what must not happen. The long one: python -m tests.faults.storm."""

import copy
from pathlib import Path

import pytest

from tests.faults.judge import Evidence, Fault, Start, Stored, effects, judge, said_to_client
from tests.faults.storm import Plan, weather


async def test_in_a_storm_of_kills_nothing_is_lost_finished_twice_or_burned(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    plan = Plan(jobs=3_000, seconds=12, long=0.02, seed=3, quiet_s=60)
    verdict = await weather(plan, tmp_path_factory.mktemp("storm"))
    print(f"\n{verdict.table()}")
    assert verdict, verdict.table()
    assert all(verdict.figures[f"killed: {what}"] for what in ("worker", "guard", "supervisor", "database"))


async def test_where_no_node_lives_ten_seconds_every_job_of_the_dead_starts_again_within_the_lease_and_two_seconds(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Supervisors, guards and workers are killed together: nobody gives jobs back but whoever leads next, however young."""
    plan = Plan(jobs=1_000, seconds=15, processes=1, long=0.1, seed=3, quiet_s=60, life=6, lease=6)
    verdict = await weather(plan, tmp_path_factory.mktemp("storm"))
    print(f"\n{verdict.table()}")
    assert verdict, verdict.table()
    assert verdict.figures["killed: node"]
    assert verdict.recoveries_s["node"]


# The judge. -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def evidence() -> Evidence:
    """Two jobs: one ran once; the other was begun by worker w1 (process 11), which was killed, and then by process 12."""
    return Evidence(
        sent={"a", "b"},
        acked={"a", "b"},
        starts=[
            Start("a", 1, "t1", 11, 1.0, 1.1), Start("b", 1, "t1", 11, 1.2), Start("b", 2, "t2", 12, 2.5, 2.6)
        ],
        faults=[Fault("worker", 2.0, frozenset({11}))],
        outcomes=[
            Stored("a", 1, 0, "completed", "t1", "w1", '"t1"'), Stored("b", 2, 0, "completed", "t2", "w2", '"t2"')
        ],
        attempts=[Stored("b", 1, 0, "lost", "t1", "w1", None)],
        unfinished={},
        misfiled={},
        worker_pids={"w1": 11, "w2": 12},
    )  # fmt: skip


def found(evidence: Evidence) -> set[str]:
    return {name for name, findings in judge(evidence).findings.items() if findings}


def test_the_judge_finds_nothing_where_nothing_is_wrong(evidence: Evidence) -> None:
    verdict = judge(evidence)
    assert verdict, verdict.table()
    assert verdict.recoveries_s == {"worker": [0.5]}


def test_the_judge_sees_jobs_of_a_dead_node_that_start_again_too_late(evidence: Evidence) -> None:
    evidence.faults = [Fault("node", 2.0, frozenset({11}))]
    assert judge(evidence, node_within_s=0.6)
    assert "started again too late" in judge(evidence, node_within_s=0.4).findings


def test_the_judge_sees_a_lost_job(evidence: Evidence) -> None:
    del evidence.outcomes[0]
    assert "lost" in found(evidence)


def test_the_judge_sees_what_still_waits_and_what_nobody_submitted(evidence: Evidence) -> None:
    evidence.unfinished["ready"] = 1
    evidence.sent.discard("b")
    assert {"left behind", "never submitted"} <= found(evidence)


def test_the_judge_sees_a_job_that_was_finished_twice(evidence: Evidence) -> None:
    again = copy.deepcopy(evidence)
    evidence.outcomes.append(evidence.outcomes[0])
    assert "finished twice" in found(evidence)
    again.attempts.append(again.outcomes[0])  # an outcome that another took the place of
    assert "finished twice" in found(again)


def test_the_judge_sees_an_outcome_that_no_attempt_came_to(evidence: Evidence) -> None:
    evidence.outcomes[1] = Stored("b", 1, 0, "completed", "t1", "w1", '"t1"')  # the one that was killed
    assert "finished by an attempt that did not end" in found(evidence)


def test_the_judge_sees_a_burned_attempt(evidence: Evidence) -> None:
    evidence.outcomes[1] = evidence.outcomes[1]._replace(failures=1)
    assert found(evidence) == set(), "its first start died"
    evidence.outcomes[1] = evidence.outcomes[1]._replace(failures=2)
    assert found(evidence) == {"burned"}


def test_the_judge_sees_more_starts_than_leases_lost(evidence: Evidence) -> None:
    evidence.attempts.clear()
    assert {"extra starts", "started, and nothing says how it ended"} <= found(evidence)


def test_the_judge_sees_a_lease_that_was_begun_twice(evidence: Evidence) -> None:
    evidence.starts.append(Start("a", 1, "t1", 11, 1.3, 1.4))
    assert "begun twice under one lease" in found(evidence)


def test_the_judge_sees_a_lease_that_was_lost_without_a_fault(evidence: Evidence) -> None:
    evidence.faults.clear()
    assert found(evidence) == {"leases lost without a fault"}


def test_the_judge_sees_a_job_that_ran_twice_at_once(evidence: Evidence) -> None:
    evidence.starts[1].end_s = 2.55
    assert found(evidence) == {"ran twice at once"}


def test_the_judge_lets_the_database_forget_the_claims_of_its_last_moments_only(evidence: Evidence) -> None:
    evidence.attempts.clear()
    evidence.outcomes[1] = evidence.outcomes[1]._replace(attempt=1)  # the number is used again
    evidence.faults[:] = [Fault("database", 1.9, frozenset()), Fault("database back", 2.4, frozenset())]
    assert not found(evidence)
    evidence.faults[:] = [Fault("database", 9.9, frozenset()), Fault("database back", 10.4, frozenset())]
    assert "extra starts" in found(evidence)


def test_the_judge_lets_a_drained_process_give_back_what_it_had_begun(evidence: Evidence) -> None:
    evidence.attempts.clear()
    evidence.faults[:] = [Fault("drain", 2.0, frozenset({11}))]
    assert not found(evidence)


def test_the_judge_reads_what_handlers_and_clients_write(tmp_path: Path) -> None:
    (tmp_path / "effects").write_text("start a 1 t 11 1.5\nstart b 1 t 11 1.25\nend a 1 t 11 2.0\n")
    assert effects(tmp_path / "effects") == [Start("b", 1, "t", 11, 1.25), Start("a", 1, "t", 11, 1.5, 2.0)]
    (tmp_path / "client").write_text("sent a\nsent b\nacked b\n")
    assert said_to_client(tmp_path / "client") == ({"a", "b"}, {"b"})

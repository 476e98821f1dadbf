"""The same operations on the reference and on the real store: after every step both must say the same.

Time is the machine's own (virtual_time.py), so every moment and rank is compared exactly. A difference is reported as
the shortest list of operations that shows it; jobs, workers and leases appear in it by number.
WINDLASS_MACHINE_RUNS=500 explores that many times 500 steps instead of the usual number; each run repeats exactly.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.contract.machine_input import BY_ID, QUEUES, WRONG, answer_of, asks, bodies, forged, keyed, outcomes
from tests.contract.reference import Reference
from tests.contract.reference_values import SECOND, RefWorker, Seen
from tests.contract.virtual_time import World
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.errors import WindlassError
from windlass.leader import chores
from windlass.lifecycle import TRANSITIONS, Outcome
from windlass.lifecycle import settle as decide
from windlass.model import Lease, NewJob, NewWorker, Status
from windlass.store.claims import Claims
from windlass.store.ids import Ids
from windlass.store.protocol import Ask, Cause, JobQuery, WideJob

T = TypeVar("T")
Numbers = MultipleResults[int]


class Machine(RuleBasedStateMachine):
    """Jobs, workers and leases are known by number, in the order of their coming."""

    jobs: Bundle[int] = Bundle("jobs")
    workers: Bundle[int] = Bundle("workers")
    leases: Bundle[int] = Bundle("leases")
    spent: Bundle[int] = Bundle("spent")  # settled once, or tried to
    either = st.one_of(consumes(leases), consumes(leases), spent)

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world, self.store, self.run = world, world.store, world.run
        self.run(world.reset())
        self.reference = Reference(world.start)
        self.job_ids: list[UUID] = []
        self.ids = Ids(self.store.postgres.now_ms)
        self.known_leases: list[Lease] = []
        self.last_outcome: dict[int, Outcome] = {}
        self.known_workers: list[tuple[NewWorker, Claims]] = []
        self.before: dict[UUID, Seen] = {}

    def both(self, theirs: Coroutine[Any, Any, T], ours: Callable[[], object]) -> T | None:
        """Do it on both sides: the same answer, or the same kind of error (then None)."""
        answer, expected = answer_of(partial(self.run, theirs)), answer_of(ours)
        assert answer == expected, f"the store says {answer}, the reference {expected}"
        return None if isinstance(answer, type) else answer

    # Workers. -------------------------------------------------------------------------------------------------------

    @initialize(target=workers)
    def begin(self) -> Numbers:
        """Worker 0 has no end, or the machine would soon stand still."""
        return multiple(self._register(["echo", "other"], 10**7), self._register(["echo"], 60))

    @initialize(target=jobs, batch=st.lists(bodies, min_size=3, max_size=6))
    def fill(self, batch: list[NewJob]) -> Numbers:
        return self._enqueue(batch)

    @precondition(lambda self: len(self.known_workers) < 6)
    @rule(target=workers, types=st.sampled_from([["echo"], ["echo", "strange"]]), ttl_s=st.sampled_from([5, 60]))
    def register(self, types: list[str], ttl_s: int) -> int:
        return self._register(types, ttl_s)

    def _register(self, types: list[str], ttl_s: int) -> int:
        new = NewWorker(uuid4(), "w", 4, QUEUES, types)
        self.run(self.store.upkeep.register(new, lease_ttl_s=ttl_s))
        self.reference.workers[new.id] = RefWorker(new, self.reference.now + ttl_s * SECOND, self.reference.now)
        self.known_workers.append((new, self.store.claims()))
        return len(self.known_workers) - 1

    @rule(worker=workers, how=st.sampled_from(["left", "crashed", "drain", "renew", "renew"]))
    def tell_of_worker(self, worker: int, how: str) -> None:
        ids, upkeep = [self.known_workers[worker][0].id], self.store.upkeep
        if how == "renew" or worker == 0:
            ttl_s = 60 if worker else 10**7
            self.both(upkeep.renew(ids, lease_ttl_s=ttl_s), lambda: self.reference.renew(ids[0], ttl_s))
        elif how == "drain":
            self.both(upkeep.drain(ids), lambda: self.reference.drain(ids))
        else:
            self.both(upkeep.bury(ids, cast("Cause", how)), lambda: self.reference.bury(ids, how))

    @precondition(lambda self: self.reference.has_lost())
    @rule(jitter=st.sampled_from([0.0, 0.5]))
    def reap(self, jitter: float) -> None:
        def ours() -> int:
            self.reference.bury_expired()
            return self.reference.reap(jitter)

        self.both(chores.reap(self.store.upkeep, self.store.claims(), lambda: jitter), ours)

    # Intake. --------------------------------------------------------------------------------------------------------

    @precondition(lambda self: sum(job.outcome is None for job in self.reference.jobs.values()) < 12)
    @rule(target=jobs, batch=st.lists(st.one_of(bodies, keyed), min_size=1, max_size=6), ids=st.booleans())
    def enqueue(self, batch: list[NewJob], ids: bool) -> Numbers:
        if ids:
            batch = [job._replace(id=job_id) for job, job_id in zip(batch, self.ids.make(len(batch)), strict=True)]
        return self._enqueue(batch)

    @rule(target=jobs, first=bodies, job=jobs, other_body=st.booleans(), key=st.sampled_from([None, None, "k1"]))
    def enqueue_again(self, first: NewJob, job: int, other_body: bool, key: str | None) -> Numbers:
        """A repeated id, in the company of a new job: all or none."""
        job_id = self.job_ids[job]
        again = self.reference.jobs[job_id].body._replace(id=job_id)
        again = again._replace(idempotency_key=key or again.idempotency_key)
        return self._enqueue([first, again._replace(priority=2) if other_body else again])

    def _enqueue(self, batch: list[NewJob]) -> Numbers:
        answers = answer_of(partial(self.run, self.store.intake.enqueue(batch)))
        expected = answer_of(lambda: self.reference.enqueue(batch))
        difference = f"the store says {answers}, the reference {expected}"
        if isinstance(answers, type) or isinstance(expected, type):
            assert answers == expected, difference
            return multiple()
        for answer, (job_id, duplicate) in zip(answers, expected, strict=True):
            assert (answer.id, answer.duplicate) == (job_id or answer.id, duplicate), difference
        self.reference.store_new(batch, answers)
        new = [answer.id for answer in answers if not answer.duplicate]
        self.job_ids += new
        return multiple(*range(len(self.job_ids) - len(new), len(self.job_ids)))

    @precondition(lambda self: self.job_ids)
    @rule(
        verb=st.sampled_from(["cancel", "retry", "run_now", "discard"]),
        some=st.lists(jobs, min_size=1, max_size=3, unique=True),
    )
    def act(self, verb: str, some: list[int]) -> None:
        ids = [self.job_ids[n] for n in some] + self.ids.make(1)  # and one that does not exist
        ours = {job_id: answer_of(partial(getattr(self.reference, verb), job_id)) for job_id in ids}
        theirs = self.run(getattr(self.store.intake, f"{verb}_many")(ids))
        plain = {i: type(answer) if isinstance(answer, WindlassError) else answer for i, answer in theirs.items()}
        assert plain == ours, f"the store says {plain}, the reference {ours}"

    @precondition(lambda self: self.reference.paused or len(self.job_ids) > 8)
    @rule(queue=st.sampled_from(QUEUES), paused=st.sampled_from([False, False, True]))
    def pause(self, queue: str, paused: bool) -> None:
        self.run(self.store.intake.set_paused(queue, paused=paused))
        (self.reference.paused.add if paused else self.reference.paused.discard)(queue)

    # Claims. --------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.reference.has_ready())
    @rule(target=leases, worker=workers, ask=asks, full=st.booleans())
    def claim(self, worker: int, ask: Ask, full: bool) -> Numbers:
        return self._claim(worker, ask, full=full)

    @precondition(lambda self: self.reference.has_ready())
    @rule(target=leases, ask=asks)
    def claim_by_worker_0(self, ask: Ask) -> Numbers:
        """Most steps should find something running."""
        return self._claim(0, ask, full=True)

    @precondition(lambda self: self.reference.has_ready())
    @rule(target=leases, worker=workers.filter(bool), ask=asks, heartbeat=st.booleans())
    def claim_and_die(self, worker: int, ask: Ask, heartbeat: bool) -> Numbers:
        """A worker claims and is not heard of again: its lease ends, and its jobs are reaped."""
        leases = self._claim(worker, ask, full=True)
        self.both_agree()
        self.advance(61, "heartbeat" if heartbeat else "")
        self.both_agree()
        self.reap(jitter=0.5)
        return leases

    @rule(target=leases, worker=workers, body=bodies)
    def hand_over(self, worker: int, body: NewJob) -> Numbers:
        """A single job while a worker rests is that worker's, if it could claim it."""
        new, _ = self.known_workers[worker]
        stored, lease = self.run(self.world.hand_over(new, body))
        self.reference.store_new([body], [stored])
        self.job_ids.append(stored.id)
        claimable = self.reference.line(Ask(new.id, new.queues, new.types, free=new.threads))
        fits = stored.id in {job.id for job in claimable} and not body.tags and not body.delay_s
        assert (lease is not None) == fits, f"handed over: {lease}"
        if lease is None:
            return multiple()
        self.reference.take([lease])
        self.known_leases.append(lease)
        return multiple(len(self.known_leases) - 1)

    def _claim(self, worker: int, ask: Ask, *, full: bool) -> Numbers:
        new, claims = self.known_workers[worker]
        ask = replace(ask, worker_id=new.id, types=new.types)
        if full:
            claims.look_afresh()
        leases = self.run(claims.claim(ask))
        self.reference.judge_claim(ask, leases, full=full)
        self.reference.take(leases)
        self.known_leases += leases
        return multiple(*range(len(self.known_leases) - len(leases), len(self.known_leases)))

    @rule(target=spent, lease=consumes(leases), outcome=outcomes, jitter=st.sampled_from([0.0, 0.5]))
    def settle(self, lease: int, outcome: Outcome, jitter: float) -> int:
        self._settle([(lease, outcome, "")], jitter)
        return lease

    @rule(lease=spent, outcome=outcomes, wrong=st.sampled_from(WRONG))
    def settle_again(self, lease: int, outcome: Outcome, wrong: str) -> None:
        self._settle([(lease, self.last_outcome.get(lease, outcome), wrong)], 0.5)
        self._settle([(lease, outcome, wrong)], 0.5)

    @rule(target=spent, batch=st.lists(st.tuples(either, outcomes, st.sampled_from(WRONG)), min_size=2, max_size=4))
    @precondition(lambda self: len(self.bundle("leases")) >= 4 and self.bundle("spent"))
    def settle_batch(self, batch: list[tuple[int, Outcome, str]]) -> Numbers:
        self._settle(batch, 0.5)
        return multiple(*(lease for lease, _, _ in batch))

    def _settle(self, batch: list[tuple[int, Outcome, str]], jitter: float) -> None:
        """Leases that are good, settled before, long lost, or forged in the field that is named."""
        settlements = {}
        for number, outcome, wrong in batch:
            lease = self.known_leases[number]
            settlements[lease.job_id] = decide(forged(lease, wrong), outcome, jitter=jitter)
        receipt = self.run(self.known_workers[0][1].settle(settlements.values()))
        ours = self.reference.settle(settlements.values())
        assert receipt.moved == ours.moved, f"the store says {receipt}, the reference {ours}"
        self.last_outcome |= {n: outcome for n, outcome, _ in batch if self.known_leases[n].job_id in ours.moved}
        assert ours.repeated - ours.refused <= receipt.repeated <= ours.repeated, f"repeated: {receipt}, not {ours}"
        assert ours.refused - ours.repeated <= receipt.refused <= ours.refused, f"refused: {receipt}, not {ours}"

    @rule(lease=leases)
    def ask_to_cancel(self, lease: int) -> None:
        job_id = self.known_leases[lease].job_id
        self.both(self.store.intake.cancel(job_id), lambda: self.reference.cancel(job_id))

    @rule(worker=workers, lease=leases, older_than_s=st.sampled_from([0.0, 5.0]))
    def give_back_strays(self, worker: int, lease: int, older_than_s: float) -> None:
        new, claims = self.known_workers[worker]
        ids = [self.known_leases[lease].job_id]
        ours = self.reference.settle(self.reference.strays(new.id, ids, older_than_s)).moved
        strays = self.run(claims.strays(new.id, ids, older_than_s=older_than_s))
        assert set(self.run(claims.release(strays)).moved) == set(ours)

    # Upkeep. --------------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 10, 61, 61, 700, 90_000]), then=st.sampled_from(["", "heartbeat", "promote"]))
    def advance(self, seconds: int, then: str) -> None:
        self.run(self.world.advance(seconds))
        self.reference.now += seconds * SECOND
        if then == "heartbeat":
            self.tell_of_worker(0, "renew")
        elif then == "promote":
            self.both_agree()
            self.promote(1000)

    @precondition(lambda self: self.reference.due())
    @rule(limit=st.sampled_from([1, 2, 1000]))
    def promote(self, limit: int) -> None:
        due = self.reference.due()
        gained = self.run(self.store.upkeep.promote(limit=limit))
        moved = {i for i, seen in self.run(self.world.look(tick=False)) if seen.status is Status.READY}
        taken, left = [job for job in due if job.id in moved], [job for job in due if job.id not in moved]
        assert len(taken) == min(limit, len(due))
        assert max((job.ready_at for job in taken), default=0) <= min((job.ready_at for job in left), default=2**63)
        assert gained == self.reference.promote(taken)

    @rule(
        verb=st.sampled_from(["hold", "admit", "fold", "forget", "expire keys", "narrow", "give up"]),
        widest=st.integers(1, 2), after_s=st.sampled_from([0.0, 60.0]),
    )  # fmt: skip
    def chore(self, verb: str, widest: int, after_s: float) -> None:
        upkeep, reference = self.store.upkeep, self.reference
        if verb == "hold":
            self.both(upkeep.hold_unknown(after_s=after_s), lambda: reference.hold_unknown(after_s))
        elif verb == "admit":
            self.both(upkeep.admit_known(), reference.admit_known)
        elif verb == "fold":
            self.both(upkeep.fold_counts(), lambda: True)
        elif verb == "forget":
            self.both(upkeep.forget_workers(older_than_s=after_s), lambda: reference.forget_workers(after_s))
        elif verb == "expire keys":
            self.both(upkeep.expire_keys(), lambda: reference.expire_keys(86_400.0))
        else:
            ours = reference.wide(QUEUES, widest, after_s)
            wide = [WideJob(job.id, job.body.queue, job.body.type, job.demand, job.body.if_too_wide) for job in ours]
            lines = {(queue, type_): widest for queue in QUEUES for type_ in ("echo", "other", "strange")}
            theirs = self.run(upkeep.too_wide(lines, waited_s=after_s))
            assert sorted(theirs, key=BY_ID) == sorted(wide, key=BY_ID)
            ranks = [reference.jobs[job.job_id].rank for job in theirs]
            assert ranks == sorted(ranks)  # of equals, any may be first
            if verb == "narrow":
                self.both(upkeep.narrow(wide), lambda: reference.narrow(ours))
            else:
                self.both(upkeep.give_up(wide, widest=widest), lambda: reference.give_up(ours))

    # What must hold after every step. -------------------------------------------------------------------------------

    @invariant()
    def both_agree(self) -> None:
        rows = self.run(self.world.look())
        seen = dict(rows)
        assert len(seen) == len(rows), "a job in two tables"
        ours = {job.id: job.seen() for job in self.reference.jobs.values()}
        different = {i: (seen.get(i), ours.get(i)) for i in seen.keys() | ours.keys() if seen.get(i) != ours.get(i)}
        assert not different, f"the store has, and the reference: {different}"
        for job_id, now in seen.items():
            was = self.before.get(job_id)
            assert now.attempt >= (was.attempt if was else 0)
            source = was.status if was else None
            assert now.status in TRANSITIONS[source] or now.status is source, f"{source} -> {now.status}"
        assert self.run(self.store.views.counts()) == self.reference.counts()
        check = self.run(self.store.views.check())
        assert check.clean, check
        self.before = seen
        self.world.steps += 1
        self.reference.now += 1000

    def teardown(self) -> None:
        """At the end the lists and the histories agree as well."""
        jobs = sorted(self.reference.jobs.values(), key=lambda job: job.id, reverse=True)
        if dict(self.run(self.world.look(tick=False))) != {job.id: job.seen() for job in jobs}:
            return  # a step has failed, and says so
        for query in (*(JobQuery([status]) for status in Status), JobQuery(type="echo", queue="a"), JobQuery(tag="x")):
            page = self.run(self.store.views.jobs(query))
            ours = [(job.id, self.reference.shown(job)) for job in jobs if self.reference.matches(job, query)]
            assert [(job.id, job.status) for job in page.jobs] == ours, query
        for job in jobs:
            attempts = self.run(self.store.views.attempts(job.id))
            told = [(one.attempt, one.status, one.worker_id, one.token) for one in attempts]
            assert told == [(r.attempt, r.ended, r.worker_id, r.token) for r in self.reference.attempts(job)]


@pytest.fixture(scope="module")
def world(postgres_server: EmbeddedPostgres) -> Iterator[World]:
    with asyncio.Runner() as runner, pytest.MonkeyPatch.context() as patch:
        opened = World(postgres_server, runner)
        opened.hold_floors(patch)
        yield opened
        runner.run(opened.close())


@pytest.mark.timeout(3600)  # a difference is made small before it is shown
@pytest.mark.parametrize("number", range(int(os.environ.get("WINDLASS_MACHINE_RUNS", "12"))))
def test_the_store_does_what_the_reference_does(world: World, number: int) -> None:
    # After ten examples Hypothesis would go on with variations of those it has: other numbers find more.
    given = settings(max_examples=10, stateful_step_count=50, deadline=None, database=None,
                     suppress_health_check=list(HealthCheck))  # fmt: skip
    before, machine = world.steps, seed(number)(partial(Machine, world))
    run_state_machine_as_test(cast("type[Machine]", machine), settings=given)
    assert world.steps - before > 250  # times twelve: 3,000 at the least, 6,000 as a rule

"""Whole clusters in simulated time: nothing starves, every wide job starts within its bound, threads stay busy."""

import math
from random import Random
from uuid import UUID

import pytest

from .cluster import RESERVE_AFTER, TICK, Cluster, SimJob, SimWorker

NARROW_AND_WIDE = ([1, 2, 4, 8, 16], [80, 12, 5, 2, 1])


def mixed_jobs(
    random: Random,
    count: int,
    threads: int,
    longest: int,
    load: float,
    mix: tuple[list[int], list[int]] = NARROW_AND_WIDE,
) -> list[SimJob]:
    """Jobs arriving at `load` times what the threads can do; a quarter of them with 60 s of head start."""
    jobs, now = [], 0.0
    for n in range(count):
        demand = random.choices(*mix)[0]
        steps = min(longest, 1 + int(random.expovariate(5 / longest)))
        now += demand * steps / (threads * load)
        rank = now - random.choice((0, 0, 0, 240))
        jobs.append(SimJob(rank, UUID(int=n), int(now), steps, demand, random.choice("ab")))
    return jobs


def mixed_cluster(random: Random, count: int, longest: int) -> Cluster:
    queues = [frozenset("a"), frozenset("b"), frozenset("ab")]
    workers = [SimWorker(UUID(int=n), random.choice((4, 8, 8, 16)), random.choice(queues)) for n in range(count)]
    # Somebody must be able to run everything.
    workers[0] = SimWorker(UUID(int=0), 16, frozenset("ab"))
    return Cluster(workers, random, longest)


def run(cluster: Cluster, jobs: list[SimJob]) -> float:
    """Run until every job has started; how busy the threads were from the first full length of a job to the last arrival."""
    threads = sum(worker.threads for worker in cluster.workers)
    busy_before, begin, at = 0, 0, 0
    while at < len(jobs):
        if cluster.now == cluster.longest:
            busy_before, begin = cluster.busy_steps, cluster.now
        until = at
        while until < len(jobs) and jobs[until].ready <= cluster.now:
            until += 1
        cluster.step(jobs[at:until])
        at = until
    busy = (cluster.busy_steps - busy_before) / (threads * (cluster.now - begin))
    give_up = cluster.now + len(jobs) * cluster.longest
    while cluster.started < len(jobs):
        cluster.step()
        assert cluster.now < give_up, "starved"
    return busy


def test_a_thousand_workers_and_a_hundred_thousand_mixed_jobs_starve_nobody_and_stay_nine_tenths_busy() -> None:
    random = Random(7)
    cluster = mixed_cluster(random, 1_000, longest=80)
    threads = sum(worker.threads for worker in cluster.workers)
    busy = run(cluster, mixed_jobs(random, 100_000, threads, longest=80, load=1.02))
    assert cluster.started == 100_000
    assert len(cluster.waits) > 1_000, "many jobs needed a reservation"
    assert all(wait.waited <= wait.most for wait in cluster.waits)
    assert busy >= 0.9, f"threads were {busy:.1%} busy"


@pytest.mark.parametrize("seed", range(30))
def test_every_passed_over_job_of_a_small_cluster_starts_within_its_bound(seed: int) -> None:
    random = Random(seed)
    cluster = mixed_cluster(random, random.randrange(1, 12), longest=random.choice((8, 40, 120)))
    threads = sum(worker.threads for worker in cluster.workers)
    run(cluster, mixed_jobs(random, 1_000, threads, cluster.longest, load=random.choice((0.7, 1.0, 1.3))))
    late = [wait for wait in cluster.waits if wait.waited > wait.most]
    assert not late


def flood(count: int, wide: int, *, longest: int, reservations: bool = True, random: Random | None = None) -> Cluster:
    """The worst case: narrow jobs, each as long as allowed, take every thread at once when it is free.

    Against them `wide` jobs that need a whole worker each. Runs until those have started, at most 50 rounds.
    """
    cluster = Cluster(
        [SimWorker(UUID(int=n), 8) for n in range(count)], random or Random(0), longest, reservations_on=reservations
    )
    made = wide

    def narrow(count: int) -> list[SimJob]:
        nonlocal made
        made += count
        return [SimJob(cluster.now + n / 1e6, UUID(int=n), cluster.now, longest, 1) for n in range(made - count, made)]

    while cluster.now < longest:
        cluster.step(narrow(count * 8 // longest + 1))
    cluster.step([SimJob(float(cluster.now), UUID(int=n), cluster.now, longest, 8) for n in range(wide)])
    begin = cluster.now
    while cluster.wide and cluster.now < begin + 50 * longest:
        cluster.step(narrow(count * 8 // longest + count))
    return cluster


@pytest.mark.parametrize(("workers", "wide"), [(1, 1), (1, 3), (2, 2), (3, 3), (4, 4), (10, 10), (10, 30), (50, 50)])
def test_whole_worker_jobs_get_through_a_flood_of_long_narrow_ones_within_their_bound(workers: int, wide: int) -> None:
    longest = 40
    cluster = flood(workers, wide, longest=longest)
    assert not cluster.wide, "starved"
    half = max(1, workers // 2)
    for k, waited in enumerate(sorted(wait.waited for wait in cluster.waits), 1):
        assert waited + RESERVE_AFTER <= RESERVE_AFTER + TICK + math.ceil(k / half) * (longest + TICK)


def test_without_reservations_the_same_flood_starves_a_wide_job() -> None:
    assert len(flood(10, 3, longest=40, reservations=False).wide) == 3


def test_the_bound_counts_half_the_workers_because_only_half_are_reserved_at_once() -> None:
    """With all of them counted it would promise too much: an expected counterexample."""
    longest = 40
    waited = sorted(wait.waited for wait in flood(4, 4, longest=longest).waits)
    assert waited[-1] > 2 * TICK + math.ceil(4 / 4) * longest

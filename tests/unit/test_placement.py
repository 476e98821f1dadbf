"""What fits where: the rules one by one. Whole clusters are simulated in test_placement_simulation.py."""

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.placement import (
    Reservation,
    Room,
    Turns,
    Wide,
    early,
    fit,
    lines,
    passed_over,
    reserve,
    room,
    serves,
    widest_by_line,
)


def wide(n: int, demand: int = 8, queue: str = "q", type_: str = "t") -> Wide:
    return Wide(UUID(int=1000 + n), queue, type_, demand)


def worker(
    n: int, threads: int = 8, busy: int = 8, last: float | None = None, queues: str = "q", types: str = "t"
) -> Room:
    return Room(UUID(int=n), threads, busy, frozenset(queues), frozenset(types), last)


def on(n: int, job: Wide) -> Reservation:
    return Reservation(UUID(int=n), job.job_id, job.thread_demand)


@pytest.mark.parametrize(
    ("budget", "demands", "most", "fitting"),
    [
        (8, [], 10, 0),
        (8, [1] * 20, 10, 8),
        (8, [1] * 20, 5, 5),
        (8, [4, 4, 1], 10, 2),
        (8, [4, 5, 1], 10, 1),
        (8, [9, 1], 10, 0),
        (0, [1], 10, 0),
        (-3, [1], 10, 0),
        (8, [1], 0, 0),
        (8, [1], -1, 0),
    ],
)
def test_the_head_of_the_line_is_taken_as_far_as_it_fits(
    budget: int, demands: list[int], most: int, fitting: int
) -> None:
    assert fit(budget, demands, most) == fitting


@given(st.integers(-5, 100), st.lists(st.integers(1, 20)), st.integers(-1, 30))
def test_what_fits_is_the_longest_prefix_within_the_budget(budget: int, demands: list[int], most: int) -> None:
    taken = fit(budget, demands, most)
    assert 0 <= taken <= max(0, min(most, len(demands)))
    assert sum(demands[:taken]) <= max(0, budget)
    if taken < min(most, len(demands)):
        assert sum(demands[: taken + 1]) > budget


@pytest.mark.parametrize(
    ("threads", "busy", "reserved", "may_fill"),
    [
        (8, 0, None, 8),
        (8, 3, None, 5),
        (8, 8, None, 0),
        (8, 9, None, 0),
        (8, 3, 6, 0),
        (8, 3, 5, 5),
        (8, 7, 2, 0),
        (8, 0, 8, 8),
        (8, 1, 8, 0),
    ],
)
def test_a_reserved_worker_takes_nothing_until_its_wide_job_fits(
    threads: int, busy: int, reserved: int | None, may_fill: int
) -> None:
    assert room(threads, busy, reserved) == may_fill


def test_a_reservation_goes_to_the_soonest_free_then_the_least_recently_used() -> None:
    job = wide(1, demand=4)
    assert reserve([job], [worker(1, busy=8), worker(2, busy=6), worker(3, busy=5)], []) == [on(3, job)]
    same = [worker(1, busy=6, last=30.0), worker(2, busy=6, last=10.0), worker(3, busy=6, last=20.0)]
    assert reserve([job], same, []) == [on(2, job)]
    assert reserve([job], [*same, worker(4, busy=6, last=None)], []) == [on(4, job)], "never used comes first"
    assert reserve([job], [worker(2, busy=4, last=1.0), worker(1, busy=0, last=2.0)], []) == [on(2, job)], (
        "free is free: how much more is free does not matter"
    )


@pytest.mark.parametrize("other", [worker(1, threads=4, busy=0), worker(1, queues="x"), worker(1, types="x")])
def test_a_worker_that_could_not_hold_the_job_is_never_reserved(other: Room) -> None:
    assert reserve([wide(1)], [other], []) == []
    assert reserve([wide(1)], [other, worker(2)], []) == [on(2, wide(1))]
    assert reserve([wide(1)], [other], [on(1, wide(1))]) == [], "a held one that became impossible is dropped"


def test_at_most_half_of_the_able_workers_are_reserved_and_at_least_one() -> None:
    jobs = [wide(n) for n in range(20)]
    for able, most in [(0, 0), (1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (10, 5)]:
        wanted = reserve(jobs, [worker(n) for n in range(able)], [])
        assert [reservation.job_id for reservation in wanted] == [job.job_id for job in jobs[:most]], "by rank"
        again = reserve(jobs, [worker(n) for n in range(able)], wanted)
        assert again == wanted


def test_a_held_reservation_stays_while_it_is_valid_even_if_a_better_worker_appears() -> None:
    job = wide(1)
    workers = [worker(1, busy=3), worker(2, busy=0), worker(3, busy=0), worker(4, busy=0)]
    assert reserve([wide(0), job], workers, [on(1, job)]) == [on(1, job), on(2, wide(0))]


def test_a_reservation_of_a_job_that_started_or_a_worker_that_left_is_dropped() -> None:
    assert reserve([], [worker(1)], [on(1, wide(1))]) == []
    assert reserve([wide(2)], [worker(1)], [on(1, wide(1))]) == [on(1, wide(2))], "and its worker is free for the next"
    assert reserve([wide(1)], [worker(2)], [on(1, wide(1))]) == [on(2, wide(1))]


def test_of_two_reservations_on_one_worker_the_one_of_the_lower_rank_stays() -> None:
    held = [on(1, wide(2)), on(1, wide(1))]
    assert reserve([wide(1), wide(2)], [worker(1), worker(2)], held) == [on(1, wide(1))]


def test_a_job_whose_demand_changed_has_its_reservation_follow() -> None:
    assert reserve([wide(1, demand=3)], [worker(1)], [on(1, wide(1, demand=8))]) == [on(1, wide(1, demand=3))]


def test_a_job_that_must_wait_for_its_half_is_not_overtaken_for_ever_by_those_behind_it() -> None:
    """Three of the four workers that could hold it are promised to smaller jobs, and smaller ones keep coming behind it."""
    big = wide(0, demand=16)
    workers = [worker(n, threads=16, busy=16) for n in range(4)] + [worker(n, busy=8) for n in range(4, 20)]
    waiting = [*(wide(n + 1) for n in range(3)), big]
    held = [on(n, waiting[n]) for n in range(3)]
    for turn in range(3):
        waiting += [wide(100 + 10 * turn + n) for n in range(10)]
        held = reserve(waiting, workers, held)
        if any(reservation.job_id == big.job_id for reservation in held):
            break
        started = next(reservation.job_id for reservation in held if reservation.worker_id == UUID(int=turn))
        waiting = [job for job in waiting if job.job_id != started]
    assert big.job_id in {reservation.job_id for reservation in held}


rooms = st.builds(
    worker,
    st.integers(0, 12),
    threads=st.integers(1, 16),
    busy=st.integers(0, 16),
    last=st.none() | st.floats(0, 1e6),
    queues=st.sampled_from(["q", "r", "qr"]),
    types=st.sampled_from(["t", "u", "tu"]),
)
clusters = st.lists(rooms, max_size=12, unique_by=lambda each: each.worker_id)
wides = st.builds(wide, st.integers(0, 12), st.integers(1, 16), st.sampled_from("qr"), st.sampled_from("tu"))
waits = st.lists(wides, max_size=15, unique_by=lambda each: each.job_id)
helds = st.lists(st.builds(on, st.integers(0, 5), wides), max_size=10)


def could_hold(each: Room, job: Wide) -> bool:
    return each.threads >= job.thread_demand and job.queue in each.queues and job.type in each.types


@given(waits, clusters, helds)
def test_every_set_of_reservations_keeps_the_rules(
    waiting: list[Wide], workers: list[Room], held: list[Reservation]
) -> None:
    wanted = reserve(waiting, workers, held)
    jobs = {job.job_id: job for job in waiting}
    by_id = {each.worker_id: each for each in workers}
    assert all(count == 1 for count in Counter(each.worker_id for each in wanted).values())
    assert all(count == 1 for count in Counter(each.job_id for each in wanted).values())
    pairs = {(each.worker_id, each.job_id) for each in held}
    taken = {each.worker_id for each in wanted}
    for each in wanted:
        assert could_hold(by_id[each.worker_id], jobs[each.job_id])
        assert each.threads == jobs[each.job_id].thread_demand
        if (each.worker_id, each.job_id) not in pairs:
            able = {it.worker_id for it in workers if could_hold(it, jobs[each.job_id])}
            # The last one reserved for this shape saw at most half; those after it are of other shapes.
            earlier = {it.worker_id for it in wanted[: wanted.index(each) + 1]}
            assert len(able & earlier) <= max(1, len(able) // 2)
    first = next((job for job in waiting if any(could_hold(it, job) for it in workers)), None)
    if first is not None and not held:
        assert first.job_id in {each.job_id for each in wanted}, "the first in line is always served"
    assert reserve(waiting, workers, wanted)[: len(wanted)] == sorted(
        wanted, key=lambda each: [job.job_id for job in waiting].index(each.job_id)
    ), "asking again keeps them all"
    assert taken <= set(by_id)


def test_the_widest_of_a_line_is_found_among_those_who_serve_it() -> None:
    workers = [worker(1, threads=8), worker(2, threads=4), worker(3, threads=16, queues="qr", types="u")]
    assert widest_by_line(workers) == {("q", "t"): 8, ("q", "u"): 16, ("r", "u"): 16}
    assert widest_by_line([]) == {}


def test_a_worker_that_drains_or_lost_threads_still_counts_as_wide_for_it_will_be_replaced() -> None:
    assert widest_by_line([worker(1, threads=4), worker(2)._replace(draining=True, lost=7)]) == {("q", "t"): 8}


# Passed over. ---------------------------------------------------------------------------------------------------------


def test_a_job_is_passed_over_once_a_worker_able_to_hold_it_took_one_from_behind_it() -> None:
    job = wide(1)._replace(rank=10)
    assert list(passed_over([job], [])) == []
    assert list(passed_over([job], [worker(1)])) == [], "it has taken nothing"
    assert list(passed_over([job], [took(worker(1), 9), took(worker(2), 10)])) == [], "only what is before it"
    assert list(passed_over([job], [took(worker(1), 9), took(worker(2), 11)])) == [job]


@pytest.mark.parametrize("other", [worker(1, threads=4), worker(1, queues="x"), worker(1, types="x")])
def test_a_worker_that_could_not_hold_a_job_does_not_pass_it_over(other: Room) -> None:
    assert list(passed_over([wide(1)], [took(other, 99), took(worker(2), -1)])) == []


@pytest.mark.parametrize("gone", [{"draining": True}, {"lost": 1}])
def test_a_worker_that_drains_or_lost_the_threads_is_no_room(gone: dict[str, int]) -> None:
    spent = took(worker(1), 99)._replace(**gone)  # type: ignore[arg-type]
    assert list(passed_over([wide(1)], [spent])) == []
    assert reserve([wide(1)], [spent], []) == []
    assert reserve([wide(1)], [spent], [on(1, wide(1))]) == [], "not even if it was promised"
    assert reserve([wide(1, demand=7)], [spent._replace(draining=False)], []) == [on(1, wide(1, demand=7))]


@given(st.lists(wides, max_size=15), clusters, st.lists(st.none() | st.integers(0, 20), min_size=12))
def test_passed_over_is_what_its_words_say_whatever_is_remembered_by_kind(
    waiting: list[Wide], workers: list[Room], ranks: list[int | None]
) -> None:
    workers = [each._replace(latest_rank=rank) for each, rank in zip(workers, ranks, strict=False)]
    waiting = [job._replace(rank=n) for n, job in enumerate(waiting)]
    expected = [
        job
        for job in waiting
        if any(
            each.latest_rank is not None and each.latest_rank > job.rank and could_hold(each, job) for each in workers
        )
    ]
    assert list(passed_over(waiting, workers)) == expected
    widest = lines(workers)
    for job in expected:
        assert job.thread_demand <= widest[job.queue, job.type], "the lines that are asked for leave none of them out"


def took(each: Room, rank: int) -> Room:
    return each._replace(latest_rank=rank)


# Turns. ---------------------------------------------------------------------------------------------------------------


def test_queues_without_weights_take_no_turns_and_are_asked_together() -> None:
    assert Turns({"a": 1, "b": 1}).next() is None
    assert Turns({"a": 1}).next() is None
    assert Turns({}).next() is None


def test_turns_of_a_heavy_queue_are_spread_and_not_taken_in_a_row() -> None:
    turns = Turns({"a": 5, "b": 1, "c": 1})
    assert "".join(str(turns.next()) for _ in range(14)) == "aaabaacaaabaac"
    turns = Turns({"a": 2, "b": 2})
    assert "".join(str(turns.next()) for _ in range(4)) == "abab"


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 1000), min_size=1), st.integers(1, 300))
def test_of_any_number_of_turns_each_queue_gets_its_share_give_or_take_one(weights: dict[str, int], n: int) -> None:
    turns = Turns(weights)
    got: Counter[str] = Counter()
    for turn in range(1, n + 1):
        queue = turns.next()
        if queue is None:
            assert set(weights.values()) == {1}
            return
        got[queue] += 1
        for each, weight in weights.items():
            assert abs(got[each] - turn * weight / sum(weights.values())) < 1


def test_by_age_alone_the_first_in_line_are_served_one_for_every_64_workers() -> None:
    jobs = [wide(n)._replace(rank=n) for n in range(1, 6)]
    few, many = [worker(n) for n in range(2)], [worker(n) for n in range(128)]
    assert early(jobs, few, set(), set()) == {jobs[0].job_id}
    assert early(jobs, many, set(), set()) == {jobs[0].job_id, jobs[1].job_id}
    assert early(jobs, few, {jobs[0].job_id}, set()) == {jobs[1].job_id}, "who was passed over needs no favour"
    assert early(jobs, few, {jobs[3].job_id}, {jobs[3].job_id}) == {jobs[3].job_id}, "and who has it keeps it"
    assert early(jobs, [each._replace(lost=each.threads) for each in few], set(), set()) == set()


@given(
    crew=st.lists(
        st.tuples(
            st.integers(1, 4),
            st.frozensets(st.sampled_from(["*", "a*", "ab*", "a", "ab", "b"])),
            st.frozensets(st.sampled_from("tu")),
        ),
        max_size=4,
    )
)
def test_a_line_is_as_wide_as_the_widest_worker_that_serves_it_by_name_or_pattern(
    crew: list[tuple[int, frozenset[str], frozenset[str]]],
) -> None:
    workers = [Room(UUID(int=n), threads, 0, queues, types) for n, (threads, queues, types) in enumerate(crew)]
    found = ["a", "abc", "cd"]
    widest = widest_by_line(workers, found)
    for queue, type_ in [(queue, type_) for queue in found for type_ in "tu"]:
        widths = [each.threads for each in workers if serves(each, queue, type_)]
        assert widest.get((queue, type_), 0) == max(widths, default=0)
    assert not any(queue.endswith("*") for queue, _ in widest)

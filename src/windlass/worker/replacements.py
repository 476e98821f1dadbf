"""Which workers make way for others, and when: those that lost threads, have grown too big, or are deaf.

Such a worker finishes what it runs, which may take as long as its longest job. Its successor starts at once, beside it. How
many do that at a time is bounded, because each is one more process with the app in its memory. One that finds no room
goes on with the threads it has left until there is.
"""

from collections.abc import Mapping
from uuid import UUID

from windlass.worker.berth import Berth


class Replacements:
    """Over the berths that there are now. At most `most` of them finish their jobs beside their successors."""

    def __init__(self, berths: Mapping[UUID, Berth], most: int) -> None:
        self._berths = berths
        self._most = most

    def look(self) -> None:
        """Let those make way that should and may. Reads memory only."""
        retiring = sum(berth.retires.is_set() for berth in self._berths.values())
        for berth in [one for one in self._berths.values() if _should_make_way(one)]:
            if retiring < self._most:
                berth.retire(beside=True)
                retiring += 1
            elif berth.slots.lost_threads >= berth.threads and not berth.draining:
                berth.retire(beside=False)  # nothing else runs in it: it is killed as soon as it has said so


def _should_make_way(berth: Berth) -> bool:
    leaves_for_good = not berth.replace or berth.restarts
    return berth.worn is not None and not (leaves_for_good or berth.killed or berth.retires.is_set())

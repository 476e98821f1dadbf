"""When a server that is not needed is asked, and when it is left alone. Pure: the time is an argument.

Closed, everything is asked. A time-out opens it at once, for each costs somebody his time; other failures, which cost
nothing, when some come in a row. Open, nobody asks but a probe: at once, then after pauses that grow. One that opens again
soon after it was closed has not earned a fresh start: its pauses go on growing, so that a server which answers probes and
nothing else does not cost a time-out for every probe.
"""

from typing import Final

_FAILURES: Final = 3
_FIRST_PAUSE_S: Final = 0.25
_PAUSE_S_MAX: Final = 5.0
_PROVEN_S: Final = 10.0


class Breaker:
    """Open until a first probe has succeeded: nobody waits for a server that may not be there."""

    def __init__(self) -> None:
        self.is_open = True
        self._failures = 0  # in a row
        self._tries = 0  # probes that have not led to lasting health
        self._closed_at_s: float | None = None

    def succeeded(self) -> None:
        """A call was answered."""
        self._failures = 0

    def failed(self, now_s: float, *, timed_out: bool = False) -> bool:
        """A call was not. Whether that opens it."""
        if self.is_open:  # it was under way when another opened it
            return False
        self._failures += 1
        if not timed_out and self._failures < _FAILURES:
            return False
        self.is_open = True
        if self._closed_at_s is not None and now_s - self._closed_at_s >= _PROVEN_S:
            self._tries = 0
        return True

    @property
    def pause_s(self) -> float:
        """Until the next probe."""
        return 0.0 if not self._tries else min(_PAUSE_S_MAX, _FIRST_PAUSE_S * 2.0 ** min(self._tries - 1, 10))

    def probed(self, now_s: float, *, well: bool) -> None:
        """A probe has ended. Failed or not it counts, until health has lasted."""
        self._tries += 1
        if well:
            self.is_open = False
            self._failures = 0
            self._closed_at_s = now_s

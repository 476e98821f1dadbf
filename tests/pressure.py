"""How busy the machine is, for tests that measure: under pressure their figures say nothing."""

import re
import time
from pathlib import Path

_UNKNOWN_S = 2.0


def waited_for_processors_s() -> float:
    """How long some process of this machine has waited for a processor since boot; 0 where the kernel does not say."""
    pressure = Path("/proc/pressure/cpu")
    found = re.search(r"some .*total=(\d+)", pressure.read_text()) if pressure.exists() else None
    return int(found.group(1)) / 1e6 if found else 0.0


class Stopwatch:
    """The time since it was made, for promises about a machine with a free core: where processes wait for one, they are
    kept later by as much."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._waited_s = waited_for_processors_s()

    @property
    def waited_s(self) -> float:
        """How long some process had to wait for a processor meanwhile."""
        return waited_for_processors_s() - self._waited_s if self._waited_s else _UNKNOWN_S

    @property
    def free_s(self) -> float:
        """How long nobody had to."""
        return time.monotonic() - self._began_s - self.waited_s

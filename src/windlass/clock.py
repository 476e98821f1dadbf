"""The clock by which processes of one machine agree: nobody sets it, and it counts while the machine sleeps."""

import time
from typing import Final

_BOOT: Final = getattr(time, "CLOCK_BOOTTIME", None)


def steady_s() -> float:
    return time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT)

"""How busy the machine is, for tests that measure: under pressure their figures say nothing."""

import re
from pathlib import Path


def waited_for_processors_s() -> float:
    """How long some process of this machine has waited for a processor since boot; 0 where the kernel does not say."""
    pressure = Path("/proc/pressure/cpu")
    found = re.search(r"some .*total=(\d+)", pressure.read_text()) if pressure.exists() else None
    return int(found.group(1)) / 1e6 if found else 0.0

"""A folder in memory, for databases of tests: making and dropping them is mostly work for the file system, and on a disk
it costs several times as much. Nothing is shown less by it: a process that is killed does not take the memory of the
machine along, and no test cuts the power."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil

_MEMORY: Final = Path("/dev/shm")
_ENOUGH_MIB: Final = 5_000  # a run needs two thousand, most of it for the plans
_PREFIX: Final = "windlass-tests-"
_YOUNG_S: Final = 60.0


@contextmanager
def memory_folder(otherwise: Path) -> Iterator[Path]:
    """A folder in memory while the block lasts; where there is not enough of it, `otherwise`."""
    if not _is_roomy():
        yield otherwise
        return
    _remove_forgotten()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_MEMORY))
    ours = os.open(folder, os.O_RDONLY)
    fcntl.flock(ours, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        os.close(ours)
        shutil.rmtree(folder, ignore_errors=True)


def _is_roomy() -> bool:
    """Containers often have very little, and what a machine allows there may be more than it has."""
    if not os.access(_MEMORY, os.W_OK | os.X_OK):
        return False
    free = shutil.disk_usage(_MEMORY).free
    return min(free, psutil.virtual_memory().available) > _ENOUGH_MIB << 20


def _remove_forgotten() -> None:
    """What runs that were killed have left: nobody holds it any more. One that is just being made is not yet held."""
    for folder in _MEMORY.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            found = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if time.time() - folder.stat().st_ctime > _YOUNG_S:
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(found)

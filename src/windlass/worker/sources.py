"""The source files of an app, for `--reload`: which they are, and which have changed.

A worker says which folders its app was imported from, and what was in them. Its supervisor, which never imports the app, looks at
these folders: a module that is imported only later, or that is new, lies in one of them. Nothing but names and times is read.
"""

import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

Stamp = tuple[int, int]  # when it was written, and how long it is
_SUFFIX: Final = ".py"
_OURS: Final = str(Path(__file__).parents[1])


def imported_sources() -> dict[str, list[int]]:
    """What is in the folders that this process has imported the user's own code from; as `stamps` says it."""
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    installed = tuple(os.path.realpath(path) + os.sep for path in [*paths, _OURS])
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    own = [Path(os.path.realpath(file)) for file in files if isinstance(file, str) and file.endswith(_SUFFIX)]
    folders = {str(file.parent) for file in own if not str(file).startswith(installed)}
    return {file: list(stamp) for file, stamp in stamps(folders).items()}


def stamps(folders: Iterable[str]) -> dict[str, Stamp]:
    """The source files in these folders. A folder that is gone, or a file that goes meanwhile, is left out."""
    found: dict[str, Stamp] = {}
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.endswith(_SUFFIX) and entry.is_file():
                        stat = entry.stat()
                        found[entry.path] = stat.st_mtime_ns, stat.st_size
        except OSError:
            continue
    return found


class SourceWatch:
    """What a supervisor knows of its app's source files."""

    def __init__(self) -> None:
        self._known: dict[str, Stamp] = {}
        self._folders: set[str] = set()

    def learn(self, sources: Mapping[str, Iterable[int]]) -> None:
        """Take what a worker has imported. Of folders that are known already it says nothing new."""
        for file, (written_ns, size) in sources.items():
            if str(Path(file).parent) not in self._folders:
                self._known[file] = (written_ns, size)
        self._folders |= {str(Path(file).parent) for file in sources}

    def changed(self) -> list[str]:
        """The files that were written, added or removed since the last look."""
        now = stamps(self._folders)
        differing = sorted(file for file in self._known.keys() | now.keys() if self._known.get(file) != now.get(file))
        self._known = now
        return differing

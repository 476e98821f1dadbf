"""A data folder and who may use it: one owner at a time, and only after the last server in it has ended.

Two kernel locks (flock), so nothing is ever stale and no pid is guessed at:

- `owner.lock` is held by the owner alone. A second owner is refused at once and told who the first is.
- `server.lock` is inherited by the guardian, the server and every process the server forks, and by nobody else. It is
  free only when all of them are gone, so a new owner waits here for the server of a dead one to finish its shutdown.
"""

import contextlib
import errno
import fcntl
import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from windlass.embedded.guardian import remove_run_dir
from windlass.embedded.held import close_held, open_held
from windlass.errors import InUse, Misconfigured

# sun_path holds 108 bytes on Linux and 104 on macOS, with the closing zero.
_LONGEST_SOCKET_PATH = 103
_RUN_PREFIX = "windlass-"
_POLL_S = 0.005


class DataFolder:
    """An owned data folder. Made by `DataFolder(path)`, given back by `release()` or by the death of the process."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        with folder_errors(self.path):
            self.created = not self.path.exists()
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._owner_fd = open_held(lambda: _open_lock(self.path / "owner.lock"))
            try:
                self._take_ownership()
            except BaseException:
                self.release()
                raise

    def release(self) -> None:
        """Let the next owner in. Safe to repeat, and never called in a forked child (EmbeddedServer sees to it)."""
        if self._owner_fd >= 0:
            # Unlocked by name: a child just being forked may hold a copy until its exec, and closing would not do.
            fcntl.flock(self._owner_fd, fcntl.LOCK_UN)
            close_held(self._owner_fd)
            self._owner_fd = -1

    def lock_for_server(self, timeout_s: float) -> int:
        """The server lock as a held descriptor to hand to the guardian; waits for processes of an earlier server."""
        with folder_errors(self.path):
            fd = open_held(lambda: _open_lock(self.path / "server.lock"))
        deadline = time.monotonic() + timeout_s
        while not _try_lock(fd):
            if time.monotonic() > deadline:
                close_held(fd)
                raise InUse(
                    f"a server that an earlier owner left in {self.path} is still shutting down after {timeout_s:g} s; "
                    f"wait for it, or stop it by hand (fuser {self.path / 'server.lock'} shows its processes)"
                )
            time.sleep(_POLL_S)
        return fd

    def wait_for_server_end(self, timeout_s: float) -> bool:
        """Whether every process of the server has ended, waiting up to `timeout_s` for it."""
        try:
            close_held(self.lock_for_server(timeout_s))
        except InUse:
            return False
        return True

    def make_run_dir(self, socket_name: str) -> Path:
        """A private folder (mode 700) for a socket: inside the data folder if the path fits, else a temporary one."""
        note = self.path / "run_dir"
        with folder_errors(self.path):
            self._remove_forgotten_run_dir(note)
            inside = self.path / "run"
            if _fits(inside / socket_name):
                inside.mkdir(mode=0o700, exist_ok=True)
                return inside
            for parent in _temporary_folders():
                if _fits(parent / f"{_RUN_PREFIX}xxxxxxxx" / socket_name):
                    outside = Path(tempfile.mkdtemp(prefix=_RUN_PREFIX, dir=parent))
                    write_private(note, str(outside))
                    return outside
        raise Misconfigured(f"no folder with a path short enough for a socket; set TMPDIR to one, not {parent}")

    def _remove_forgotten_run_dir(self, note: Path) -> None:
        """Owner and guardian were both killed: what they left in the temporary folder is removed by the next start."""
        with contextlib.suppress(OSError):
            forgotten = Path(note.read_text())
            ours = forgotten.name.startswith(_RUN_PREFIX) and forgotten.parent in _temporary_folders()
            if ours and not forgotten.is_symlink():
                remove_run_dir(forgotten)
            note.unlink()

    def _take_ownership(self) -> None:
        if not _try_lock(self._owner_fd):
            raise InUse(
                f"{self.path} is in use by {_describe_owner(self._owner_fd)}; stop that one or use another folder"
            )
        started_at = datetime.now(UTC).isoformat(timespec="seconds")
        note = {"pid": os.getpid(), "command": shlex.join(sys.orig_argv), "started_at": started_at}
        os.ftruncate(self._owner_fd, 0)
        os.pwrite(self._owner_fd, json.dumps(note).encode(), 0)


@contextlib.contextmanager
def folder_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals about a folder into a message that names it and the way out."""
    try:
        yield
    except OSError as error:
        fix = {
            errno.ENOSPC: "free some space or use a folder on another disk",
            errno.EROFS: "use a folder on a writable disk",
            errno.EEXIST: "there is a file in its place: use another folder",
            errno.ENOTDIR: "a part of the path is a file: use another folder",
        }.get(error.errno or 0, "use a folder that this user may write to")
        where = f" ({error.filename})" if error.filename else ""
        raise Misconfigured(f"cannot use the data folder {path}: {error.strerror}{where}; {fix}") from error


def write_private(path: Path, text: str) -> None:
    """Write a new file that only its owner may read, and make it durable."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(fd)


def _temporary_folders() -> tuple[Path, Path]:
    return Path(tempfile.gettempdir()), Path("/tmp")  # noqa: S108 - only mkdtemp writes there


def _open_lock(path: Path) -> int:
    # Never through a link: as root in a folder of another user's, a planted one would have us write anywhere.
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _describe_owner(fd: int) -> str:
    """Who holds the lock, from the note it left. The note is written just after locking, so wait a moment for it."""
    deadline = time.monotonic() + 0.2
    while time.monotonic() < deadline:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            note = json.loads(os.pread(fd, 65536, 0))
            return f"process {note['pid']} ({note['command']}), started {note['started_at']}"
        time.sleep(_POLL_S)
    return "another process"


def _fits(socket_path: Path) -> bool:
    # Clients read a comma in a host as a list of hosts.
    return len(os.fsencode(socket_path)) <= _LONGEST_SOCKET_PATH and "," not in str(socket_path)

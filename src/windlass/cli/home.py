"""What `windlass up` keeps in its data folder beside the database: the secret that tokens are signed with, the key that
secrets of payloads are encrypted with, the id of its supervisor, and, while it runs, the address of its API. The other
commands find the secrets and the address there.
"""

import contextlib
import logging
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

from windlass.cli.notices import say
from windlass.embedded.folder import folder_errors
from windlass.errors import Misconfigured

SECRET: Final = "auth-secret"  # noqa: S105 - the name of a file
PAYLOAD_KEY: Final = "payload-key"
ADDRESS: Final = "address"
SUPERVISOR: Final = "supervisor"
_SECRET_BYTES: Final = 32


def secret_file(folder: Path, name: str = SECRET) -> Path:
    """The file with a secret of this folder, which is made when it is first asked for."""
    file = folder / name
    with folder_errors(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not file.exists():
            _make(file)
        found = file.lstat()
        if found.st_uid != os.geteuid() or not stat.S_ISREG(found.st_mode):  # whoever left it there knows it
            raise Misconfigured(f"{file} is not a file of yours; remove it, or use another folder: --data-dir")
        text = file.read_text(encoding="utf-8", errors="replace").strip()
    if len(text.encode()) < _SECRET_BYTES:
        raise Misconfigured(f"{file} holds no secret of {_SECRET_BYTES} bytes; remove it, and a new one is made")
    if stat.S_IMODE(found.st_mode) & 0o077:
        say(f"warning: others may read {file}; chmod 600 it, or remove it for a new one", logging.WARNING)
    return file


def _make(file: Path) -> None:
    """Whole or not at all, and never over another's: two that start at once must end up with the same one."""
    with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=f".{file.name}-") as fresh:  # mode 600
        fresh.write(secrets.token_urlsafe(48))
        fresh.flush()
        os.fsync(fresh.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(fresh.name, file)


def former_supervisor(folder: Path) -> UUID | None:
    """The supervisor of the `up` that used this folder last, if it left its id."""
    with contextlib.suppress(OSError, ValueError):
        return UUID((folder / SUPERVISOR).read_text(encoding="utf-8").strip())
    return None


def note_supervisor(folder: Path, supervisor_id: UUID) -> None:
    """Leave the id of our supervisor for the next `up`, which has to know whose workers died with us."""
    with folder_errors(folder):
        _replace(folder / SUPERVISOR, f"{supervisor_id}\n")


def _replace(file: Path, text: str) -> None:
    """Write a file whole or not at all."""
    with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=f".{file.name}-", delete=False) as fresh:
        fresh.write(text)
    Path(fresh.name).replace(file)


@contextlib.contextmanager
def announced(folder: Path, address: str) -> Iterator[None]:
    """Leave the address of the API in the folder while the block lasts."""
    file = folder / ADDRESS
    with folder_errors(folder):
        _replace(file, address + "\n")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if file.read_text(encoding="utf-8").strip() == address:  # else another has come since
                file.unlink()

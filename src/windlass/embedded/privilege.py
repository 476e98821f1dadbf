"""Under which identity a server runs. PostgreSQL refuses to run as root, and we never make it a system user.

- A plain user: as itself.
- Root on Linux: in a user namespace of its own. The kernel still sees root's uid, without its powers, so private
  folders stay private and nothing changes hands; PostgreSQL sees a uid that is not root's.
- Root where namespaces are forbidden (plain Docker) or unknown (macOS): as an unprivileged user, to whom the folders
  that we made ourselves are given. No mode of any folder is changed.

A cluster that already belongs to an unprivileged user stays with that user.
"""

import os
import pwd
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from windlass.errors import Misconfigured


@dataclass(frozen=True)
class Identity:
    """Who the server process is: `same` as ours, root in its own `namespace`, or `other` with a uid and gid."""

    kind: Literal["same", "namespace", "other"]
    uid: int = -1
    gid: int = -1

    def __str__(self) -> str:
        return f"{self.uid}:{self.gid}" if self.kind == "other" else self.kind

    @property
    def who(self) -> str:
        """For messages."""
        return {"same": "this user", "namespace": "root without its powers", "other": f"uid {self.uid}"}[self.kind]

    def give(self, *paths: Path) -> None:
        """Hand over what we made ourselves. Only an `other` needs it; links are handed over, never followed."""
        if self.kind == "other":
            for path in paths:
                os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def give_tree(self, root: Path) -> None:
        """Hand over a cluster that was made under another identity."""
        if self.kind == "other" and root.stat().st_uid != self.uid:
            for folder, _, files in os.walk(root, topdown=False):
                self.give(*(Path(folder, name) for name in files), Path(folder))

    def give_secret(self, path: Path) -> None:
        """Hand over a secret, unless to `nobody`: that user may be many programs."""
        if self.kind == "other":
            uid, gid = (0, 0) if self == unprivileged() else (self.uid, self.gid)
            os.chown(path, uid, gid, follow_symlinks=False)


SAME = Identity("same")
NAMESPACE = Identity("namespace")


def candidates(data_dir: Path, cluster: Path) -> tuple[Identity, ...]:
    """The identities to try for this cluster, best first."""
    if os.geteuid() != 0:
        return (SAME,)
    if cluster.exists() and (owner := _owner_of(cluster)):
        return (owner,)
    fallback = _owner_of(data_dir) or unprivileged()
    return (NAMESPACE, fallback) if sys.platform == "linux" else (fallback,)


def unprivileged() -> Identity:
    """The user `nobody`, which every system has and which owns nothing."""
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        raise Misconfigured(
            "PostgreSQL does not run as root and there is no user `nobody`: run as a plain user"
        ) from None
    return Identity("other", nobody.pw_uid, nobody.pw_gid)


def _owner_of(folder: Path) -> Identity | None:
    """The user that a folder belongs to, unless that is root."""
    status = folder.stat()
    return Identity("other", status.st_uid, status.st_gid) if status.st_uid != 0 else None


def reach_of(*paths: Path) -> list[str]:
    """Every folder that must be entered to reach these folders, outermost first."""
    folders = {folder for path in paths for folder in (path, *path.parents)}
    return [str(folder) for folder in sorted(folders, key=lambda folder: len(folder.parts))]

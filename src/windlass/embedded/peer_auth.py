"""Who may connect to a server that runs as another user than we do.

Root starts PostgreSQL as `nobody` where it may not use a namespace. Other programs run as `nobody`, too: they can enter the
folder of the socket, and a server that trusts whoever does would make each of them its superuser. So the kernel is asked
who connects (peer), and only we are let in; a real user to whom the folder belongs, also. The rules are files of ours
beside those of the cluster, named at each start: an existing cluster gets them without being changed.

What remains: `nobody` owns the files of the cluster. A program that sets out to change those needs no connection.
"""

import contextlib
import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from windlass.embedded.folder import write_private
from windlass.embedded.privilege import Identity, unprivileged

_MAP = "windlass"
_RULES = f"local all all peer map={_MAP}\nhost all all 127.0.0.1/32 scram-sha-256\n"


def write_peer_auth(cluster: Path, identity: Identity) -> Mapping[str, str]:
    """Write the rules for this identity; the settings that name them. None where the server runs as ourselves."""
    if identity.kind != "other":
        return {}
    uids = {os.geteuid()} | ({identity.uid} if identity != unprivileged() else set())
    users = []
    for uid in sorted(uids):
        with contextlib.suppress(KeyError):  # a uid without a name, which peer could not tell
            users.append(pwd.getpwuid(uid).pw_name)
    # Any role; before PostgreSQL 16 each would have to be named, and the one that Windlass uses is.
    role = "all" if int((cluster / "PG_VERSION").read_text()) >= 16 else "windlass"
    contents = {
        "hba_file": (cluster / "windlass_hba.conf", _RULES),
        "ident_file": (cluster / "windlass_ident.conf", "".join(f'{_MAP} "{user}" {role}\n' for user in users)),
    }
    for path, text in contents.values():
        write_private(path, text)
        identity.give(path)
    return {name: str(path) for name, (path, _) in contents.items()}

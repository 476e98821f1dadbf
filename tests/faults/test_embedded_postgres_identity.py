"""The embedded PostgreSQL runs without root's powers, whoever starts it, and is not led astray."""

import contextlib
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import struct
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from tests.eventually import eventually
from tests.faults.embedded_client import as_root, ask, gone, kept, write
from tests.faults.embedded_support import Owner
from windlass.embedded import binaries
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.embedded.privilege import NAMESPACE, Identity, unprivileged
from windlass.errors import Misconfigured

SYSTEM_PYTHON = Path("/usr/bin/python3")
SOURCES = Path(binaries.__file__).parents[2]
SITE = Path(asyncpg.__file__).parents[1]


@as_root
def test_as_root_it_runs_without_roots_powers_and_no_mode_or_owner_changes(data_dir: Path) -> None:
    parents = [data_dir, *data_dir.parents]
    before = [(folder.stat().st_mode, folder.stat().st_uid) for folder in parents]
    with EmbeddedPostgres(data_dir) as pg:
        status = Path(f"/proc/{pg.pid}/status").read_text()
        assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE)
        assert Path(f"/proc/{pg.pid}/ns/user").readlink() != Path("/proc/self/ns/user").readlink()
        assert ask(pg.url, "SELECT 1") == 1
    assert [(folder.stat().st_mode, folder.stat().st_uid) for folder in parents] == before
    assert (data_dir / "pgdata").stat().st_uid == 0


@as_root
def test_where_namespaces_are_forbidden_root_becomes_nobody(open_dir: Path) -> None:
    data_dir = open_dir / "data"
    with Owner("postgres", data_dir, "wait", "seccomp").up() as owner:
        nobody = pwd.getpwnam("nobody").pw_uid
        assert Path(f"/proc/{owner.news['pid']}").stat().st_uid == nobody
        assert data_dir.stat().st_uid == nobody
        assert (open_dir.stat().st_uid, stat.S_IMODE(open_dir.stat().st_mode)) == (0, 0o755)
        write(owner.news["url"], 11)
        os.kill(owner.news["guardian_pid"], signal.SIGKILL)
        eventually(lambda: gone(data_dir))
    with EmbeddedPostgres(data_dir) as pg:  # namespaces allowed again: it stays with its owner
        assert Path(f"/proc/{pg.pid}").stat().st_uid == nobody
        assert kept(pg.url) == 11


@as_root
def test_other_programs_of_nobody_are_not_let_in(template: Path, open_dir: Path) -> None:
    nobody = unprivileged()
    data_dir = open_dir / "data"
    data_dir.mkdir()
    shutil.copytree(template / "pgdata", data_dir / "pgdata")  # made to trust whoever reaches its socket
    assert "trust" in (data_dir / "pgdata" / "pg_hba.conf").read_text()
    with EmbeddedPostgres(data_dir, identities=(nobody,)) as pg:
        assert ask(pg.url, "SELECT 1") == 1
        assert is_let_in(pg.url, os.geteuid())
        assert not is_let_in(pg.url, nobody.uid)
        password = (data_dir / "pgdata" / "password").stat()
        assert (password.st_uid, stat.S_IMODE(password.st_mode)) == (0, 0o600)
    with EmbeddedPostgres(data_dir, identities=(nobody,), listen="tcp") as pg:
        assert ask(pg.url, "SELECT 1") == 1
        with pytest.raises(asyncpg.InvalidPasswordError):
            ask(re.sub(r":[^:@/]+@", ":wrong@", pg.url), "SELECT 1")


@as_root
def test_a_user_to_whom_the_folder_belongs_is_let_in_beside_root(template: Path, open_dir: Path) -> None:
    owner = pwd.getpwnam("daemon")
    os.chown(open_dir, owner.pw_uid, owner.pw_gid)
    shutil.copytree(template / "pgdata", open_dir / "pgdata")
    with EmbeddedPostgres(open_dir, identities=(Identity("other", owner.pw_uid, owner.pw_gid),)) as pg:
        assert is_let_in(pg.url, owner.pw_uid)
        assert is_let_in(pg.url, os.geteuid())
        assert (open_dir / "pgdata" / "password").stat().st_uid == owner.pw_uid


def is_let_in(url: str, uid: int) -> bool:
    """Whether a program of this user that says it is the role `windlass` is taken for it, without a password."""
    folder = parse_qs(urlsplit(url).query)["host"][0]
    pid = os.fork()
    if pid == 0:
        code = 2
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
            os.setgroups([])
            os.setuid(uid)
            client.settimeout(20)
            client.connect(f"{folder}/.s.PGSQL.5432")
            said = struct.pack(">I", 196_608) + b"user\0windlass\0database\0windlass\0\0"
            client.sendall(struct.pack(">I", len(said) + 4) + said)
            answer = client.recv(9)
            code = 0 if answer[:1] == b"R" and answer[5:9] == bytes(4) else 1
        os._exit(code)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code < 2, "it did not reach the server"
    return code == 0


@as_root
def test_a_cluster_made_by_root_goes_to_nobody_when_namespaces_become_forbidden(template: Path, open_dir: Path) -> None:
    shutil.copytree(template / "pgdata", open_dir / "pgdata")
    assert (open_dir / "pgdata").stat().st_uid == 0
    with EmbeddedPostgres(open_dir, listen="tcp", identities=(unprivileged(),)) as pg:
        assert ask(pg.url, "SELECT 1") == 1
        assert open_dir.stat().st_uid == 0


@as_root
def test_a_folder_closed_to_the_unprivileged_user_is_named_with_the_fix(data_dir: Path) -> None:
    closed = next(folder for folder in reversed(data_dir.parents) if not folder.stat().st_mode & stat.S_IXOTH)
    with pytest.raises(Misconfigured, match=f"uid {unprivileged().uid} may not enter {closed}.*chmod o\\+x {closed}"):
        EmbeddedPostgres(data_dir, identities=(unprivileged(),)).start()


@as_root
def test_in_a_plain_users_private_folder_root_becomes_that_user(template: Path, open_dir: Path) -> None:
    nobody = unprivileged()
    os.chown(open_dir, nobody.uid, nobody.gid)
    open_dir.chmod(0o700)
    with pytest.raises(Misconfigured, match=f"root without its powers may not enter {open_dir}"):
        EmbeddedPostgres(open_dir, identities=(NAMESPACE,)).start()
    with EmbeddedPostgres(open_dir) as pg:
        assert Path(f"/proc/{pg.pid}").stat().st_uid == nobody.uid


def test_a_planted_link_is_not_followed(data_dir: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("as it was")
    for name in ("owner.lock", "server.lock"):
        (data_dir / name).symlink_to(precious)
        with pytest.raises(Misconfigured, match="cannot use the data folder"):
            EmbeddedPostgres(data_dir).start()
        (data_dir / name).unlink()
    (data_dir / "server.log").symlink_to(precious)
    with EmbeddedPostgres(data_dir):
        assert precious.read_text() == "as it was"


@as_root
@pytest.mark.skipif(not SYSTEM_PYTHON.exists(), reason="needs a Python that every user may run")
def test_a_plain_user_needs_nothing_special(open_dir: Path) -> None:
    nobody = unprivileged()
    (home := open_dir / "home").mkdir(mode=0o700)
    os.chown(home, nobody.uid, nobody.gid)
    ids = ["setpriv", f"--reuid={nobody.uid}", f"--regid={nobody.gid}", "--clear-groups"]
    command = [*ids, "env", f"PYTHONPATH={SOURCES}:{SITE}", f"TMPDIR={home}", str(SYSTEM_PYTHON), "-B"]
    with Owner("postgres", home / "data", prefix=command).up() as owner:
        assert Path(f"/proc/{owner.news['pid']}").stat().st_uid == nobody.uid
        assert ask(owner.news["url"], "SELECT 1") == 1
        owner.kill()
        eventually(lambda: gone(home / "data"))
    with Owner("postgres", open_dir / "data", prefix=command) as owner:
        assert owner.process.wait(10) != 0
        assert owner.process.stderr is not None
        assert f"cannot use the data folder {open_dir}/data: Permission denied" in owner.process.stderr.read()

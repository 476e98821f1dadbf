"""A real PostgreSQL as a child process: for `windlass up`, for tests and for benchmarks. Never the production path.

    with EmbeddedPostgres(Path("data")) as pg:
        connection = await asyncpg.connect(pg.url)

The folder holds `pgdata` (the cluster), `server.log`, two lock files and the socket. Data survives restarts and any
kill: durability is PostgreSQL's default. A first start takes about a second, a later one a tenth of that.
Connections come over a socket in a private folder, or over loopback with a random password. Where the server runs as
another user than we, only we may connect over the socket (peer_auth.py).
"""

import contextlib
import os
import re
import secrets
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, Self
from urllib.parse import quote

from windlass.embedded import privilege
from windlass.embedded.binaries import find_postgres, postgres_major
from windlass.embedded.folder import DataFolder, folder_errors, write_private
from windlass.embedded.peer_auth import write_peer_auth
from windlass.embedded.privilege import Identity
from windlass.embedded.process import Guarded, Program, Refused, free_port, poll_until, tail
from windlass.embedded.server import EmbeddedServer
from windlass.errors import Misconfigured

NAME = "windlass"  # of the role, which is superuser of this private cluster, and of the database
DEFAULTS: Mapping[str, str] = {
    "shared_buffers": "128MB",
    "max_connections": "200",
    "max_wal_size": "4GB",  # with the next: no checkpoint in the middle of a benchmark
    "checkpoint_timeout": "15min",
}
_OURS = ("port", "listen_addresses", "unix_socket_directories", "unix_socket_permissions", "data_directory")
_PASSWORD = "password"  # noqa: S105 - the name of its file
_SOCKET_PORT = "5432"  # only a part of the socket's name
_INITDB_TIMEOUT_S = 120.0
# Recovery after a crash replays up to max_wal_size; giving up early would begin it again for ever.
_START_TIMEOUT_S = 300.0
_STOP = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 5.0))  # fast, then immediate; SIGKILL comes last


class EmbeddedPostgres(EmbeddedServer):
    """PostgreSQL in `data_dir`, with role and database `windlass`. `settings` override ours and PostgreSQL's."""

    def __init__(
        self,
        data_dir: Path,
        *,
        bin_dir: Path | None = None,
        settings: Mapping[str, str] | None = None,
        listen: Literal["socket", "tcp"] = "socket",
        identities: tuple[Identity, ...] | None = None,
    ) -> None:
        """`identities` says under whom to run, best first; None asks `privilege.candidates`."""
        super().__init__(data_dir)
        self._bin_dir = bin_dir
        self._settings = {**DEFAULTS, **_checked(settings or {})}
        self._listen = listen
        self._wanted_identities = identities
        self._cluster = self.data_dir / "pgdata"

    def start(self) -> Self:
        with folder_errors(self.data_dir):
            if (self.data_dir / "PG_VERSION").exists():
                raise Misconfigured(f"{self.data_dir} is a PostgreSQL data directory itself; name a folder of our own")
        return super().start()

    def _launch(self, folder: DataFolder, lock_fd: int) -> None:
        programs = find_postgres(self._bin_dir)
        self._refuse_other_version(programs)
        with folder_errors(self.data_dir):
            self._identities = self._wanted_identities or privilege.candidates(self.data_dir, self._cluster)
            if not self._cluster.exists():
                self._initialise(programs, folder, lock_fd)
            # Another process may take a free port between our look and PostgreSQL's: look again, a few times.
            for _ in range(5):
                address = self._choose_address(folder)
                options = _options({**self._settings, **address})
                argv = (str(programs / "postgres"), "-D", str(self._cluster), *options)
                program = Program(argv, self._new_log(), _STOP, signal.SIGINT, run_dir=self._run_dir)
                self._guarded = self._guard(program, folder, lock_fd, self._cluster, serves=True)
                if self._came_up(self._guarded):
                    self._url = self._url_for(address)
                    return
                self._guarded.stop()
                self._guarded.release()
                if "Address already in use" not in tail(self.log):
                    break
        raise self._failed("PostgreSQL did not start", self.log)

    def _refuse_other_version(self, programs: Path) -> None:
        if not self._cluster.exists():
            return
        with folder_errors(self.data_dir):
            theirs = (self._cluster / "PG_VERSION").read_text().strip()
        if theirs != (ours := postgres_major(programs)):
            raise Misconfigured(
                f"{self._cluster} was made by PostgreSQL {theirs}, but the programs in {programs} are PostgreSQL {ours}; "
                f"set WINDLASS_POSTGRES_BIN_DIR to programs of version {theirs}, or dump and load into a new folder"
            )

    def _initialise(self, programs: Path, folder: DataFolder, lock_fd: int) -> None:
        """Make the cluster beside its place and move it there when complete: a half-made one is never mistaken for it."""
        fresh = self.data_dir / "pgdata.new"
        with _cleared_on_failure(fresh):
            password = secrets.token_urlsafe(24)
            for program in _set_up_steps(programs, fresh, self.data_dir / "initdb.log", password):
                step = self._guard(program, folder, lock_fd, fresh)
                if step.wait(_INITDB_TIMEOUT_S) != 0:
                    raise self._failed("the first set-up of PostgreSQL failed", program.log)
            write_private(fresh / _PASSWORD, password)
            self._identities[0].give_secret(fresh / _PASSWORD)
            fresh.rename(self._cluster)
        _sync(self.data_dir)

    def _guard(
        self, program: Program, folder: DataFolder, lock_fd: int, cluster: Path, *, serves: bool = False
    ) -> Guarded:
        """Start a program under the best identity that this machine allows, and stay with that identity. `serves`: it
        takes connections."""
        reach = privilege.reach_of(cluster, Path(program.argv[0]).parent)
        while True:
            identity = self._identities[0]
            self._hand_over(identity, folder, cluster)
            argv = (*program.argv, *(_options(write_peer_auth(cluster, identity)) if serves else ()))
            try:
                return Guarded(replace(program, argv=argv, identity=str(identity), reach=reach), lock_fd)
            except Refused as refused:
                if refused.step == "exec" or len(self._identities) == 1:
                    raise _explain(refused, program, identity) from refused
            self._identities = self._identities[1:]

    def _hand_over(self, identity: Identity, folder: DataFolder, cluster: Path) -> None:
        if folder.created:
            identity.give(folder.path)
        if self._run_dir is not None:
            identity.give(self._run_dir)
        identity.give_tree(cluster)
        if (cluster / _PASSWORD).exists():
            identity.give_secret(cluster / _PASSWORD)

    def _choose_address(self, folder: DataFolder) -> dict[str, str]:
        if self._listen == "tcp":
            return {"listen_addresses": "127.0.0.1", "port": str(free_port()), "unix_socket_directories": ""}
        if self._run_dir is None:
            self._run_dir = folder.make_run_dir(f".s.PGSQL.{_SOCKET_PORT}")
        quoted = '"' + str(self._run_dir).replace('"', '""') + '"'
        return {"listen_addresses": "", "port": _SOCKET_PORT, "unix_socket_directories": quoted}

    def _url_for(self, address: Mapping[str, str]) -> str:
        if self._run_dir is not None:
            return f"postgresql://{NAME}@/{NAME}?host={quote(str(self._run_dir), safe='/')}"
        password = (self._cluster / _PASSWORD).read_text().strip()
        return f"postgresql://{NAME}:{password}@127.0.0.1:{address['port']}/{NAME}"

    def _came_up(self, guarded: Guarded) -> bool:
        """Whether it takes connections now; False if it has ended instead. PostgreSQL says so in its pid file."""
        for _ in poll_until(time.monotonic() + _START_TIMEOUT_S):
            with contextlib.suppress(FileNotFoundError):
                lines = (self._cluster / "postmaster.pid").read_text().splitlines()
                # The pid too: the file may still be that of an earlier server that was killed.
                if len(lines) > 7 and lines[0] == str(guarded.pid) and lines[7].strip() == "ready":
                    return True
            if not guarded.alive:
                return False
        raise self._failed(f"PostgreSQL was not ready after {_START_TIMEOUT_S:g} s", self.log)


def _checked(settings: Mapping[str, str]) -> Mapping[str, str]:
    for name in settings:
        if name in _OURS or not re.fullmatch(r"[a-z_][a-z0-9_.]*", name):
            raise Misconfigured(f"settings may not hold {name!r}: it is no PostgreSQL setting, or one that we choose")
    return settings


def _options(settings: Mapping[str, str]) -> list[str]:
    return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]


@contextlib.contextmanager
def _cleared_on_failure(fresh: Path) -> Iterator[None]:
    """An empty private folder, gone again if the work in it fails: most of all when the disk is full."""
    if fresh.exists():
        shutil.rmtree(fresh)  # left by a set-up that was killed
    fresh.mkdir(mode=0o700)
    try:
        yield
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def _set_up_steps(programs: Path, fresh: Path, log: Path, password: str) -> tuple[Program, Program]:
    """initdb, and then the database and the password in single-user mode: no connection is needed for either."""
    log.unlink(missing_ok=True)
    initdb = (programs / "initdb", "-D", fresh, "-U", NAME, "--encoding=UTF8", "--locale=C")
    auth = ("--auth-local=trust", "--auth-host=scram-sha-256", "--no-instructions")
    single = (programs / "postgres", "--single", "-D", fresh, "-c", "exit_on_error=on", "postgres")
    sql = f"ALTER ROLE {NAME} PASSWORD '{password}'\nCREATE DATABASE {NAME}\n"
    return Program((*initdb, *auth), log), Program(single, log, stdin=sql.encode())


def _explain(refused: Refused, program: Program, identity: Identity) -> Misconfigured:
    if refused.step == "reach":
        return Misconfigured(
            f"{identity.who} may not enter {refused.folder}, which leads to the data folder or to PostgreSQL's programs: use "
            f"others (data_dir, bin_dir), allow entering this one (chmod o+x {refused.folder}), or run as a plain user"
        )
    if refused.step == "identity":
        return Misconfigured(
            f"PostgreSQL does not run as root, and this machine does not let us run it as {identity.who} ({refused}): "
            "run as a plain user"
        )
    return Misconfigured(f"cannot run {program.argv[0]}: {refused}")


def _sync(folder: Path) -> None:
    """Make a rename in this folder survive a power cut."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

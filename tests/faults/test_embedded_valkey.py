"""The embedded Valkey is under the same guard as PostgreSQL, and keeps nothing on disk."""

import os
import signal
from pathlib import Path
from typing import Literal

import pytest
import valkey

from tests.eventually import eventually
from tests.faults.embedded_support import Owner, processes_of
from windlass.embedded.valkey import EmbeddedValkey
from windlass.errors import InUse, Misconfigured


def gone(data_dir: Path) -> bool:
    return not processes_of(data_dir)


def client(url: str) -> valkey.Valkey:
    return valkey.Valkey.from_url(url)


@pytest.mark.parametrize("listen", ["socket", "tcp"])
def test_it_answers_and_keeps_nothing_on_disk(tmp_path: Path, listen: Literal["socket", "tcp"]) -> None:
    with EmbeddedValkey(tmp_path, listen=listen) as server, client(server.url) as connection:
        connection.set("a", "1")
        assert connection.get("a") == b"1"
        assert connection.config_get("save") == {"save": ""}
        assert connection.config_get("appendonly") == {"appendonly": "no"}
    assert gone(tmp_path)
    assert {entry.name for entry in tmp_path.iterdir()} == {"owner.lock", "server.lock", "valkey.log"}
    with EmbeddedValkey(tmp_path) as server, client(server.url) as connection:
        assert connection.get("a") is None


def test_over_loopback_only_the_password_opens(tmp_path: Path) -> None:
    with EmbeddedValkey(tmp_path, listen="tcp") as server:
        port = server.url.rpartition(":")[2]
        with client(f"redis://127.0.0.1:{port}") as connection, pytest.raises(valkey.AuthenticationError):
            connection.get("a")
        assert b"requirepass" not in Path(f"/proc/{server.pid}/cmdline").read_bytes()


def test_killing_the_owner_stops_it(tmp_path: Path) -> None:
    with Owner("valkey", tmp_path).up() as owner:
        assert owner.news["pid"] in processes_of(tmp_path)
        owner.kill()
        eventually(lambda: gone(tmp_path))


def test_killing_the_guardian_stops_it_and_the_owner_sees_it(tmp_path: Path) -> None:
    with EmbeddedValkey(tmp_path) as server:
        os.kill(server.guardian_pid, signal.SIGKILL)
        eventually(lambda: not server.alive)
        eventually(lambda: gone(tmp_path))
        assert server.start().alive


def test_killing_the_server_is_seen_and_it_starts_again(tmp_path: Path) -> None:
    with EmbeddedValkey(tmp_path) as server:
        server.kill()
        eventually(lambda: not server.alive)
        with client(server.start().url) as connection:
            assert connection.ping()


def test_a_second_owner_is_refused(tmp_path: Path) -> None:
    with EmbeddedValkey(tmp_path), pytest.raises(InUse, match=f"process {os.getpid()} "):
        EmbeddedValkey(tmp_path).start()


def test_a_failed_start_shows_the_end_of_the_log(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="Bad directive"):
        EmbeddedValkey(tmp_path, settings={"no-such-setting": "1"}).start()
    assert gone(tmp_path)


def test_settings_that_we_choose_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="settings may not hold 'port'"):
        EmbeddedValkey(tmp_path, settings={"port": "1"})


def test_a_path_too_long_for_a_socket_works(tmp_path: Path) -> None:
    with EmbeddedValkey(tmp_path / ("long" * 30)) as server, client(server.url) as connection:
        assert connection.ping()

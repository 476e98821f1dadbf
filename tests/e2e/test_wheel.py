"""The wheel and the source archive as published: the dashboard is in them, and installing either needs no Node.js."""

import os
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from pathlib import Path

import pytest

from tests.api.served import free_port
from tests.e2e.household import CLEAN, ROOT
from tests.eventually import eventually
from windlass.api.dashboard import FOLDER

pytestmark = pytest.mark.skipif(
    not (FOLDER / "index.html").is_file(), reason="the dashboard is not built, for lack of Node.js or its packages"
)
_BUILD = "import sys; from hatchling import build; getattr(build, sys.argv[1])(sys.argv[2])"
_API = "from windlass.cli import main; main()"


def built(kind: str, source: Path, into: Path, **environ: str) -> Path:
    """What a frontend like pip does, without a network."""
    into.mkdir()
    command = [sys.executable, "-c", _BUILD, f"build_{kind}", str(into)]
    done = subprocess.run(
        command, cwd=source, env={**os.environ, **environ}, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    (made,) = into.iterdir()
    return made


@pytest.fixture(scope="module")
def path_without_node(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH with the programs that a build script could need, and no Node.js."""
    folder = tmp_path_factory.mktemp("bin")
    for name in ("sh", "cat", "find", "sort", "tr", "xargs", "cksum", "dirname", "git"):
        for place in ("/bin", "/usr/bin"):
            if Path(place, name).exists() and not (folder / name).exists():
                (folder / name).symlink_to(Path(place, name))
    return str(folder)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, path_without_node: str) -> Path:
    """Made from the source archive, where there is no Node.js."""
    folder = tmp_path_factory.mktemp("packages")
    archive = built("sdist", ROOT, folder / "sdist")
    with tarfile.open(archive) as opened:
        opened.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    assert not (source / "web" / "node_modules").exists()
    return built("wheel", source, folder / "wheel", PATH=path_without_node)


def test_the_wheel_holds_the_dashboard_and_nothing_of_its_making(wheel: Path) -> None:
    names = {name.partition("windlass/api/ui/")[2] for name in zipfile.ZipFile(wheel).namelist()} - {""}
    assert {"index.html", "mark.svg"} <= names
    assert {name.rpartition(".")[2] for name in names if name.startswith("assets/")} == {"js", "css"}
    assert not [name for name in names if name.startswith(".")]


def test_a_wheel_of_a_clone_holds_the_same_dashboard(wheel: Path, tmp_path: Path) -> None:
    own = built("wheel", ROOT, tmp_path / "own")

    def dashboard(file: Path) -> dict[str, int]:
        entries = zipfile.ZipFile(file).infolist()
        return {each.filename: each.CRC for each in entries if each.filename.startswith("windlass/api/ui/")}

    assert dashboard(own) == dashboard(wheel)


def test_an_installed_wheel_serves_the_dashboard_without_node(
    wheel: Path, url: str, tmp_path: Path, path_without_node: str
) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    port = free_port()
    environ = {**CLEAN, "WINDLASS_DATABASE_URL": url, "WINDLASS_AUTH": "off", "WINDLASS_UNREADY_S": "0"}
    environ |= {"PYTHONPATH": str(tmp_path / "site"), "PYTHONSAFEPATH": "1", "PATH": path_without_node}
    said = subprocess.run(
        [sys.executable, "-c", "import windlass; print(windlass.__file__)"],
        env=environ, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.startswith(str(tmp_path))
    with (tmp_path / "log").open("wb") as log:
        api = subprocess.Popen(
            [sys.executable, "-c", _API, "api", "--port", str(port)], env=environ, stdout=log, stderr=log, cwd=tmp_path
        )
    try:
        page = eventually(lambda: fetched(port, "/ui/jobs", api, tmp_path / "log"), 30)
        assert '<script type="module"' in page
        script = page.partition('src="./')[2].partition('"')[0]
        assert len(fetched(port, f"/ui/{script}", api, tmp_path / "log")) > 10_000
    finally:
        api.terminate()
        api.wait(20)


def fetched(port: int, path: str, api: "subprocess.Popen[bytes]", log: Path) -> str:
    """The text at a path, or nothing while nobody answers."""
    assert api.poll() is None, log.read_text()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""

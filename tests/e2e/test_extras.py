"""Windlass as plain `pip install windlass` leaves it: what needs an extra says which, in one line."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from tests.e2e.household import CLEAN, ROOT
from windlass.extras import PACKAGES

_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")
_RUN = "from windlass.cli import main; main()"


def _core_distributions() -> Iterator[metadata.Distribution]:
    """What `pip install windlass` brings: its requirements without extras, and theirs."""
    seen: set[str] = set()
    wanted = ["windlass"]
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # for another platform or version of Python
            continue
        for line in found.requires or ():
            if "extra ==" not in line or name in {"pyjwt", "httpx2"}:  # pyjwt[crypto]; httpx2's own are harmless
                wanted += [each.group().lower() for each in [_PLAIN.match(line)] if each]
        yield found


@pytest.fixture(scope="module")
def plain_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages of a plain installation, as links to those of this one."""
    folder = tmp_path_factory.mktemp("site-packages")
    extras = {package for packages in PACKAGES.values() for package in packages} - {"httpcore2"}
    for found in _core_distributions():
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in {"..", "__pycache__"}}:
            link, target = folder / top, Path(str(found.locate_file(top)))
            if target.exists() and not link.exists() and top.partition(".")[0] not in extras:
                link.symlink_to(target)
    (folder / "windlass").symlink_to(ROOT / "src" / "windlass")
    return folder


def windlass(packages: Path, *words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """In a Python that has nothing but these packages: no site-packages of its own, no current folder."""
    env = {**CLEAN, **environ, "PYTHONPATH": str(packages), "PYTHONSAFEPATH": "1", "PATH": os.environ["PATH"]}
    return subprocess.run(
        [sys.executable, "-S", "-c", _RUN, *words], env=env, capture_output=True, text=True, timeout=60, check=False
    )


REDIS = {"WINDLASS_REDIS_URL": "redis://127.0.0.1:1/0"}


@pytest.mark.parametrize(
    ("words", "environ", "line"),
    [
        (["api"], {}, "the API needs the extra server: pip install 'windlass[server]'"),
        (
            ["worker", "--app", "windlass.jobs:app"],
            {},
            "the built-in job types need the extra jobs: pip install 'windlass[jobs]'",
        ),
        (
            ["worker", "--app", "tasks:app"],
            REDIS,
            "WINDLASS_REDIS_URL needs the extra redis: pip install 'windlass[redis]'",
        ),
        (
            ["up", "--ephemeral"],
            REDIS | {"WINDLASS_DATABASE_URL": "postgresql://127.0.0.1:1/d"},
            "`windlass up` needs the extras server, jobs, redis: pip install 'windlass[server,jobs,redis]'",
        ),
    ],
)
def test_a_command_without_its_extra_names_it_in_one_line(
    plain_packages: Path, words: list[str], environ: dict[str, str], line: str
) -> None:
    done = windlass(plain_packages, *words, **environ)
    assert (done.stderr, done.stdout, done.returncode) == (f"windlass: {line}\n", "", 3)


def test_the_rest_works_without_any_extra(plain_packages: Path, url: str) -> None:
    assert "migrate" in windlass(plain_packages, "--help").stdout  # imports the module of every command
    done = windlass(plain_packages, "migrate", "check", WINDLASS_DATABASE_URL=url)
    assert (done.returncode, done.stderr) == (0, "")
    enqueue = (
        "from windlass import App\napp = App()\n"
        "@app.job\ndef greet(name: str) -> str: return name\n"
        "print(greet.enqueue('Ada').id)\n"
    )
    env = {**CLEAN, "PYTHONPATH": str(plain_packages), "WINDLASS_DATABASE_URL": url}
    run = [sys.executable, "-S", "-c", enqueue]
    stored = subprocess.run(run, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert re.fullmatch(r"[0-9a-f-]{36}\n", stored.stdout), stored.stderr
    refused = subprocess.run(run, env=env | REDIS, capture_output=True, text=True, timeout=60, check=False)
    assert refused.stderr.endswith("WINDLASS_REDIS_URL needs the extra redis: pip install 'windlass[redis]'\n")


def test_the_extras_known_to_the_code_are_those_of_the_package() -> None:
    declared = set(metadata.metadata("windlass").get_all("Provides-Extra") or ())
    assert declared == {*PACKAGES, "all"}

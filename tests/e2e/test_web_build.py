"""The dashboard where nothing can be fetched: one line says so, and what was built stays."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.household import ROOT

UNAVAILABLE = 69


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A checkout without packages and without a build."""
    for folder in ("tools", "web/src"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("node_modules", "__pycache__"))
    for file in ("web/package.json", "web/package-lock.json", "web/index.html", "web/vite.config.ts", "Makefile"):
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True, parents=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def run(clone: Path, *command: str, path: str) -> "subprocess.CompletedProcess[str]":
    environ = {"PATH": path, "HOME": str(clone)}
    return subprocess.run(command, cwd=clone, env=environ, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def offline(clone: Path) -> str:
    """A PATH with a Node.js that is new enough, whose npm reaches no registry."""
    programs = clone / "bin"
    program(programs, "node", "exit 0")
    program(programs, "npm", 'echo "npm error network: cannot be reached" >&2; exit 1')
    return f"{programs}:/usr/bin:/bin"


def test_packages_that_cannot_be_fetched_are_told_in_one_line(clone: Path, offline: str) -> None:
    done = run(clone, "tools/web", path=offline)
    assert done.returncode == UNAVAILABLE
    *_, last = done.stderr.splitlines()
    assert last == (
        "No dashboard for now: the packages of web/package-lock.json cannot be fetched; .cache/node.log has why."
    )
    assert "cannot be reached" in (clone / ".cache" / "node.log").read_text()
    assert not (clone / "src").exists()


def test_an_old_node_and_no_other_are_told_in_one_line(clone: Path) -> None:
    programs = clone / "bin"
    program(programs, "node", "exit 1")  # as it answers to whether it is new enough
    program(programs, "npm", "exit 1")
    program(clone / ".venv" / "bin", "python", 'echo "no matching distribution" >&2; exit 1')
    program(clone / ".venv" / "bin", "pip", "exit 1")
    done = run(clone, "tools/web", path=f"{programs}:/usr/bin:/bin")
    assert done.returncode == UNAVAILABLE
    assert done.stderr.splitlines() == [
        "No Node.js 20.19 or newer is on the PATH; fetching one into .venv, once.",
        "No dashboard for now: Node.js 20.19 or newer cannot be fetched; .cache/node.log has why.",
    ]


def test_make_goes_on_without_it_and_a_build_that_was_asked_for_fails(clone: Path, offline: str) -> None:
    program(clone / "tools", "venv", "exit 0")
    assert run(clone, "make", "dashboard", path=offline).returncode == 0
    assert run(clone, "make", "web", path=offline).returncode != 0


def test_a_dashboard_that_does_not_build_stops_make(clone: Path) -> None:
    programs = clone / "bin"
    program(programs, "node", "exit 0")
    program(programs, "npm", "mkdir -p node_modules/.bin")
    program(clone / "web" / "node_modules" / ".bin", "vite", 'echo "overview.tsx: unexpected token" >&2; exit 1')
    program(clone / "tools", "venv", "exit 0")
    done = run(clone, "make", "dashboard", path=f"{programs}:/usr/bin:/bin")
    assert done.returncode != 0
    assert "unexpected token" in done.stderr


def test_what_is_up_to_date_is_not_built_again(clone: Path) -> None:
    programs = clone / "bin"
    program(programs, "node", "exit 0")
    program(programs, "npm", "mkdir -p node_modules/.bin")
    build = "mkdir -p ../src/windlass/api/ui && echo built >>../built"
    program(clone / "web" / "node_modules" / ".bin", "vite", build)
    path = f"{programs}:{os.defpath}"
    first, second = (run(clone, "tools/web", path=path) for _ in range(2))
    assert "Building the dashboard." in first.stderr
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    (clone / "web" / "src" / "main.tsx").write_text("changed")
    assert "Building the dashboard." in run(clone, "tools/web", path=path).stderr
    assert (clone / "built").read_text() == "built\n" * 2

#!/usr/bin/env python3
"""Check the lock files without a network: no address, a hash for every package, and all that pyproject.toml asks.

A registry's address in a commit ties every clone to one machine's set-up. `make lint` runs this.
"""

import os
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK = "requirements.lock"
NODE_LOCK = "node.lock"  # of tools/: Node.js for the dashboard, where the machine has none

# The files that could name a registry, each with the shape an address takes in it.
ADDRESS = {
    LOCK: re.compile(r"://|^\s*--(extra-)?index-url|^\s*--find-links"),
    NODE_LOCK: re.compile(r"://|^\s*--(extra-)?index-url|^\s*--find-links"),
    "pyproject.toml": re.compile(r"^\s*\[\[?tool\.(uv\.index|poetry\.source|pdm\.source)"),
    "package-lock.json": re.compile(r'"resolved"\s*:'),
    ".npmrc": re.compile(r"^\s*(@\S+:)?registry\s*="),
}


def addresses() -> Iterator[str]:
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name != "node_modules" and not name.startswith(".")]
        for name in ADDRESS.keys() & names:
            path = Path(folder, name)
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if ADDRESS[name].search(line):
                    yield f"{path.relative_to(ROOT)}:{number}: names a package registry"


def required() -> Iterator[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = [
        project["build-system"]["requires"],
        project["project"]["dependencies"],
        project["project"]["optional-dependencies"]["embedded"],
        project["project"]["optional-dependencies"]["redis"],
        project["dependency-groups"]["dev"],
    ]
    return (Requirement(line) for group in groups for line in group)


def pins(name: str) -> Iterator[tuple[str, str, str]]:
    """The entries of a lock file: name, version and what is wrong with it."""
    for entry in re.split(r"\n(?=\S)", (ROOT / name).read_text()):
        if not (pin := re.match(r"([\w.-]+)==([^\s;\\]+)", entry)) or "--hash=sha256:" not in entry:
            yield "", "", f"{name}: not a pinned and hashed package: {entry.splitlines()[0]}"
        else:
            yield canonicalize_name(pin[1]), pin[2], ""


def gaps() -> Iterator[str]:
    locked, node = list(pins(LOCK)), list(pins(f"tools/{NODE_LOCK}"))
    yield from (wrong for _, _, wrong in locked + node if wrong)
    versions = {name: version for name, version, _ in locked}
    for requirement in required():
        version = versions.get(canonicalize_name(requirement.name))
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            yield f"{LOCK}: pyproject.toml asks for {requirement}, locked is {version or 'none'}; run make lock"


if __name__ == "__main__":
    sys.exit("\n".join([*addresses(), *gaps()]) or None)

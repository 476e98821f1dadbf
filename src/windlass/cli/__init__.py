"""The command line: the composition root, the only place that wires the rooms together."""

from windlass.cli.main import main

__all__ = ["main"]

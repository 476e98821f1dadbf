"""The App that the built-in types are declared on, and what they need of the process they run in.

The settings are read from the environment when the first job asks for them, and once: a worker that runs none of these
types needs none of their settings, and loads none of their libraries.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from windlass import App
from windlass.config import JobsConfig, load

if TYPE_CHECKING:
    from windlass.jobs.egress import Egress

app: Final = App("jobs")


@dataclass(frozen=True, slots=True)
class Means:
    """The settings, and the way out to the network."""

    config: JobsConfig
    egress: "Egress"


_given: list[Means] = []


def means() -> Means:
    """What the jobs of this process run with."""
    return _given[-1] if _given else _read()


@contextmanager
def using(given: Means) -> Iterator[None]:
    """Have them run with these instead, for the length of the block: for programs that run jobs by themselves."""
    _given.append(given)
    try:
        yield
    finally:
        _given.remove(given)


@cache
def _read() -> Means:
    from windlass.jobs.egress import Egress  # noqa: PLC0415 - the HTTP library costs 100 ms

    config = load(os.environ, read=lambda path: Path(path).read_text(encoding="utf-8")).jobs
    return Means(config, Egress.of(config))

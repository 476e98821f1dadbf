"""A progress bar on stderr, on terminals only: logs and pipes are spared it."""

import sys
from types import TracebackType
from typing import Any, Self


class Bar:
    """How far something has come. `total` None: nobody knows how much it is."""

    def __init__(self, what: str, total: int | None) -> None:
        self._what = what
        self._total = total
        self._progress: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console  # noqa: PLC0415 - nobody else needs it
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._progress.start()
            self._task = self._progress.add_task(self._what, total=self._total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def advance(self, by: int = 1) -> None:
        if self._progress is not None:
            self._progress.update(self._task, advance=by)

    def at(self, done: int) -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=done)

"""The jobs that the benchmarks run."""

from windlass import App
from windlass.clock import steady_s

app = App()


@app.job
async def noop(to: str, order: int, lines: list[int]) -> None:
    """Nothing, with the payload of every other benchmark."""


@app.job
def plain(to: str, order: int, lines: list[int]) -> None:
    """The same in a thread."""


@app.job
async def stamp(sent_s: float) -> float:
    """How long it took from before the submission to here, by the clock that all processes share."""
    return steady_s() - sent_s

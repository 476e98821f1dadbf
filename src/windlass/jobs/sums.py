"""large_array_sum: a job that is wider than one thread.

The numbers are those of the payload, or made on the spot: a range (`count`, `start`), or random ones (`count`, `seed`).
They are made and added block by block, so that twenty million of them need the memory of one block a thread, and the
blocks are the same however many threads share them: so is the sum. numpy lets go of the interpreter while it works.
"""

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

from msgspec import Meta

from windlass import Context, Fail, Stopped
from windlass.jobs.home import app

_block: Final = 1 << 18  # fits a processor's cache: two threads take 24 ms for 20 million, one takes 45
_start_max: Final = 1 << 40  # a block of such numbers is still added without overflow
_count_max: Final = 10_000_000_000
_drawn_below: Final = 1 << 32  # all bits of a draw: half the work of any other bound

Count = Annotated[int, Meta(ge=0, le=_count_max)]
Start = Annotated[int, Meta(ge=-_start_max, le=_start_max)]
Seed = Annotated[int, Meta(ge=0, le=(1 << 62))]


@app.job(threads=2, timeout=600, max_attempts=3)
def large_array_sum(
    ctx: Context,
    numbers: list[int | float] | None = None,
    count: Count | None = None,
    start: Start = 0,
    seed: Seed | None = None,
) -> dict[str, Any]:
    """Sum many numbers on all threads the job was given: `numbers`; or `count` whole numbers from `start` on; or `count`
    random ones below 2^32 made from `seed`. Whole numbers are added exactly."""
    if (numbers is None) == (count is None):
        raise Fail("say either numbers or count")
    if numbers is not None:
        size, total = len(numbers), _sum_given(ctx, numbers)
    else:
        size = count or 0
        blocks = range(math.ceil(size / _block))
        parts = ctx.map_chunks(lambda some: _sum_blocks(ctx, some, size, start, seed), blocks)
        total = sum(parts)
    if isinstance(total, float) and not math.isfinite(total):
        raise Fail("the sum is beyond what a number with a fraction can hold")
    return {"sum": total, "count": size, "threads": ctx.threads}


def _sum_given(ctx: Context, numbers: list[int | float]) -> int | float:
    if all(type(number) is int for number in numbers):
        whole: int = ctx.map_chunks(_sum_whole, numbers, combine=sum)
        return whole
    try:
        return math.fsum(numbers)  # rounded once: by chunks the sum would depend on how many threads took part
    except OverflowError:
        return math.inf


def _sum_whole(numbers: Sequence[int]) -> int:
    """Exactly, of any length: by numpy where nothing can overflow."""
    import numpy as np  # noqa: PLC0415

    try:
        array = np.array(numbers, dtype=np.int64)
    except OverflowError:
        return sum(numbers)
    most = max(abs(int(array.max(initial=0))), abs(int(array.min(initial=0))))
    return int(array.sum()) if most * len(array) < 1 << 63 else sum(numbers)


def _sum_blocks(ctx: Context, blocks: range, count: int, start: int, seed: int | None) -> int:
    make = _ranged(start) if seed is None else _drawn(seed)
    total = 0
    for n in blocks:
        if ctx.cancelled:
            raise Stopped
        total += int(make(n, min(_block, count - n * _block)).sum())
    return total


def _ranged(start: int) -> Callable[[int, int], Any]:
    import numpy as np  # noqa: PLC0415

    def make(block: int, size: int) -> Any:
        first = start + block * _block
        return np.arange(first, first + size, dtype=np.int64)

    return make


def _drawn(seed: int) -> Callable[[int, int], Any]:
    import numpy as np  # noqa: PLC0415

    def make(block: int, size: int) -> Any:
        # A generator a block, not one for all: whoever takes the block draws the same numbers.
        return np.random.default_rng([seed, block]).integers(_drawn_below, size=size, dtype=np.uint32)

    return make

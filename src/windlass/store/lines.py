"""Which queues there are, for those who serve queues by pattern: found in the index that claims use, a page at a time.

A line is a queue and a width (thread demand) of which jobs are ready. A page costs one index probe for each line and for each
queue of others in between, `page_steps` at most (a probe takes about 5 µs), however many jobs and queues there are. Pages go
round: each begins behind the last line of the one before, and after the last line at the first again. So of N lines each is
looked at once in every N / page_steps pages, and no queue is left out for long.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from windlass.model import thread_demand_max
from windlass.store.postgres import Postgres

page_steps: Final = 256


class Line(NamedTuple):
    queue: str
    demand: int


BEFORE_ALL: Final = Line("", 0)


class LinePage(NamedTuple):
    """`lowest`: each line with the lowest rank in it. `end`: where the next page begins; BEFORE_ALL after the last line."""

    lowest: dict[Line, int]
    end: Line


async def page_of_lines(
    postgres: Postgres,
    prefixes: Sequence[str],
    after: Line = BEFORE_ALL,
    *,
    widest: int = thread_demand_max,
    steps: int = page_steps,
) -> LinePage:
    """The next lines whose queues begin with one of these prefixes."""
    rows = await postgres.fetch("ready_lines", prefixes, *after, min(widest, thread_demand_max), steps)
    lowest = {Line(queue, demand): rank for queue, demand, rank, wanted in rows if wanted}
    return LinePage(lowest, Line(rows[-1][0], rows[-1][1]) if len(rows) == steps else BEFORE_ALL)

"""Rollups in the store: workers record, the leader folds, charts read."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import asyncpg

from windlass.errors import InvalidQuery
from windlass.rollups import Tally, added
from windlass.store.postgres import Postgres
from windlass.store.protocol import Points, SeriesData

PAIRS_MAX: Final = 100
_MINUTE_S: Final = 60
_HOUR_S: Final = 3_600
span_s_max: Final = 60 * 86_400
# By the longest span they are for: the step of the points, and that of the rows they are made of.
_STEPS: Final = (
    (3_600, 60, _MINUTE_S),
    (6 * 3_600, 300, _MINUTE_S),
    (86_400, 900, _MINUTE_S),
    (2 * 86_400, 1_800, _MINUTE_S),
    (7 * 86_400, _HOUR_S, _HOUR_S),
    (span_s_max, 6 * 3_600, _HOUR_S),
)


async def record(postgres: Postgres, tallies: Mapping[tuple[str, str], Tally]) -> None:
    """Append what a worker has counted."""
    rows = [
        {"queue": queue, "type": type_, "retried": each.retried, "waited": each.waited, "ran": each.ran}
        for (queue, type_), each in tallies.items()
    ]
    if rows:
        await postgres.fetch("record_rollups", json.dumps(rows))


async def read(
    postgres: Postgres, *, span_s: float, by: str | None = None, queue: str | None = None, type_: str | None = None
) -> SeriesData:
    """The newest `span_s` seconds. With `by`, a line for each queue or type, without durations."""
    if not 60 <= span_s <= span_s_max:
        raise InvalidQuery("seconds", f"must be from 60 to {span_s_max:,}")
    step_s, row_s = next((step, row) for longest, step, row in _STEPS if span_s <= longest)
    count = max(1, round(span_s / step_s))
    start: datetime = (await postgres.fetch("series_start", step_s, count))[0]["start"]
    if by is not None:
        rows = await postgres.fetch("series_by", row_s, step_s, by, start)
        named: dict[str | None, Points] = {}
        for row in rows:
            _add(named.setdefault(row["name"], _empty(count)), row, count)
        return SeriesData(start, step_s, count, named)
    points = _empty(count)
    histograms: dict[str, list[list[list[int]]]] = {name: [[] for _ in range(count)] for name in ("waited", "ran")}
    if queue is None and type_ is not None:
        rows = await postgres.fetch("series_of_type", row_s, step_s, type_, start)
    else:
        rows = await postgres.fetch("series", row_s, step_s, queue or "", type_, start)
    for row in rows:
        _add(points, row, count)
        if 0 <= row["n"] < count:
            for name, found in histograms.items():
                found[row["n"]].append(row[name] or [])
    points.waited, points.ran = ([added(each) for each in histograms[name]] for name in ("waited", "ran"))
    return SeriesData(start, step_s, count, {None: points})


def _empty(count: int) -> Points:
    return Points([0] * count, [0] * count, [0] * count, [0] * count, [], [])


def _add(points: Points, row: asyncpg.Record, count: int) -> None:
    at: int = row["n"]
    if 0 <= at < count:  # a row of the step that began while we read
        points.completed[at] += row["completed"]
        points.failed[at] += row["failed"]
        points.cancelled[at] += row["cancelled"]
        points.retried[at] += row["retried"]

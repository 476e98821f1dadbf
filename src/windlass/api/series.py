"""GET /v1/series: what charts show, from the rollups that the leader keeps."""

from typing import Final

from windlass.api.endpoint import Call, Endpoint
from windlass.rollups import percentile
from windlass.store.protocol import Points
from windlass.wire import Series, SeriesGroup, SeriesQuery


async def series(call: Call) -> Series:
    asked: SeriesQuery = call.query
    data = await call.parts.views.series(span_s=asked.seconds, by=asked.by, queue=asked.queue, type_=asked.type)
    groups = [
        _group(
            points,
            queue=name if asked.by == "queue" else asked.queue,
            type_=name if asked.by == "type" else asked.type,
        )
        for name, points in sorted(data.points.items(), key=lambda item: item[0] or "")
    ]
    return Series(start=data.start, step_s=data.step_s, groups=groups)


def _group(points: Points, *, queue: str | None, type_: str | None) -> SeriesGroup:
    def percentiles(histograms: list[list[int]], share: float) -> list[float | None]:
        found = (percentile(each, share) for each in histograms)
        return [None if value is None else float(f"{value:.3g}") for value in found]

    return SeriesGroup(
        queue=queue,
        type=type_,
        completed=points.completed,
        failed=points.failed,
        cancelled=points.cancelled,
        retried=points.retried,
        queue_p50_s=percentiles(points.waited, 0.5),
        queue_p95_s=percentiles(points.waited, 0.95),
        queue_p99_s=percentiles(points.waited, 0.99),
        execution_p50_s=percentiles(points.ran, 0.5),
        execution_p95_s=percentiles(points.ran, 0.95),
        execution_p99_s=percentiles(points.ran, 0.99),
    )


endpoints: Final = [
    Endpoint(
        *("GET", "/v1/series", "read", series),
        summary="Show what has happened over time",
        description="For charts: counts and percentiles by step, up to now. The step follows from the span: a minute for an hour, "
        "an hour for a week. Minutes are kept for two days, hours for sixty. A few seconds behind; of more than 100 pairs of queue and "
        "type in a step, the busiest are kept apart and the rest is in the total alone.",
        tag="cluster",
        answers={200: Series},
        query=SeriesQuery,
    ),
]

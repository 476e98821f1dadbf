"""What has happened over time."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

from windlass.wire.base import Asked, QueueName, Told, TypeName


class SeriesQuery(Asked):
    """Which span, up to now; of everything, of one queue or type, or a line for each."""

    seconds: Annotated[int, Meta(ge=60, le=5_184_000, description="the length of the span, in seconds")] = 3_600
    by: Literal["queue", "type"] | None = None
    queue: QueueName | None = None
    type: TypeName | None = None


class SeriesGroup(Told):
    """One line: for each step, how many jobs completed, failed for good and were cancelled, how many attempts are tried again,
    and percentiles of the time until pickup and of the run time, in seconds. With `by` the percentiles are left out."""

    queue: str | None
    type: str | None
    completed: list[int]
    failed: list[int]
    cancelled: list[int]
    retried: list[int]
    queue_p50_s: list[float | None]
    queue_p95_s: list[float | None]
    queue_p99_s: list[float | None]
    execution_p50_s: list[float | None]
    execution_p95_s: list[float | None]
    execution_p99_s: list[float | None]


class Series(Told):
    """Points from `start` on, one every `step_s` seconds; the last step is not over."""

    start: datetime
    step_s: int
    groups: list[SeriesGroup]

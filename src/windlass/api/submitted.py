"""Jobs just submitted, into the cache of unfinished jobs: after the commit, in the shape they are shown in.

What is kept is what the commit has stored. A worker that begins a job voids what is kept of it, also what comes late.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from windlass.api.job_shapes import job_told
from windlass.api.parts import Parts
from windlass.model import Enqueued, Job, NewJob, RetryPolicy, Status
from windlass.payload import encode
from windlass.wire import encode as encode_told

few: Final = 500  # of a larger batch none is kept: it would hold up all other requests
_chars_max: Final = 16_384


def cache_submitted(parts: Parts, jobs: Iterable[tuple[NewJob, Enqueued]], *, read_s: float) -> None:
    """Keep new jobs for a moment. `read_s`: a time before they were stored (`steady_s`)."""
    cache = parts.shortcuts.jobs
    if not cache.usable:
        return
    for job, stored in jobs:
        # A worker has been woken by the same commit, or runs it already.
        if stored.duplicate or stored.woken or stored.created_at is None:
            continue
        payload = encode(job.payload, bytes_max=parts.config.store.payload_bytes_max)
        if len(payload) <= _chars_max:
            shown = encode_told(job_told(as_stored(job, stored, stored.created_at, payload), whole=True))
            cache.keep(stored.id, shown, read_s=read_s)


def as_stored(job: NewJob, stored: Enqueued, created_at: datetime, payload: str) -> Job:
    """The job as it would be read back right after its commit. `payload`: as JSON text."""
    due = created_at + timedelta(seconds=job.delay_s) if job.delay_s else job.scheduled_at
    due = None if due is None else due.astimezone(UTC)
    later = due is not None and due > created_at
    return Job(
        id=stored.id,
        type=job.type,
        status=Status.SCHEDULED if later else Status.READY,
        reason=None,
        name=job.name,
        queue=job.queue,
        priority=job.priority,
        thread_demand=job.thread_demand,
        threads_granted=None,
        max_attempts=job.max_attempts,
        timeout_s=float(job.timeout_s),
        retry=None if job.retry is None else RetryPolicy(*map(float, job.retry)),
        if_too_wide=job.if_too_wide,
        trace=job.trace,
        tags=tuple(job.tags),
        idempotency_key=job.idempotency_key,
        created_at=created_at,
        scheduled_at=due,
        ready_at=due if later else created_at,
        started_at=None,
        finished_at=None,
        attempt=0,
        failures=0,
        worker_id=None,
        cancel_requested=False,
        result=None,
        error=None,
        queue_s=None,
        execution_s=None,
        total_s=None,
        payload=payload,
    )

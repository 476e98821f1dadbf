"""Jobs as they are told: from the values of the store to the shapes of the wire, without what looks like a secret."""

from collections.abc import Sequence

from msgspec import Raw

from windlass import explanation, model, quotas
from windlass.masking import masked, masked_text
from windlass.model import Status, statuses_named
from windlass.store.protocol import JobQuery, Page, RunningLog
from windlass.wire import (
    Attempt,
    Explanation,
    Fault,
    Filter,
    Job,
    Jobs,
    Log,
    Obstacle,
    QuotaUse,
    Retry,
    SubmitterUse,
    Traits,
)


def job_told(job: model.Job, *, whole: bool = False) -> Job:
    """`whole`: with its payload and result, which lists leave out."""
    return Job(
        id=job.id,
        type=job.type,
        status=job.status.value,
        reason=_text_told(job.reason),
        name=job.name,
        queue=job.queue,
        priority=job.priority,
        thread_demand=job.thread_demand,
        threads_granted=job.threads_granted,
        attempts=job.attempt,
        failures=job.failures,
        max_attempts=job.max_attempts,
        timeout_s=job.timeout_s,
        retry=None if job.retry is None else Retry(**job.retry._asdict()),
        if_too_wide=job.if_too_wide,
        tags=list(job.tags),
        idempotency_key=job.idempotency_key,
        created_at=job.created_at,
        updated_at=job.updated_at,
        scheduled_at=job.scheduled_at,
        ready_at=job.ready_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        queue_s=job.queue_s,
        execution_s=job.execution_s,
        total_s=job.total_s,
        worker_id=job.worker_id,
        cancel_requested=job.cancel_requested,
        progress=job.progress,
        progress_note=_text_told(job.progress_note),
        error=fault_told(job.error),
        next_try_at=job.next_try_at,
        expires_at=job.expires_at,
        payload=shown(job.type, job.payload) if whole else None,
        result=shown(job.type, job.result) if whole else None,
    )


def shown(type_: str, text: str | None) -> Raw | None:
    """JSON text, number for number as it is stored, but for secrets."""
    return None if text is None else Raw(masked(type_, text).encode())


def _text_told(text: str | None) -> str | None:
    return None if text is None else masked_text(text)


def fault_told(error: model.Error | None) -> Fault | None:
    if error is None:
        return None
    return Fault(type=error.type, message=masked_text(error.message), traceback=masked_text(error.traceback))


def page_told(page: Page) -> Jobs:
    return Jobs(jobs=[job_told(job) for job in page.jobs], next_cursor=page.next_cursor)


def attempt_told(attempt: model.Attempt) -> Attempt:
    return Attempt(
        attempt=attempt.attempt,
        status=attempt.status,
        worker_id=attempt.worker_id,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        error=fault_told(attempt.error),
    )


def log_told(attempt: model.Attempt) -> Log:
    return Log(attempt=attempt.attempt, text=masked_text(attempt.log or ""))


def running_log_told(log: RunningLog) -> Log:
    return Log(attempt=log.attempt, text=masked_text(log.text), running=True)


def explanation_told(found: explanation.Explanation) -> Explanation:
    return Explanation(
        id=found.job_id,
        status=found.status.value,
        summary=masked_text(found.summary),  # it quotes errors
        obstacles=[Obstacle(code=one.code, detail=masked_text(one.detail), cure=one.cure) for one in found.obstacles],
        ahead=found.ahead,
        workers_able=found.workers_able,
        workers_free=found.workers_free,
        submitter=submitter_told(found.submitter),
    )


def submitter_told(use: quotas.SubmitterUse | None) -> SubmitterUse | None:
    if use is None:
        return None
    return SubmitterUse(subject=use.subject, quotas=quotas_told(use.quotas))


def quotas_told(uses: Sequence[quotas.QuotaUse]) -> list[QuotaUse]:
    return [QuotaUse(**each._asdict()) for each in uses]


def query_of(
    wanted: Traits,
    *,
    statuses: Sequence[Status] | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> JobQuery:
    """What a filter asks the store for; `statuses` instead of those it names."""
    named = wanted.status if isinstance(wanted, Filter) else []
    return JobQuery(
        statuses=statuses_named(named) if statuses is None else statuses,
        type=wanted.type,
        queue=wanted.queue,
        tag=wanted.tag,
        created_after=wanted.created_after,
        created_before=wanted.created_before,
        cursor=cursor,
        limit=limit,
        finished_after=wanted.finished_after,
        finished_before=wanted.finished_before,
        fingerprint=wanted.fingerprint,
        worker=wanted.worker,
        text=wanted.text,
        reason=wanted.reason if isinstance(wanted, Filter) else None,
    )

"""Rows as people see them: a job, an error, the threads of workers, and the facts that explain why a job waits."""

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from asyncpg import Record

from windlass.explanation import Facts, Hand
from windlass.lifecycle import retry_policy
from windlass.model import FINISHED, Error, Job, Queue, Status, ThreadState
from windlass.quotas import Submitter, SubmitterUse, Use, quota_uses
from windlass.store.protocol import ThreadUse, WorkerThreads


def to_job(row: Record, dead_letters_kept_s: float | None = None) -> Job:
    """`dead_letters_kept_s`: how long a failed job is kept; None: for ever."""
    fields: dict[str, Any] = dict(row)
    fields["status"] = Status(row["status"])
    fields["retry"] = retry_policy(row["retry"]) if row["retry"] else None
    fields["tags"] = tuple(row["tags"] or ())
    fields["error"] = to_error(row["error"])
    if fields["status"] is Status.FAILED and dead_letters_kept_s is not None:
        fields["expires_at"] = row["finished_at"] + timedelta(seconds=dead_letters_kept_s)
    return Job(**fields)


def to_queue(row: Record, served_by: int) -> Queue:
    """Ready jobs that no worker may claim, of a paused queue or an unknown type, are shown as held."""
    stuck = row["ready"] if row["paused"] else row["unknown"]
    counts = {status: row[status.value] for status in Status}
    counts[Status.READY] -= stuck
    counts[Status.HELD] += stuck
    some = {status: n for status, n in counts.items() if n}
    return Queue(row["name"], row["paused"], row["ready"], row["oldest_age_s"], some, served_by)


def to_thread_map(rows: Iterable[Record]) -> list[WorkerThreads]:
    """One entry per worker. A worker says how many threads are lost, not to which jobs: to those that were to stop, oldest first."""
    workers: dict[UUID, WorkerThreads] = {}
    lost: dict[UUID, int] = {}
    for row in rows:
        of: UUID = row["worker_id"]
        worker = workers.setdefault(of, WorkerThreads(of, row["claimed"], row["memory_bytes"], []))
        if row["job_id"] is None:  # it runs nothing
            continue
        stuck = row["overdue"] and lost.setdefault(of, row["lost_threads"]) >= row["threads"]
        if stuck:
            lost[of] -= row["threads"]
        state: ThreadState = "stuck" if stuck else "isolated" if row["isolated"] else "running"
        worker.running.append(
            ThreadUse(row["job_id"], row["type"], row["name"], row["threads"], state, row["claimed_at"])
        )
    return list(workers.values())


def to_error(text: str | None) -> Error | None:
    if text is None:
        return None
    document = json.loads(text)
    return Error(document["type"], document["message"], document.get("traceback") or "")


def facts(job: Job, standing: Record, hands: Iterable[Record]) -> Facts:
    return Facts(
        job=job,
        paused=standing["paused"],
        set_aside=standing["place"] == "held",
        thread_demand=standing["thread_demand"] or job.thread_demand,
        age_s=_age_s(job, standing),
        ended=standing["ended"],
        error=to_error(standing["error"]),
        led=standing["led"],
        ahead=standing["ahead"],
        hands=[Hand(*row) for row in hands],
        undecided=tuple(standing["undecided"]),
    )


def submitter_use(row: Record | None) -> SubmitterUse | None:
    """The quotas that a job counts against; None: it counts against none."""
    if row is None:
        return None
    *said, waiting, threads = row
    submitter = Submitter(*said)
    return SubmitterUse(submitter.subject, tuple(quota_uses(submitter, Use(waiting, threads))))


def _age_s(job: Job, standing: Record) -> float:
    if standing["due_s"] is not None:
        return float(standing["due_s"])
    now: datetime = standing["at"]
    since = job.finished_at if job.status in FINISHED else job.started_at
    return (now - (since or job.created_at)).total_seconds()

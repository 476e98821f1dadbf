"""The cluster as it is told: from the values of the store to the shapes of the wire."""

from collections.abc import Callable, Iterable, Sequence
from heapq import nsmallest
from typing import Final, TypeVar

from windlass.model import Queue, Status, Worker
from windlass.store.protocol import DeadLetterSize, Summary, WorkerThreads
from windlass.wire import DeadLetterTotals, Line, Page, Queues, Stats, ThreadMap, ThreadUse, Workers, WorkerStatus
from windlass.wire import Queue as QueueTold
from windlass.wire import Worker as WorkerTold
from windlass.wire import WorkerThreads as WorkerThreadsTold

T = TypeVar("T")

lines_max: Final = 1000
FIRST: Final = Page()


def stats_told(summary: Summary, size: DeadLetterSize | None = None, undecided: int | None = None) -> Stats:
    statuses = {status.value: count for status, count in summary.statuses.items()}
    total = sum(statuses.values())
    lines = [
        Line(queue=queue, type=type_, status=status.value, count=count)
        for (queue, type_, status), count in sorted(summary.lines.items())
    ]
    return Stats(
        total=total,
        statuses=statuses,
        lines=lines,
        complete=len(lines) < lines_max or sum(line.count for line in lines) == total,
        dead_letters=None if size is None else _dead_letters_told(statuses[Status.FAILED.value], size),
        needs_decision=undecided,
    )


def _dead_letters_told(count: int, size: DeadLetterSize) -> DeadLetterTotals:
    return DeadLetterTotals(
        count=count,
        oldest_at=size.oldest_at,
        approximate_bytes=round(count * size.bytes_per_job),
        retention_days=size.retention_days or None,
    )


def paged(items: Iterable[T], page: Page, key: Callable[[T], str]) -> tuple[list[T], str | None]:
    """One part of a list, and where the next begins."""
    wanted = ((key(item), item) for item in items)
    found = nsmallest(page.limit + 1, (each for each in wanted if page.cursor is None or each[0] > page.cursor), _first)
    return [item for _, item in found[: page.limit]], found[page.limit - 1][0] if len(found) > page.limit else None


def _first(pair: tuple[str, object]) -> str:
    return pair[0]


def queues_told(queues: Sequence[Queue], limit: int = FIRST.limit) -> Queues:
    """A page from its queues, and one more if others follow."""
    cursor = queues[limit - 1].name if len(queues) > limit else None
    return Queues(queues=[queue_told(queue) for queue in queues[:limit]], next_cursor=cursor)


def workers_told(workers: Iterable[Worker], page: Page = FIRST) -> Workers:
    some, cursor = paged(workers, page, _place)
    return Workers(workers=[worker_told(worker) for worker in some], next_cursor=cursor)


def queue_told(queue: Queue) -> QueueTold:
    return QueueTold(
        name=queue.name,
        paused=queue.paused,
        depth=queue.depth,
        oldest_age_s=queue.oldest_age_s,
        statuses={status.value: count for status, count in sorted(queue.counts.items()) if count},
        served_by=queue.served_by,
    )


def worker_told(worker: Worker) -> WorkerTold:
    return WorkerTold(
        id=worker.id,
        name=worker.name,
        status=_status(worker),
        threads=worker.threads,
        busy_threads=worker.busy_threads,
        lost_threads=worker.lost_threads,
        jobs=worker.jobs,
        queues=list(worker.queues),
        types=list(worker.types),
        supervisor_id=worker.supervisor_id,
        started_at=worker.started_at,
        renewed_at=worker.renewed_at,
        died_at=worker.died_at,
        reserved_for=worker.reserved_for,
        claimed=worker.claimed,
        version=worker.version,
        memory_bytes=worker.memory_bytes,
    )


def thread_map_told(workers: Iterable[WorkerThreads]) -> ThreadMap:
    return ThreadMap(workers=[_threads_told(worker) for worker in workers])


def _threads_told(worker: WorkerThreads) -> WorkerThreadsTold:
    return WorkerThreadsTold(
        id=worker.id,
        claimed=worker.claimed,
        memory_bytes=worker.memory_bytes,
        running=[
            ThreadUse(
                job_id=use.job_id,
                type=use.type,
                name=use.name,
                threads=use.threads,
                state=use.state,
                started_at=use.started_at,
            )
            for use in worker.running
        ],
    )


def _place(worker: Worker) -> str:
    """Where it stands in the list: the living first, each kind by when it started."""
    return f"{'living' if worker.died_at is None else 'past'} {worker.started_at.isoformat()} {worker.id}"


def _status(worker: Worker) -> WorkerStatus:
    if not worker.alive:
        return "stopped" if worker.stopped else "dead"
    if worker.draining:
        return "draining"
    return "busy" if worker.jobs else "idle"

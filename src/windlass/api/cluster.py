"""The cluster: exact counts, queues with pause and resume, declared types."""

from typing import Final

from msgspec import Raw

from windlass.api.cluster_shapes import lines_max, paged, queue_told, queues_told, stats_told
from windlass.api.endpoint import Call, Endpoint
from windlass.model import KnownType, RetryPolicy
from windlass.wire import JobType, JobTypes, Page, Queue, Queues, Retry, Stats


async def stats(call: Call) -> Stats:
    views = call.parts.views
    return stats_told(
        await views.summary(lines=lines_max), await views.dead_letter_size(), await views.count_undecided()
    )


async def queues(call: Call) -> Queues:
    page: Page = call.query
    found = await call.parts.views.queues(after=page.cursor or "", limit=page.limit + 1)
    return queues_told(found, page.limit)


async def types(call: Call) -> JobTypes:
    some, cursor = paged(await call.parts.views.types(), call.query, lambda known: known.declared.name)
    return JobTypes(types=[_type_told(known) for known in some], next_cursor=cursor)


async def pause(call: Call) -> Queue:
    return await _set_paused(call, paused=True)


async def resume(call: Call) -> Queue:
    return await _set_paused(call, paused=False)


async def _set_paused(call: Call, *, paused: bool) -> Queue:
    """A queue that has had no job yet can be paused, too: before the first one comes."""
    name = call.path["name"]
    await call.parts.intake.set_paused(name, paused=paused)
    return queue_told(await call.parts.views.queue(name))


def _type_told(known: KnownType) -> JobType:
    declared = known.declared
    return JobType(
        name=declared.name,
        queue=declared.queue,
        priority=declared.priority,
        thread_demand=declared.thread_demand,
        max_attempts=declared.max_attempts,
        timeout_s=declared.timeout_s,
        retry=Retry(**(declared.retry or RetryPolicy())._asdict()),
        tags=list(declared.tags),
        if_too_wide=declared.if_too_wide,
        isolation=declared.isolation,
        at_most_once=declared.at_most_once,
        alive=known.alive,
        versions=known.versions,
        served_by=known.served_by,
        description=declared.description,
        payload_schema=None if declared.schema is None else Raw(declared.schema.encode()),
    )


_TAG: Final = "cluster"

endpoints: Final = [
    Endpoint(
        *("GET", "/v1/stats", "read", stats),
        summary="Count jobs by queue, type and status",
        description="The counts are exact, however many jobs there are. What the dead letters take on disk is an estimate.",
        tag=_TAG,
        answers={200: Stats},
    ),
    Endpoint(
        *("GET", "/v1/queues", "read", queues),
        summary="List queues",
        description="Every queue that has jobs or settings, with its depth, the age of the oldest job that is due, and how many "
        "workers claim from it.",
        tag=_TAG,
        query=Page,
        answers={200: Queues},
    ),
    Endpoint(
        *("POST", "/v1/queues/{name}/pause", "operate", pause),
        summary="Pause a queue",
        description="No more jobs are claimed from it; what runs goes on, and nothing is lost. May be repeated.",
        tag=_TAG,
        answers={200: Queue},
        audit="queue.pause",
    ),
    Endpoint(
        *("POST", "/v1/queues/{name}/resume", "operate", resume),
        summary="Resume a queue",
        description="Its jobs are claimed again, in the order they had. May be repeated.",
        tag=_TAG,
        answers={200: Queue},
        audit="queue.resume",
    ),
    Endpoint(
        *("GET", "/v1/types", "read", types),
        summary="List job types",
        description="Every type a worker has declared: its defaults and, where it is known, the schema of its payload. "
        "`alive`: some living worker knows it. `served_by`: how many of these claim from its queue; 0: its jobs wait. `versions`: "
        "how many different declarations living workers have.",
        tag=_TAG,
        query=Page,
        answers={200: JobTypes},
    ),
]

"""Workers: the list, which job holds which of their threads, and asking one to drain or to stop."""

from typing import Final
from uuid import UUID

from windlass.api.cluster_shapes import thread_map_told, worker_told, workers_told
from windlass.api.endpoint import Call, Endpoint
from windlass.errors import WorkerNotFound
from windlass.model import Leave
from windlass.wire import Page, ThreadMap, Worker, Workers


async def workers(call: Call) -> Workers:
    return workers_told(await call.parts.views.workers(), call.query)


async def threads(call: Call) -> ThreadMap:
    return thread_map_told(await call.parts.views.thread_map())


async def drain(call: Call) -> Worker:
    return await _ask_to_leave(call, "drain")


async def stop(call: Call) -> Worker:
    return await _ask_to_leave(call, "stop")


async def _ask_to_leave(call: Call, how: Leave) -> Worker:
    worker_id = _id(call)
    await call.parts.intake.ask_to_leave(worker_id, how)
    worker = await call.parts.views.worker(worker_id)
    call.note = (str(worker_id), {"name": worker.name})
    return worker_told(worker)


def _id(call: Call) -> UUID:
    """The worker that the path names. What is no UUID names no worker: 404, as for one that is forgotten."""
    try:
        return UUID(call.path["id"])
    except ValueError:
        raise WorkerNotFound(call.path["id"][:64]) from None


_TAG: Final = "cluster"

endpoints: Final = [
    Endpoint(
        *("GET", "/v1/workers", "read", workers),
        summary="List workers",
        description="The living first, with what each runs now; then, for a day, those that have `stopped` as they were told and "
        "those that are `dead`.",
        tag=_TAG,
        query=Page,
        answers={200: Workers},
    ),
    Endpoint(
        *("GET", "/v1/workers/threads", "read", threads),
        summary="Show which job holds which threads",
        description="The living workers, oldest first, each with the jobs that hold its threads, in the order in which they were "
        "claimed, and how many more it has claimed and not begun. At most 200 workers and 4,096 jobs.",
        tag=_TAG,
        answers={200: ThreadMap},
    ),
    Endpoint(
        *("POST", "/v1/workers/{id}/drain", "operate", drain),
        summary="Let a worker finish its jobs and go",
        description="It claims no more jobs, finishes those that run, and ends. Its supervisor starts no other in its place, and "
        "ends with its last worker. May be repeated.",
        tag=_TAG,
        answers={200: Worker},
        problems=(404, 409),
        audit="worker.drain",
    ),
    Endpoint(
        *("POST", "/v1/workers/{id}/stop", "operate", stop),
        summary="Restart a worker",
        description="It gives the jobs that run back at once: they start again, here or elsewhere, and no attempt is used up. Its "
        "supervisor starts another in its place, unless it was drained before. May be repeated.",
        tag=_TAG,
        answers={200: Worker},
        problems=(404, 409),
        audit="worker.stop",
    ),
]

"""Wait for a job over HTTP: look often at first, for most jobs take milliseconds; then listen to the stream of changes.

The stream is a hint and the look is the truth: what a stream misses, or a server without room for another one, costs
time and nothing else.
"""

import asyncio
import math
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from typing import Any, Final
from uuid import UUID

import msgspec

from windlass import wire
from windlass.clock import steady_s
from windlass.errors import JobCancelled, JobFailed, RequestError, ResultNotStored, Unavailable
from windlass.model import FINISHED
from windlass.sdk import asks
from windlass.sdk.asks import Job
from windlass.sdk.exchange import Exchange

_FIRST_LOOK_S: Final = 0.02
_EAGER_S: Final = 0.6
_LOOK_S_MAX: Final = 1.0
_LAST_LOOK_S: Final = 1.0  # what a look may take when there is hardly any time left
_SILENCE_S: Final = 40.0  # of a stream that says something every 15 s
_ENDS: Final = frozenset(status.value for status in FINISHED)
_ENDS_AND_HELD: Final = _ENDS | {"held"}


async def finished(
    exchange: Exchange, job_id: UUID, timeout_s: float | None, on_held: Callable[[Job], None] | None = None
) -> Job:
    """The job, once it is finished. Raises TimeoutError when that takes too long; the job itself goes on. `on_held` is
    called once with the job, when it is first seen to be held."""
    began_s = steady_s()
    ends_s = math.inf if timeout_s is None else began_s + timeout_s
    pause_s = _FIRST_LOOK_S
    while True:
        # An API that does not answer must not make the wait longer than was said.
        look_s = max(_LAST_LOOK_S, ends_s - steady_s())
        job = await exchange.ask(asks.job(job_id, fresh=True), min(look_s, exchange.timeout_s))
        if on_held is not None and job.status == "held":
            on_held(job)
            on_held = None
        if job.status in _ENDS:
            return job
        now_s = steady_s()
        if now_s >= ends_s:
            raise TimeoutError(f"job {job_id} is {job.status} after {timeout_s:g} s")
        if now_s - began_s > _EAGER_S and await _heard_news(
            exchange, job_id, ends_s - now_s, _ENDS if on_held is None else _ENDS_AND_HELD
        ):
            continue
        await asyncio.sleep(max(0.0, min(pause_s, ends_s - steady_s())))
        pause_s = min(_LOOK_S_MAX, pause_s * 1.5)


def result_of(job: Job) -> Any:
    """What it returned, as JSON, or the reason why it did not."""
    if job.status == "failed":
        raise JobFailed(job.id, job.error)
    if job.status == "cancelled":
        raise JobCancelled(job.id, job.error)
    if job.error is not None and job.error.type == ResultNotStored.__name__:
        raise ResultNotStored(job.id, job.error)
    return job.result


async def _heard_news(exchange: Exchange, job_id: UUID, left_s: float, awaited: AbstractSet[str]) -> bool:
    """Whether the stream said that it has one of the awaited statuses, or is gone. False: there is no stream to be had, so
    look instead."""
    try:
        async with asyncio.timeout(None if math.isinf(left_s) else left_s):
            query = (("topic", "jobs"), ("job", str(job_id)))
            async with exchange.stream("/v1/events", query, silence_s=_SILENCE_S) as events, aclosing(events):
                async for event in events:
                    if event.event == "job" and _is_news(event.data, job_id, awaited):
                        return True
    except TimeoutError:
        return True  # the time is up: one last look decides
    except (Unavailable, RequestError):
        pass
    return False


def _is_news(data: str, job_id: UUID, awaited: AbstractSet[str]) -> bool:
    place = msgspec.json.decode(data, type=wire.Place)
    return place.id == job_id and (place.status is None or place.status in awaited)

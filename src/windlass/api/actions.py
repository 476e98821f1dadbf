"""What operators do to jobs: cancel, retry, run now, decide; one by its id, or many that are named or found by a filter."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from windlass.api.endpoint import Call, Endpoint
from windlass.api.job_shapes import query_of
from windlass.errors import InvalidField, WindlassError
from windlass.masking import masked_text
from windlass.model import FINISHED, PENDING, Status, statuses_named
from windlass.wire import BulkAction, BulkResult, Decide, Filter, Moved, Reason, Refused

_SAMPLE: Final = 20
_REFUSED_SHOWN: Final = 100
_REASON: Final = "cancelled on request"


# One. ---------------------------------------------------------------------------------------------------------------


async def cancel(call: Call) -> Moved:
    reason: Reason = call.body
    call.note = (str(call.id), {"reason": masked_text(reason.reason)})
    return _moved(call, await call.parts.intake.cancel(call.id, reason.reason))


async def retry(call: Call) -> Moved:
    return _moved(call, await call.parts.intake.retry(call.id))


async def run_now(call: Call) -> Moved:
    return _moved(call, await call.parts.intake.run_now(call.id))


async def decide(call: Call) -> Moved:
    asked: Decide = call.body
    call.note = (str(call.id), {"decision": asked.decision, **({"effect": asked.effect} if asked.effect else {})})
    return _moved(call, await call.parts.intake.decide(call.id, asked.decision, asked.effect))


def _moved(call: Call, status: Status) -> Moved:
    return Moved(id=call.id, status=status.value)


# Many. --------------------------------------------------------------------------------------------------------------

Answers = Mapping[UUID, Status | WindlassError]
Act = Callable[[Call, Sequence[UUID], frozenset[Status]], Awaitable[Answers]]


@dataclass(frozen=True, slots=True)
class Verb:
    """An action on many. `among`: where a filter that names no status looks. `only`: and where none may look elsewhere.

    `act` is told the statuses that were looked among: a job that has moved on since is left alone, where that can be.
    """

    act: Act
    among: frozenset[Status]
    only: bool = False
    has_reason: bool = False


async def _cancel(call: Call, ids: Sequence[UUID], among: frozenset[Status]) -> Answers:
    running = Status.RUNNING in among  # else what has begun since it was looked for goes on
    return await call.parts.intake.cancel_many(ids, call.body.reason or _REASON, running=running)


async def _retry(call: Call, ids: Sequence[UUID], among: frozenset[Status]) -> Answers:
    return await call.parts.intake.retry_many(ids, among=among & FINISHED)


async def _run_now(call: Call, ids: Sequence[UUID], _among: frozenset[Status]) -> Answers:
    return await call.parts.intake.run_now_many(ids)


CANCEL: Final = Verb(_cancel, PENDING | {Status.RUNNING}, has_reason=True)
RETRY: Final = Verb(_retry, frozenset({Status.FAILED, Status.CANCELLED}))
RUN_NOW: Final = Verb(_run_now, frozenset({Status.SCHEDULED, Status.HELD}))


async def cancel_many(call: Call) -> BulkResult:
    return await act_on_many(call, CANCEL)


async def retry_many(call: Call) -> BulkResult:
    return await act_on_many(call, RETRY)


async def run_now_many(call: Call) -> BulkResult:
    return await act_on_many(call, RUN_NOW)


async def act_on_many(call: Call, verb: Verb) -> BulkResult:
    """Up to 10,000 a call. Each job for itself: one that cannot be acted on is named, and the others are."""
    asked: BulkAction = call.body
    _check(asked, verb)
    among = _among(asked, verb)
    ids, cursor = await _wanted(call, among)
    if asked.preview:
        call.unnoted = True
        return _result(asked, ids, {}, cursor)
    answers = await verb.act(call, ids, among) if ids else {}
    result = _result(asked, ids, answers, cursor)
    said = {
        "filter": None if asked.filter is None else _said(asked.filter),
        "reason": None if asked.reason is None else masked_text(asked.reason),
    }
    call.note = (None, {"matched": result.matched, "done": result.done, **{k: v for k, v in said.items() if v}})
    return result


def _check(asked: BulkAction, verb: Verb) -> None:
    if (asked.ids is None) == (asked.filter is None):
        raise InvalidField("ids", "give ids or a filter, one of them; the filter {} is all jobs the action is for")
    if asked.reason is not None and not verb.has_reason:
        raise InvalidField("reason", "is for cancelling and discarding alone")
    if asked.ids is not None and asked.cursor is not None:
        raise InvalidField("cursor", "goes with a filter")


def _among(asked: BulkAction, verb: Verb) -> frozenset[Status]:
    if asked.filter is None:  # named one by one: wherever the action is possible
        return verb.among if verb.only else frozenset(Status)
    usual = verb.among if asked.filter.reason is None else verb.among & {Status.HELD}
    among = frozenset(statuses_named(asked.filter.status)) or usual
    if verb.only and not among <= verb.among:
        raise InvalidField("filter.status", f"must be {' or '.join(sorted(verb.among))} here, or be left out")
    return among


async def _wanted(call: Call, among: frozenset[Status]) -> tuple[Sequence[UUID], str | None]:
    asked: BulkAction = call.body
    if asked.filter is None:
        ids = list(dict.fromkeys(asked.ids or ()))
        if not asked.preview:
            return ids, None
        there = await call.parts.views.places(ids)
        return [one for one in ids if there.get(one) in among], None
    query = query_of(asked.filter, statuses=sorted(among), cursor=asked.cursor)
    found = await call.parts.views.ids(query, limit=asked.limit)
    return found.ids, found.next_cursor


def _result(
    asked: BulkAction, ids: Sequence[UUID], answers: Mapping[UUID, Status | WindlassError], cursor: str | None
) -> BulkResult:
    refused = [(job_id, answer) for job_id, answer in answers.items() if isinstance(answer, WindlassError)]
    return BulkResult(
        matched=len(ids),
        done=len(answers) - len(refused),
        preview=asked.preview,
        refused=[Refused(code=error.code, detail=str(error), id=job_id) for job_id, error in refused[:_REFUSED_SHOWN]],
        sample=list(ids[:_SAMPLE]),
        next_cursor=cursor,
    )


def _said(asked: Filter) -> dict[str, object]:
    """A filter as it was given, for the audit."""
    fields = {name: getattr(asked, name) for name in asked.__struct_fields__}
    return {name: value if isinstance(value, list) else str(value) for name, value in fields.items() if value}


_TAG: Final = "jobs"
_MANY: Final = (
    "Those that `ids` names, or that `filter` finds; with `preview` nothing is done, only counted. Up to 10,000 a call: "
    "while there is a `next_cursor`, call again with it. Of jobs that were refused the first 100 are named."
)

endpoints: Final = [
    Endpoint(
        *("POST", "/v1/jobs/{id}/cancel", "operate", cancel),
        summary="Cancel a job",
        description="A job that waits is cancelled at once. One that runs is `running` still: its worker is asked to stop "
        "it.",
        tag=_TAG,
        answers={200: Moved},
        body=Reason,
        optional=True,
        problems=(404, 409),
        audit="job.cancel",
    ),
    Endpoint(
        *("POST", "/v1/jobs/{id}/retry", "operate", retry),
        summary="Run a finished job again",
        description="Its attempts are kept, its failures are forgotten.",
        tag=_TAG,
        answers={200: Moved},
        problems=(404, 409),
        audit="job.retry",
    ),
    Endpoint(
        *("POST", "/v1/jobs/{id}/run-now", "operate", run_now),
        summary="Make a scheduled or held job ready",
        tag=_TAG,
        answers={200: Moved},
        problems=(404, 409),
        audit="job.run_now",
    ),
    Endpoint(
        *("POST", "/v1/jobs/{id}/decide", "operate", decide),
        summary="Decide whether an effect of a held job has happened",
        description="For jobs that are `held` with the reason `needs decision`. `done`: it has happened, and is not done again. "
        "`redo`: it has not, and the next attempt does it. `effect` names one where several wait. The job is `ready` once "
        "nothing is undecided.",
        tag=_TAG,
        answers={200: Moved},
        body=Decide,
        problems=(404, 409),
        audit="job.decide",
    ),
    Endpoint(
        *("POST", "/v1/jobs/cancel", "operate", cancel_many),
        summary="Cancel many jobs",
        description=_MANY,
        tag=_TAG,
        answers={200: BulkResult},
        body=BulkAction,
        audit="jobs.cancel",
    ),
    Endpoint(
        *("POST", "/v1/jobs/retry", "operate", retry_many),
        summary="Run many finished jobs again",
        description=f"{_MANY} A filter that names no status finds failed and cancelled jobs.",
        tag=_TAG,
        answers={200: BulkResult},
        body=BulkAction,
        audit="jobs.retry",
    ),
    Endpoint(
        *("POST", "/v1/jobs/run-now", "operate", run_now_many),
        summary="Make many scheduled or held jobs ready",
        description=_MANY,
        tag=_TAG,
        answers={200: BulkResult},
        body=BulkAction,
        audit="jobs.run_now",
    ),
]

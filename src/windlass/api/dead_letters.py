"""Dead letters: jobs that failed for good and wait for a person. Looked at one by one or by kind of error; replayed or discarded."""

from collections.abc import Sequence
from typing import Annotated, Final
from uuid import UUID

from msgspec import Meta

from windlass.api.actions import RETRY, Answers, Verb, act_on_many
from windlass.api.aside import chars_of, shown_aside
from windlass.api.endpoint import Answer, Call, Endpoint
from windlass.api.job_shapes import page_told, query_of
from windlass.api.jobs import NEXT, Cursor, Limit, next_link
from windlass.masking import masked_text
from windlass.model import Status
from windlass.store.protocol import DeadLetterGroup as Group
from windlass.wire import (
    Asked,
    BulkAction,
    BulkResult,
    DeadLetterGroup,
    DeadLetterGroups,
    DiscardReason,
    Jobs,
    Moved,
    QueueName,
    Traits,
    TypeName,
)

# A replay is a retry of what is failed at that very moment: another replay may have completed it since it was looked at.
_FAILED: Final = frozenset({Status.FAILED})
REPLAY: Final = Verb(RETRY.act, _FAILED, only=True)


async def _discard(call: Call, ids: Sequence[UUID], _among: frozenset[Status]) -> Answers:
    return await call.parts.intake.discard_many(ids, call.body.reason or DiscardReason().reason)


DISCARD: Final = Verb(_discard, _FAILED, only=True, has_reason=True)


class Listed(Traits):
    limit: Limit = 50
    cursor: Cursor | None = None


class Grouped(Asked):
    type: TypeName | None = None
    queue: QueueName | None = None
    looked_at: Annotated[int, Meta(ge=1, le=10_000, description="how many are looked at, the newest first")] = 10_000


async def list_dead_letters(call: Call) -> Answer:
    asked: Listed = call.query
    query = query_of(asked, statuses=[Status.FAILED], cursor=asked.cursor, limit=asked.limit)
    page = await call.parts.views.jobs(query)
    told = await shown_aside(lambda: page_told(page), chars_of(page.jobs))
    return Answer(told, 200, next_link(call, page.next_cursor))


async def groups(call: Call) -> DeadLetterGroups:
    asked: Grouped = call.query
    found = await call.parts.views.dead_letter_groups(type=asked.type, queue=asked.queue, looked_at=asked.looked_at)
    return DeadLetterGroups(
        groups=[_group_told(group) for group in found.groups], jobs=found.jobs, complete=found.complete
    )


def _group_told(group: Group) -> DeadLetterGroup:
    return DeadLetterGroup(
        type=group.type,
        error_type=group.error_type,
        message=masked_text(group.message),
        fingerprint=group.fingerprint,
        count=group.count,
        first_at=group.first_at,
        last_at=group.last_at,
        sample=list(group.sample),
    )


async def replay(call: Call) -> Moved:
    status = await call.parts.intake.retry(call.id, among=_FAILED)
    return Moved(id=call.id, status=status.value)


async def replay_many(call: Call) -> BulkResult:
    return await act_on_many(call, REPLAY)


async def discard(call: Call) -> Moved:
    asked: DiscardReason = call.body
    call.note = (str(call.id), {"reason": masked_text(asked.reason)})
    status = await call.parts.intake.discard(call.id, asked.reason)
    return Moved(id=call.id, status=status.value)


async def discard_selected(call: Call) -> BulkResult:
    return await act_on_many(call, DISCARD)


_TAG: Final = "dead letters"

endpoints: Final = [
    Endpoint(
        *("GET", "/v1/dead-letters", "read", list_dead_letters),
        summary="List jobs that failed for good",
        description="Newest first, with the error of each; by `fingerprint`, those with one kind of error. The end is "
        "where `next_cursor` is null.",
        tag=_TAG,
        answers={200: Jobs},
        query=Listed,
        gives=NEXT,
    ),
    Endpoint(
        *("GET", "/v1/dead-letters/groups", "read", groups),
        summary="Group failed jobs by kind of error",
        description="The largest group first, each with the newest message and a few ids. The same kind is the same type "
        "of job and the same `fingerprint`: the error without its numbers, ids and quoted values.",
        tag=_TAG,
        answers={200: DeadLetterGroups},
        query=Grouped,
    ),
    Endpoint(
        *("POST", "/v1/dead-letters/{id}/replay", "operate", replay),
        summary="Run a failed job again",
        description="Its attempts are kept, its failures are forgotten. 409 if it is not failed, or no longer.",
        tag=_TAG,
        answers={200: Moved},
        problems=(404, 409),
        audit="dead_letter.replay",
    ),
    Endpoint(
        *("POST", "/v1/dead-letters/replay", "operate", replay_many),
        summary="Run many failed jobs again",
        description="Those that `ids` names, or that `filter` finds: a whole group, by its `type` and `fingerprint`. With "
        "`preview` nothing is done, only counted. Up to 10,000 a call: while there is a `next_cursor`, call again with it.",
        tag=_TAG,
        answers={200: BulkResult},
        body=BulkAction,
        audit="dead_letters.replay",
    ),
    Endpoint(
        *("POST", "/v1/dead-letters/{id}/discard", "operate", discard),
        summary="Take a failed job out of the dead letters",
        description="It is `cancelled` from then on, with the reason given, and keeps its attempts with their errors; like other "
        "finished jobs it is removed when its retention is over. 409 if it is not failed, or no longer.",
        tag=_TAG,
        answers={200: Moved},
        body=DiscardReason,
        optional=True,
        problems=(404, 409),
        audit="dead_letter.discard",
    ),
    Endpoint(
        *("POST", "/v1/dead-letters/discard", "operate", discard_selected),
        summary="Take many failed jobs out of the dead letters",
        description="Those that `ids` names, or that `filter` finds: a whole group, by its `type` and `fingerprint`. With "
        "`preview` nothing is done, only counted. Up to 10,000 a call: while there is a `next_cursor`, call again with it.",
        tag=_TAG,
        answers={200: BulkResult},
        body=BulkAction,
        audit="dead_letters.discard",
    ),
]

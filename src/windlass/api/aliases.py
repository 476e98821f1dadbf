"""Routes that older schedulers documented, kept as they were: the same jobs, asked for and told in other shapes. Lists
have at most 200 rows; what is beyond is found under /v1.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Final

from msgspec import Meta, Raw
from msgspec.json import Decoder

from windlass.api.alias_shapes import (
    STATUSES,
    AddedJob,
    FailedJobs,
    NamedStored,
    NamedTask,
    PastJob,
    PlainJob,
    PlainStats,
    PlainStatus,
    PlainStored,
    lightened,
    past_job,
    plain_job,
    plain_of,
    plain_status,
)
from windlass.api.aside import chars_of, shown_aside
from windlass.api.endpoint import Answer, Call, Endpoint
from windlass.api.jobs import KEY, NEXT, STORED, Cursor, Limit, next_link, shown_job, taken
from windlass.api.submitting import Submitted
from windlass.errors import InvalidField, InvalidJob, UnknownType
from windlass.model import FINISHED, UNFINISHED, Job, Status
from windlass.store.protocol import JobQuery, Page
from windlass.wire import Asked, Submission, TypeName, encode_any
from windlass.wire import Job as JobTold

_WAY_IN_MAX: Final = 10_000  # pages are walked, not jumped to
_BODIES_MAX: Final = 16_384  # of a payload or result in a list; a larger one is shown with its job


class _CachedJob(JobTold):
    """A job as /v1 shows it, read back: null stays as it is, which no type that is Raw or None could say."""

    payload: Raw = Raw(b"null")
    result: Raw = Raw(b"null")


_cached: Final = Decoder(_CachedJob)


class PlainFilter(Asked):
    status: PlainStatus | None = None
    all: Annotated[bool, Meta(description="finished jobs as well")] = False
    type: TypeName | None = None
    limit: Limit = 50
    cursor: Cursor | None = None


class PastFilter(Asked):
    status: PlainStatus | None = None
    limit: Limit = 50
    cursor: Cursor | None = None


class Paging(Asked):
    page: Annotated[int, Meta(ge=1, le=10_000)] = 1
    limit: Limit = 50


# Submit. ------------------------------------------------------------------------------------------------------------


async def add(call: Call) -> Answer:
    return await taken(call, call.body, _plain_told)


async def add_named(call: Call) -> Answer:
    """A name and a text: the type is the name, and the text is its task."""
    asked: NamedTask = call.body
    payload = {"task": asked.payload} if isinstance(asked.payload, str) else asked.payload
    try:
        return await taken(call, Submission(type=asked.name, payload=payload, priority=asked.priority), _named_told)
    except UnknownType as error:
        raise UnknownType(error.type, error.known, field="name") from None


async def add_any(call: Call) -> Answer:
    asked: AddedJob = call.body
    if asked.type is not None:
        if asked.email is not None:
            raise InvalidJob("email", "is for a welcome mail; a whole job has its own payload")
        fields = {name: getattr(asked, name) for name in Submission.__struct_fields__}
        return await taken(call, Submission(**fields), _plain_told)
    if asked.email is None:
        raise InvalidJob("type", "is required; or give email and name, for a welcome mail")
    if asked.payload is not None:
        raise InvalidJob("payload", "is for a whole job, with its type")
    return await taken(call, _welcome(asked, asked.email), _plain_told)


def _welcome(asked: AddedJob, email: str) -> Submission:
    name = asked.name or email.partition("@")[0]
    mail = {"to": email, "subject": f"Welcome, {name}", "body": f"Hello {name},\n\nwelcome! Your account is ready.\n"}
    left = {field: getattr(asked, field) for field in Submission.__struct_fields__ if field not in {"type", "payload"}}
    return Submission(type="email", payload=mail, **left)


def _plain_told(submitted: Submitted) -> PlainStored:
    return PlainStored(id=submitted.stored.id, status=plain_status(submitted.status))


def _named_told(submitted: Submitted) -> NamedStored:
    job_id = submitted.stored.id
    return NamedStored(job_id=job_id, id=job_id, status=plain_status(submitted.status))


# Look. --------------------------------------------------------------------------------------------------------------


async def list_plain(call: Call) -> Answer:
    asked: PlainFilter = call.query
    unless_named = () if asked.all else UNFINISHED
    statuses = unless_named if asked.status is None else STATUSES[asked.status]
    page = await _page(call, statuses, asked.limit, asked.cursor, asked.type)
    return Answer(await _listed(page.jobs, plain_job), 200, next_link(call, page.next_cursor))


async def show_plain(call: Call) -> PlainJob:
    return plain_of(_cached.decode(await shown_job(call)))


async def list_past(call: Call) -> Answer:
    asked: PastFilter = call.query
    statuses = FINISHED if asked.status is None else STATUSES[asked.status]
    page = await _page(call, statuses, asked.limit, asked.cursor)
    return Answer(await _listed(page.jobs, past_job), 200, next_link(call, page.next_cursor))


async def show_past(call: Call) -> PastJob:
    job = await call.parts.views.job(call.id)
    return await shown_aside(lambda: past_job(job), chars_of([job]))


async def _listed(jobs: Sequence[Job], shape: Callable[[Job], PlainJob]) -> bytes:
    some = lightened(jobs)
    return await shown_aside(lambda: encode_any([shape(job) for job in some]), chars_of(some))


async def list_failed(call: Call) -> FailedJobs:
    asked: Paging = call.query
    before = (asked.page - 1) * asked.limit
    if before + asked.limit > _WAY_IN_MAX:
        raise InvalidField("page", f"reaches beyond {_WAY_IN_MAX:,} jobs; /v1/dead-letters has cursors")
    views = call.parts.views
    total = (await views.summary(lines=0)).statuses[Status.FAILED]
    cursor: str | None = None
    if before:
        cursor = (await views.ids(JobQuery(statuses=[Status.FAILED]), limit=before)).next_cursor
    jobs = [] if before and cursor is None else (await _page(call, [Status.FAILED], asked.limit, cursor)).jobs
    some = lightened(jobs)
    told = await shown_aside(lambda: [plain_job(job) for job in some], chars_of(some))
    return FailedJobs(jobs=told, page=asked.page, limit=asked.limit, total=total)


async def _page(
    call: Call, statuses: Collection[Status], limit: int, cursor: str | None, type_: str | None = None
) -> Page:
    query = JobQuery(statuses=statuses, type=type_, cursor=cursor, limit=limit, bodies_max=_BODIES_MAX)
    return await call.parts.views.jobs(query)


async def stats(call: Call) -> PlainStats:
    sums = (await call.parts.views.summary(lines=0)).statuses
    plain = {name: sum(sums[status] for status in STATUSES[name]) for name in STATUSES if name != "cancelled"}
    return PlainStats(**plain)


_TAG: Final = "aliases"
_SUBMIT_PROBLEMS: Final = (409,)

endpoints: Final = [
    Endpoint(
        *("POST", "/jobs", "submit", add),
        summary="Submit a job (alias)",
        tag=_TAG,
        answers={202: PlainStored, 200: PlainStored},
        body=Submission,
        problems=_SUBMIT_PROBLEMS,
        takes=KEY,
        gives=STORED,
    ),
    Endpoint(
        *("POST", "/submit_job", "submit", add_named),
        summary="Submit a job by the name of its type, with a text (alias)",
        description='The text becomes the payload `{"task": text}`, which the built-in load types take.',
        tag=_TAG,
        answers={202: NamedStored, 200: NamedStored},
        body=NamedTask,
        problems=_SUBMIT_PROBLEMS,
        takes=KEY,
        gives=STORED,
    ),
    Endpoint(
        *("POST", "/addJob", "submit", add_any),
        summary="Submit a welcome mail, or a whole job (alias)",
        tag=_TAG,
        answers={202: PlainStored, 200: PlainStored},
        body=AddedJob,
        problems=_SUBMIT_PROBLEMS,
        takes=KEY,
        gives=STORED,
    ),
    Endpoint(
        *("GET", "/jobs", "read", list_plain),
        summary="List active jobs, newest first (alias)",
        description="A bare array of the jobs that are not finished; with `all=1`, or a `status`, of others too. Payloads and results of more than 16 KB are null here, and the rest of them once there "
        "is a megabyte in all.",
        tag=_TAG,
        answers={200: list[PlainJob]},
        query=PlainFilter,
        gives=NEXT,
    ),
    Endpoint(
        *("GET", "/jobs/{id}", "read", show_plain),
        summary="Show a job (alias)",
        description="Where there is a Redis, an active job may be shown as it was a moment ago, as at `/v1/jobs/{id}`.",
        tag=_TAG,
        answers={200: PlainJob},
        problems=(404,),
    ),
    Endpoint(
        *("GET", "/db/jobs", "read", list_past),
        summary="List finished jobs with their times (alias)",
        description="Those of one `status`, if it is given.",
        tag=_TAG,
        answers={200: list[PastJob]},
        query=PastFilter,
        gives=NEXT,
    ),
    Endpoint(
        *("GET", "/db/jobs/{id}", "read", show_past),
        summary="Show a job with its times (alias)",
        tag=_TAG,
        answers={200: PastJob},
        problems=(404,),
    ),
    Endpoint(
        *("GET", "/failedJobs", "read", list_failed),
        summary="List failed jobs by page (alias)",
        tag=_TAG,
        answers={200: FailedJobs},
        query=Paging,
    ),
    Endpoint(
        *("GET", "/stats", "read", stats),
        summary="Count jobs by status (alias)",
        description="`pending`: scheduled, held or ready.",
        tag=_TAG,
        answers={200: PlainStats},
    ),
]

"""Jobs: submitting one or many, lists, one with its attempts, its logs, and why it waits."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from hashlib import blake2b
from typing import Annotated, Final
from urllib.parse import urlencode

from msgspec import Meta

from windlass.api.aside import attempt_chars, chars_of, shown_aside
from windlass.api.endpoint import Answer, Call, Endpoint
from windlass.api.job_shapes import (
    attempt_told,
    explanation_told,
    job_told,
    log_told,
    page_told,
    query_of,
    running_log_told,
)
from windlass.api.submitting import Submitted, submit, submit_many
from windlass.clock import steady_s
from windlass.errors import InvalidField, InvalidJob
from windlass.model import FINISHED, Attempt, key_max
from windlass.wire import (
    Asked,
    Attempts,
    Explanation,
    Filter,
    Job,
    Jobs,
    Logs,
    Stored,
    StoredMany,
    Submission,
    Told,
    encode,
)

jobs_max: Final = 10_000
Limit = Annotated[int, Meta(ge=1, le=200, description="jobs on a page")]
Cursor = Annotated[str, Meta(max_length=100, description="`next_cursor` of the page before")]
_logs_chars_max: Final = 1_048_576
_REPLAYED: Final = {"idempotency-replayed": "true"}


class Listed(Filter):
    limit: Limit = 50
    cursor: Cursor | None = None


class Newest(Asked):
    limit: Annotated[int, Meta(ge=1, le=200, description="only so many attempts, the newest")] = 50


class WantedLogs(Newest):
    follow: Annotated[
        bool, Meta(description="also that of the running attempt, about a second old; ask again every second")
    ] = False


# Submit. ------------------------------------------------------------------------------------------------------------


async def submit_one(call: Call) -> Answer:
    return await taken(call, call.body, _stored_told, call.raw)


def _stored_told(submitted: Submitted) -> Stored:
    stored = submitted.stored
    return Stored(
        id=stored.id,
        status=submitted.status.value,
        duplicate=stored.duplicate,
        payload_checked=submitted.payload_checked,
    )


async def taken(call: Call, asked: Submission, shape: Callable[[Submitted], Told], raw: bytes = b"") -> Answer:
    """A submission stored, and told in this shape; `raw`: the body, where that is the submission itself."""
    key = call.headers.get(b"idempotency-key")
    if key is not None:
        asked.idempotency_key = _same_key(key, asked.idempotency_key)
    submitted = await submit(
        call.parts, asked, raw, subject=call.actor.subject, size=len(call.raw), end_turn=call.end_turn
    )
    headers = {"location": f"/v1/jobs/{submitted.stored.id}"}
    if not submitted.payload_checked:
        headers["payload-checked"] = "false"
    told = shape(submitted)
    return Answer(told, 200, headers | _REPLAYED) if submitted.stored.duplicate else Answer(told, 202, headers)


def _same_key(header: bytes, field: str | None) -> str:
    """The key of a submission that names it in the header. Named twice, and differently, neither can be meant."""
    try:
        key = header.decode()
    except UnicodeDecodeError:  # with something put in its place, two keys could become one
        raise InvalidJob("idempotency_key", "must be UTF-8") from None
    if not 1 <= len(key) <= key_max:
        raise InvalidJob("idempotency_key", f"must be a text of 1 to {key_max} characters")
    if field is not None and field != key:
        raise InvalidJob("idempotency_key", "is another one than that of the Idempotency-Key header")
    return key


async def submit_bulk(call: Call) -> StoredMany:
    if b"idempotency-key" in call.headers:
        # Taken silently for nothing, it would let a caller repeat the request and have everything twice.
        raise InvalidField("Idempotency-Key", "is for single jobs; give each job of many an idempotency_key of its own")
    async with aclosing(call.body) as submissions:
        stored, unchecked = await submit_many(call.parts, submissions, subject=call.actor.subject)
    duplicates = sum(one.duplicate for one in stored)
    return StoredMany(ids=[one.id for one in stored], duplicates=duplicates, payloads_unchecked=unchecked)


# Look. --------------------------------------------------------------------------------------------------------------


async def list_jobs(call: Call) -> Answer:
    asked: Listed = call.query
    page = await call.parts.views.jobs(query_of(asked, cursor=asked.cursor, limit=asked.limit))
    told = await shown_aside(lambda: page_told(page), chars_of(page.jobs))
    return Answer(told, 200, next_link(call, page.next_cursor))


def next_link(call: Call, cursor: str | None) -> Mapping[str, str]:
    """Where the next page is, for clients that follow links."""
    if cursor is None:
        return {}
    query = [(name, value) for name, value in call.request.query_params.multi_items() if name != "cursor"]
    return {"link": f'<{call.request.url.path}?{urlencode([*query, ("cursor", cursor)])}>; rel="next"'}


async def show_job(call: Call) -> Answer:
    return tagged(call, await shown_job(call))


async def shown_job(call: Call) -> bytes:
    """The job as /v1 shows it: from the cache, if it is not finished and that will do."""
    kept = call.parts.shortcuts.jobs
    shown = None if _wants_it_fresh(call) else await kept.look(call.id)
    if shown is None:
        read_s = steady_s()
        job = await call.parts.views.job(call.id)
        shown = await shown_aside(lambda: encode(job_told(job, whole=True)), chars_of([job]))
        if job.status not in FINISHED:
            kept.keep(job.id, shown, read_s=read_s)
    return shown


def _wants_it_fresh(call: Call) -> bool:
    asked = call.headers.get(b"cache-control", b"").lower()
    return b"no-cache" in asked or b"no-store" in asked or b"max-age=0" in asked


def tagged(call: Call, body: bytes) -> Answer:
    """With an ETag: who has this very state already is told so, and nothing more."""
    tag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"etag": tag, "cache-control": "private, no-cache"}
    asked = call.request.headers.get("if-none-match", "")
    known = {one.strip().removeprefix("W/") for one in asked.split(",")}
    if tag in known or "*" in known:
        return Answer(None, 304, headers)
    return Answer(body, 200, headers)


async def list_attempts(call: Call) -> Attempts:
    attempts = await _attempts(call)
    told = await shown_aside(lambda: [attempt_told(each) for each in attempts], attempt_chars(attempts))
    return Attempts(attempts=told)


async def list_logs(call: Call) -> Logs:
    # The running attempt first: should it end meanwhile, it is among the others.
    running = await call.parts.views.follow_log(call.id) if call.query.follow else None
    attempts = _newest_logs(await _attempts(call))
    logs = await shown_aside(lambda: list(map(log_told, attempts)), attempt_chars(attempts))
    if running is not None and all(each.attempt != running.attempt for each in attempts):
        logs.append(running_log_told(running))
    return Logs(logs=logs)


def _newest_logs(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Those that wrote something: of all that was written a megabyte, and the newest in any case."""
    kept: list[Attempt] = []
    chars = 0
    for each in reversed([each for each in attempts if each.log]):
        chars += len(each.log or "")
        if kept and chars > _logs_chars_max:
            break
        kept.append(each)
    return kept[::-1]


async def _attempts(call: Call) -> list[Attempt]:
    attempts = await call.parts.views.attempts(call.id, limit=call.query.limit)
    if not attempts:
        await call.parts.views.job(call.id)  # raises JobNotFound: no attempt yet is something else than no job
    return attempts


async def explain(call: Call) -> Explanation:
    return explanation_told(await call.parts.views.explain(call.id))


_TAG: Final = "jobs"
KEY: Final = {"Idempotency-Key": "the same key and body give the first job again, without storing another"}
STORED: Final = {
    "Location": "where the job is",
    "Idempotency-Replayed": "true if nothing new was stored",
    "Payload-Checked": "false if nobody could say yet whether the payload fits its type",
}
NEXT: Final = {"Link": "the next page, as rel=next"}

endpoints: Final = [
    Endpoint(
        *("POST", "/v1/jobs", "submit", submit_one),
        summary="Submit a job",
        description="Stored durably when it is answered. 200 with `Idempotency-Replayed` if it was there already, under "
        "the same id or idempotency key; 422 if the key was used with another body, or if the payload does not fit what "
        "the workers of its type declare: `field` names the part, as `payload.lines[1].price`. `payload_checked` is false "
        "where that is not known: no living worker has the type, or two of them declare it differently.",
        tag=_TAG,
        answers={202: Stored, 200: Stored},
        body=Submission,
        problems=(409,),
        takes=KEY,
        gives=STORED,
    ),
    Endpoint(
        *("POST", "/v1/jobs/bulk", "submit", submit_bulk),
        summary="Submit many jobs",
        description="Up to 10,000, as a JSON array or one JSON document a line; all are stored, or none. What is wrong is "
        "named by its place: `jobs[3].priority`. `payloads_unchecked`: how many payloads could not be checked.",
        tag=_TAG,
        answers={202: StoredMany},
        body=Annotated[list[Submission], Meta(min_length=1, max_length=jobs_max)],
        bulk=True,
        problems=(409,),
    ),
    Endpoint(
        *("GET", "/v1/jobs", "read", list_jobs),
        summary="List jobs",
        description="Newest first, without payloads and results. A page may be short, even empty, and still have a next "
        "one: the end is where `next_cursor` is null.",
        tag=_TAG,
        answers={200: Jobs},
        query=Listed,
        gives=NEXT,
    ),
    Endpoint(
        *("GET", "/v1/jobs/{id}", "read", show_job),
        summary="Show a job",
        description="With its payload and result, number for number; what looks like a secret in them is masked.",
        tag=_TAG,
        answers={200: Job, 304: None},
        problems=(404,),
        takes={
            "If-None-Match": "an ETag: 304 if the job is still as it was then",
            "Cache-Control": "no-cache: as it is now, also where unfinished jobs may be shown as they were a moment ago",
        },
        gives={"ETag": "names this state of the job"},
    ),
    Endpoint(
        *("GET", "/v1/jobs/{id}/attempts", "read", list_attempts),
        summary="List the attempts at a job",
        description="Those that have ended, oldest first, with the error of each.",
        tag=_TAG,
        answers={200: Attempts},
        query=Newest,
        problems=(404,),
    ),
    Endpoint(
        *("GET", "/v1/jobs/{id}/logs", "read", list_logs),
        summary="Show what the attempts at a job have logged",
        description="Oldest first. Of more than a megabyte in all, the newest. With `follow`, the running attempt's as well: its worker "
        "shows it for ten seconds after each request, so the first answer may lack it.",
        tag=_TAG,
        answers={200: Logs},
        query=WantedLogs,
        problems=(404,),
    ),
    Endpoint(
        *("GET", "/v1/jobs/{id}/explain", "read", explain),
        summary="Explain why a job is where it is",
        description="What it waits for, each with a stable code and what would help.",
        tag=_TAG,
        answers={200: Explanation},
        problems=(404,),
    ),
]

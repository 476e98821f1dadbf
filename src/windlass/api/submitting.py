"""From a submission to the job that is stored: what it leaves out is as its type declares it. The hot path."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple

from windlass.api.aside import AT_ONCE_BYTES, aside
from windlass.api.catalogue import SubmittableType
from windlass.api.parts import Parts
from windlass.api.submitted import cache_submitted, few
from windlass.clock import steady_s
from windlass.errors import IdTaken, InvalidJob, InvalidPayload, KeyBusy, KeyReused, RequestError
from windlass.model import (
    Declared,
    Enqueued,
    NewJob,
    Owner,
    RetryPolicy,
    Status,
    check_new_job,
    check_started_once,
    declarable,
)
from windlass.payload import Encoded, depth_max, encode
from windlass.quotas import Submitter, check_job
from windlass.wire import Submission

_plain: Final = Declared("")
_GROWS: Final = 8  # times, at most: 1e15 is stored as 1000000000000000.0


class Submitted(NamedTuple):
    """The answer to one submission: where the job is, and whether its payload was held against a schema."""

    stored: Enqueued
    status: Status
    payload_checked: bool


async def submit(
    parts: Parts,
    submission: Submission,
    raw: bytes = b"",
    *,
    subject: str,
    size: int = 0,
    end_turn: Callable[[], Awaitable[None]] | None = None,
) -> Submitted:
    """Stored durably, or refused, when this returns. `raw`: as it came, if it came as it is. `subject`: who submits it.
    `size`: of what came. `end_turn`: called when a large payload is text again, so that the caller's next one need not
    wait for the store."""
    quotas = parts.gate.quotas
    submitter = quotas.find(subject)
    if submitter is not None:
        quotas.take(submitter, 1)
    owner = quotas.owner(subject, named=_is_named(submission))
    found = parts.catalogue.known(submission.type) or await parts.catalogue.find(submission.type)
    _check_attempts(submission, found)
    try:
        if size > AT_ONCE_BYTES:
            checked = await aside(partial(_check_payload, submission, found), size)
        else:
            checked = _check_payload(submission, found)
    except InvalidPayload:
        found, checked = await _check_again(parts, submission, owner, time.monotonic())
    job = new_job(submission, found and found.declared, owner)
    bytes_max = parts.config.store.payload_bytes_max
    if not _is_harmless(submission, raw, bytes_max // _GROWS):
        # Checked before it joins others: what is wrong with one job must not make its whole group begin anew.
        check_new_job(job)
        encoded = await aside(partial(encode, job.payload, bytes_max=bytes_max), size)
        # The text alone waits for the database: a megabyte of {} is 25 MB of values.
        submission.payload = Encoded(encoded)
        job = job._replace(payload=submission.payload)
        if end_turn is not None:
            await end_turn()
    if not parts.names.knows(job, found and found.declared):
        refused = await parts.names.admit({0: job}, () if found else (job.type,))
        if refused is not None:
            raise refused[1]
    read_s = steady_s()
    stored = await _stored(parts, submitter, job)
    if not stored.duplicate:
        cache_submitted(parts, [(job, stored)], read_s=read_s)
        return Submitted(stored, _first_place(job), checked)
    place = await parts.places.ask(stored.id)
    if place is None and job.idempotency_key is not None:
        # A job stays as long as its key. Whoever remembers this one remembers what PostgreSQL has lost: let that decide.
        parts.shortcuts.keys.forget([job.scoped_key or ""])
        stored = await _stored(parts, submitter, job)
        place = await parts.places.ask(stored.id) if stored.duplicate else _first_place(job)
    # One that was there under its id, and is gone, has finished.
    return Submitted(stored, place or Status.COMPLETED, checked)


def _is_named(submission: Submission) -> bool:
    """Whether the caller names it, so that the name must be found among the caller's own."""
    return submission.id is not None or submission.idempotency_key is not None


async def _stored(parts: Parts, submitter: Submitter | None, job: NewJob) -> Enqueued:
    if submitter is None:
        return await parts.gathering.submit(job)
    check_job(submitter, job)
    async with parts.gate.quotas.counted(submitter, [job]) as stored:
        stored.append(await parts.gathering.submit(job))
    return stored[0]


def _check_attempts(submission: Submission, found: SubmittableType | None) -> None:
    if submission.max_attempts is not None and found is not None and found.declared.at_most_once:
        check_started_once(submission.type, submission.max_attempts)


def _check_payload(submission: Submission, found: SubmittableType | None) -> bool:
    """Whether there is anything to check it against; raises InvalidPayload, as the worker would."""
    if found is None or found.check is None:
        return False
    found.check(submission.payload)
    return True


async def _check_again(
    parts: Parts, submission: Submission, owner: Owner | None, asked_at: float
) -> tuple[SubmittableType | None, bool]:
    """The type and whether it was checked, for a payload that does not fit the schema of some seconds ago: a worker that takes it
    may have started since. `asked_at`: since when the schema must have been read."""
    found = await parts.catalogue.afresh(submission.type, asked_at=asked_at)
    try:
        return found, _check_payload(submission, found)
    except InvalidPayload:
        if not await _was_stored_before(parts, submission, owner):
            raise
    return found, False


async def _was_stored_before(parts: Parts, submission: Submission, owner: Owner | None) -> bool:
    """Whether this repeats a submission that fitted the schema of its day. The store then compares the two: a caller that
    repeats a call after a deploy, because its answer was lost, must not be told that there is no such job."""
    if submission.id is not None and await parts.places.ask(submission.id) is not None:
        return True
    key = submission.idempotency_key
    return key is not None and await parts.views.is_key_taken(owner and owner.namespace, key)


def _first_place(job: NewJob) -> Status:
    return Status.SCHEDULED if job.is_later(datetime.now(UTC)) else Status.READY


def _is_harmless(asked: Submission, raw: bytes, bytes_max: int) -> bool:
    """Whether the decoder has checked all there is to check, as with most: nothing but a type and numbers, and a payload
    that can neither be too large, nor too deep, nor hold a character that cannot be stored. No is also said if unsure."""
    return (
        0 < len(raw) <= bytes_max
        and b"\\u0000" not in raw
        and raw.count(b"{") + raw.count(b"[") <= depth_max
        and asked.id is None
        and asked.idempotency_key is None
        and asked.name is None
        and asked.queue is None
        and not asked.tags
        and asked.delay_s is None
        and asked.scheduled_at is None
    )


async def submit_many(
    parts: Parts, submissions: AsyncIterator[tuple[Sequence[Submission], int]], *, subject: str
) -> tuple[list[Enqueued], int]:
    """All or none; and how many payloads could not be checked. `submissions`: some at a time, as they arrive, with
    their size. What is wrong is said while the rest is still arriving. `subject`: who submits them."""
    quotas = parts.gate.quotas
    submitter = quotas.find(subject)
    if submitter is not None:
        quotas.take(submitter, 0)  # refused before it is read, if at all
    # One of each for all: jobs that differ in their payload alone are checked once (rows.py).
    owners = {named: quotas.owner(subject, named=named) for named in (False, True)}
    jobs: list[NewJob] = []
    unchecked = 0
    declared: list[Declared | None] = []
    asked_at = time.monotonic()
    async for group, size in submissions:
        for submission in group:
            owner = owners[_is_named(submission)]
            try:
                found, checked = await _check_one_of_many(parts, submission, owner, size, asked_at)
                job = new_job(submission, found and found.declared, owner)
                if submitter is not None:
                    check_job(submitter, job)
            except InvalidJob as error:
                raise _at(len(jobs), error) from None
            unchecked += not checked
            declared.append(found and found.declared)
            jobs.append(job)
    if submitter is not None:
        quotas.take(submitter, len(jobs))
    await _admit_names(parts, jobs, declared)
    read_s = steady_s()
    try:
        stored = await _stored_many(parts, submitter, jobs)
    except RequestError as error:
        raise _found(error, jobs) from None
    if len(jobs) <= few:
        cache_submitted(parts, zip(jobs, stored, strict=True), read_s=read_s)
    return stored, unchecked


async def _check_one_of_many(
    parts: Parts, submission: Submission, owner: Owner | None, size: int, asked_at: float
) -> tuple[SubmittableType | None, bool]:
    """The type of one job of many, and whether its payload was checked. The payload becomes text: that alone waits for the
    rest to arrive."""
    found = parts.catalogue.known(submission.type)
    if found is None:
        found = await parts.catalogue.find(submission.type, asked_at=asked_at)
    _check_attempts(submission, found)
    try:
        checked = _check_payload(submission, found)
    except InvalidPayload:
        found, checked = await _check_again(parts, submission, owner, asked_at)
    bytes_max = parts.config.store.payload_bytes_max
    if size > AT_ONCE_BYTES:
        text = await aside(partial(encode, submission.payload, bytes_max=bytes_max), size)
    else:
        text = encode(submission.payload, bytes_max=bytes_max)
    submission.payload = Encoded(text)
    return found, checked


async def _admit_names(parts: Parts, jobs: Sequence[NewJob], declared: Sequence[Declared | None]) -> None:
    """Refuse queues, types and tags that are new where there is no room for more; the error names the first job."""
    strange = {n: job for n, job in enumerate(jobs) if not parts.names.knows(job, declared[n])}
    undeclared = {job.type for n, job in strange.items() if declared[n] is None}
    if strange and (refused := await parts.names.admit(strange, undeclared)) is not None:
        raise _at(*refused)


async def _stored_many(parts: Parts, submitter: Submitter | None, jobs: Sequence[NewJob]) -> list[Enqueued]:
    if submitter is None:
        return await parts.intake.enqueue(jobs)
    async with parts.gate.quotas.counted(submitter, jobs) as stored:
        stored.extend(await parts.intake.enqueue(jobs))
    return stored


def new_job(asked: Submission, declared: Declared | None, owner: Owner | None = None) -> NewJob:
    has = declared or _plain
    retry = asked.retry
    return NewJob(
        asked.type,
        asked.payload,
        asked.id,
        asked.name,
        has.queue if asked.queue is None else asked.queue,
        has.priority if asked.priority is None else asked.priority,
        has.thread_demand if asked.thread_demand is None else asked.thread_demand,
        asked.scheduled_at,
        asked.delay_s,
        has.max_attempts if asked.max_attempts is None else asked.max_attempts,
        has.timeout_s if asked.timeout_s is None else asked.timeout_s,
        has.retry if retry is None else RetryPolicy(retry.base_s, retry.factor, retry.cap_s, retry.jitter),
        asked.tags or has.tags or (),
        asked.idempotency_key,
        has.if_too_wide if asked.if_too_wide is None else asked.if_too_wide,
        None,
        _unsaid(asked) if _is_named(asked) else frozenset(),
        owner,
    )


def _unsaid(asked: Submission) -> frozenset[str]:
    """What a repetition leaves to its type again, whatever that declares by then."""
    return frozenset(name for name in declarable if getattr(asked, name) in (None, []))


# Which of many. -----------------------------------------------------------------------------------------------------


def _found(error: RequestError, jobs: Sequence[NewJob]) -> RequestError:
    """The same error, naming the job it is about, looked for only now that there is one."""
    if isinstance(error, InvalidJob):
        for n, job in enumerate(jobs):
            try:
                check_new_job(job)
            except InvalidJob as found:
                return _at(n, found)
    for n, job in enumerate(jobs):
        if isinstance(error, IdTaken) and job.id == error.job_id:
            return _named(error, f"jobs[{n}].id")
        if isinstance(error, KeyReused | KeyBusy) and job.idempotency_key == error.key:
            return _named(error, f"jobs[{n}].idempotency_key")
    return error


def _named(error: RequestError, field: str) -> RequestError:
    error.__dict__["field"] = field  # these have none of their own: alone, there is only one it can be
    return error


def _at(n: int, error: InvalidJob) -> InvalidJob:
    """The same kind of error, at its place among many."""
    placed = error.__class__.__new__(error.__class__)
    placed.__dict__.update(error.__dict__)
    InvalidJob.__init__(placed, f"jobs[{n}].{error.field}", error.problem)
    return placed

"""Every request of the HTTP client as a value: what is asked, what comes back, and whether it may simply be sent again.

Nothing is sent here. The blocking and the async client share these, and so say the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypedDict, TypeVar, Unpack
from urllib.parse import quote
from uuid import UUID, uuid4

import msgspec
from msgspec import Raw

from windlass import payload as documents
from windlass import wire
from windlass.errors import InvalidJob
from windlass.model import Decision, Leave, TooWide

T = TypeVar("T")

page_max: Final = 200
_UNSAID: Final[tuple[Any, ...]] = (None, [])
NDJSON: Final = "application/x-ndjson"
Action = Literal["cancel", "retry", "run-now"]


class Job(wire.Job):
    """A job as a program wants it: `payload` and `result` as values."""

    payload: Any = None
    result: Any = None


class Jobs(wire.Jobs):
    jobs: list[Job]  # type: ignore[assignment]  # never written to


class JobType(wire.JobType):
    payload_schema: Any = None


class JobTypes(wire.JobTypes):
    types: list[JobType]  # type: ignore[assignment]


class AuditEntry(wire.AuditEntry):
    detail: Any


class Audit(wire.Audit):
    entries: list[AuditEntry]  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Ask(Generic[T]):
    """`repeatable`: sent twice it does what it does sent once, so a lost answer is no reason to give up. `fresh`: an answer
    that is a moment old will not do."""

    method: str
    path: str
    answer: type[T]
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    media: str = "application/json"
    repeatable: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)
    fresh: bool = False


class Options(TypedDict, total=False):
    """What a submission may say of itself; what it does not say is as its type declares it."""

    id: UUID | None
    name: str | None
    queue: str | None
    priority: int | None
    thread_demand: int | None
    scheduled_at: datetime | None
    delay_s: float | None
    max_attempts: int | None
    timeout_s: float | None
    retry: wire.Retry | None
    tags: list[str]
    idempotency_key: str | None
    if_too_wide: TooWide | None


class Filters(TypedDict, total=False):
    """Which jobs. Everything given must hold; `status` may be several."""

    status: "wire.StatusFilter | list[wire.StatusFilter]"
    type: str
    queue: str
    tag: str
    created_after: datetime
    created_before: datetime
    fingerprint: str
    reason: str


# Submit. ------------------------------------------------------------------------------------------------------------


def submission(type_: str, payload: Any = None, **options: Unpack[Options]) -> wire.Submission:
    """A job to be submitted, alone or with others. A payload that could not come back as it went in is refused here."""
    unknown = options.keys() - Options.__annotations__.keys()
    if unknown:
        raise TypeError(f"there is no option {', '.join(sorted(unknown))}")
    return wire.Submission(type=type_, payload=Raw(documents.encode(payload).encode()), **options)


def keyed(job: wire.Submission) -> tuple[wire.Submission, bool]:
    """The job with something to know it again by, so that it may be sent twice; and whether that was made up here."""
    if job.id is not None or job.idempotency_key is not None:
        return job, False
    return msgspec.structs.replace(job, idempotency_key=f"client-{uuid4().hex}"), True


def submit(job: wire.Submission) -> Ask[wire.Stored]:
    about = {"job_id": job.id, "key": job.idempotency_key}
    return Ask("POST", "/v1/jobs", wire.Stored, body=line(job), repeatable=True, about=about)


def submit_lines(lines: Iterable[bytes]) -> Ask[wire.StoredMany]:
    body = b"\n".join(lines)
    return Ask("POST", "/v1/jobs/bulk", wire.StoredMany, body=body, media=NDJSON, repeatable=True)


def line(job: wire.Submission) -> bytes:
    """The submission as one line of JSON, without what it leaves to its type."""
    try:
        said = {name: value for name in job.__struct_fields__ if (value := getattr(job, name)) not in _UNSAID}
        return msgspec.json.encode(said)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise InvalidJob("job", f"cannot be written as JSON: {error}") from None


# Look. --------------------------------------------------------------------------------------------------------------


def job(job_id: UUID, *, fresh: bool = False) -> Ask[Job]:
    return replace(_of(job_id, "", Job), fresh=fresh)


def jobs(filters: Filters, *, limit: int, cursor: str | None = None) -> Ask[Jobs]:
    return _get("/v1/jobs", Jobs, **filters, limit=limit, cursor=cursor)


def attempts(job_id: UUID) -> Ask[wire.Attempts]:
    return _of(job_id, "/attempts", wire.Attempts)


def logs(job_id: UUID, *, follow: bool = False) -> Ask[wire.Logs]:
    return replace(_of(job_id, "/logs", wire.Logs), query=(("follow", "true"),) if follow else ())


def explain(job_id: UUID) -> Ask[wire.Explanation]:
    return _of(job_id, "/explain", wire.Explanation)


def dead_letters(filters: Filters, *, limit: int, cursor: str | None = None) -> Ask[Jobs]:
    return _get("/v1/dead-letters", Jobs, **filters, limit=limit, cursor=cursor)


def dead_letter_groups(type_: str | None = None, queue: str | None = None) -> Ask[wire.DeadLetterGroups]:
    return _get("/v1/dead-letters/groups", wire.DeadLetterGroups, type=type_, queue=queue)


def stats() -> Ask[wire.Stats]:
    return _get("/v1/stats", wire.Stats)


def queues(cursor: str | None = None) -> Ask[wire.Queues]:
    return _get("/v1/queues", wire.Queues, cursor=cursor)


def workers(cursor: str | None = None) -> Ask[wire.Workers]:
    return _get("/v1/workers", wire.Workers, cursor=cursor)


def types(cursor: str | None = None) -> Ask[JobTypes]:
    return _get("/v1/types", JobTypes, cursor=cursor)


def audit(*, limit: int, cursor: str | None = None) -> Ask[Audit]:
    return _get("/v1/audit", Audit, limit=limit, cursor=cursor)


def caught_mails(limit: int) -> Ask[wire.CaughtMails]:
    return _get("/v1/dev/mail", wire.CaughtMails, limit=limit)


def caught_mail(mail_id: str) -> Ask[wire.CaughtMailShown]:
    return _get(f"/v1/dev/mail/{quote(mail_id, safe='')}", wire.CaughtMailShown)


# Act. ---------------------------------------------------------------------------------------------------------------


def act(action: Action, job_id: UUID, reason: str | None = None) -> Ask[wire.Moved]:
    """Sent again only if it never arrived: a second retry of a job that ran meanwhile would run it once more."""
    body = None if reason is None else msgspec.json.encode(wire.Reason(reason=reason))
    return Ask("POST", f"/v1/jobs/{job_id}/{action}", wire.Moved, body=body, about={"job_id": job_id})


def decide(job_id: UUID, decision: Decision, effect: str | None = None) -> Ask[wire.Moved]:
    body = msgspec.json.encode(wire.Decide(decision=decision, effect=effect))
    return Ask("POST", f"/v1/jobs/{job_id}/decide", wire.Moved, body=body, about={"job_id": job_id})


def act_on_many(action: Action, which: wire.BulkAction) -> Ask[wire.BulkResult]:
    return _bulk(f"/v1/jobs/{action}", which)


def replay(job_id: UUID) -> Ask[wire.Moved]:
    return Ask("POST", f"/v1/dead-letters/{job_id}/replay", wire.Moved, about={"job_id": job_id})


def replay_many(which: wire.BulkAction) -> Ask[wire.BulkResult]:
    return _bulk("/v1/dead-letters/replay", which)


def discard(job_id: UUID, reason: str | None = None) -> Ask[wire.Moved]:
    body = None if reason is None else msgspec.json.encode(wire.DiscardReason(reason=reason))
    return Ask("POST", f"/v1/dead-letters/{job_id}/discard", wire.Moved, body=body, about={"job_id": job_id})


def discard_many(which: wire.BulkAction) -> Ask[wire.BulkResult]:
    return _bulk("/v1/dead-letters/discard", which)


def set_paused(queue: str, *, paused: bool) -> "Ask[Any]":
    word = "pause" if paused else "resume"
    return Ask("POST", f"/v1/queues/{quote(queue, safe='')}/{word}", Any, repeatable=True)


def ask_to_leave(worker_id: UUID, how: Leave) -> Ask[wire.Worker]:
    return Ask("POST", f"/v1/workers/{worker_id}/{how}", wire.Worker, repeatable=True, about={"worker_id": worker_id})


# Who. ---------------------------------------------------------------------------------------------------------------


def token(login: wire.Login) -> Ask[wire.Token]:
    return Ask("POST", "/v1/auth/token", wire.Token, body=msgspec.json.encode(login), repeatable=True)


def me() -> Ask[wire.Me]:
    return _get("/v1/auth/me", wire.Me)


def users() -> Ask[wire.Users]:
    return _get("/v1/users", wire.Users)


def keys() -> Ask[wire.ApiKeys]:
    return _get("/v1/keys", wire.ApiKeys)


def add_key(key: wire.NewKey) -> Ask[wire.ApiKey]:
    return Ask("POST", "/v1/keys", wire.ApiKey, body=msgspec.json.encode(key))


def add_user(user: wire.NewUser) -> Ask[wire.User]:
    return Ask("POST", "/v1/users", wire.User, body=msgspec.json.encode(user))


def set_password(name: str, password: wire.NewPassword) -> "Ask[Any]":
    path = f"/v1/users/{quote(name, safe='')}/password"
    return Ask("PUT", path, Any, body=msgspec.json.encode(password), repeatable=True)


def set_scopes(name: str, scopes: wire.NewScopes) -> Ask[wire.User]:
    path = f"/v1/users/{quote(name, safe='')}/scopes"
    return Ask("PUT", path, wire.User, body=msgspec.json.encode(scopes), repeatable=True)


def remove_user(name: str) -> "Ask[Any]":
    return Ask("DELETE", f"/v1/users/{quote(name, safe='')}", Any)


def set_quota(of: str | UUID, quota: wire.Quota) -> "Ask[Any]":
    """`of`: the name of a user, or the id of an API key."""
    return _set_of(of, "quota", quota)


def set_namespace(of: str | UUID, namespace: wire.NewNamespace) -> "Ask[Any]":
    return _set_of(of, "namespace", namespace)


def _set_of(of: str | UUID, what: str, said: wire.Quota | wire.NewNamespace) -> "Ask[Any]":
    owner = f"keys/{of}" if isinstance(of, UUID) else f"users/{quote(of, safe='')}"
    answer = wire.ApiKey if isinstance(of, UUID) else wire.User
    return Ask("PUT", f"/v1/{owner}/{what}", answer, body=msgspec.json.encode(said), repeatable=True)


def revoke_key(key_id: UUID) -> "Ask[Any]":
    return Ask("DELETE", f"/v1/keys/{key_id}", Any)


def _of(job_id: UUID, what: str, answer: type[T]) -> Ask[T]:
    return Ask("GET", f"/v1/jobs/{job_id}{what}", answer, repeatable=True, about={"job_id": job_id})


def _bulk(path: str, which: wire.BulkAction) -> Ask[wire.BulkResult]:
    return Ask("POST", path, wire.BulkResult, body=msgspec.json.encode(which), repeatable=which.preview)


def _get(path: str, answer: type[T], **query: Any) -> Ask[T]:
    return Ask("GET", path, answer, query=tuple(_said(query)), repeatable=True)


def _said(query: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name, value in query.items():
        for each in value if isinstance(value, list | tuple) else [value]:
            if each is not None:
                yield name, each.isoformat() if isinstance(each, datetime) else str(each)

"""Who calls: tokens, users, API keys, and what operators did."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, Raw

from windlass.model import (
    delay_s_max,
    timeout_s_max,
)
from windlass.quotas import quota_jobs_max
from windlass.wire.base import (
    END,
    Asked,
    Scope,
    Text,
    Threads,
    Told,
)
from windlass.wire.jobs import QuotaUse


class Login(Asked):
    """A user's name and password, or an API key."""

    username: Text | None = None
    password: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None
    api_key: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    scopes: list[Scope] | None = None


class Refresh(Asked):
    refresh_token: Annotated[str, Meta(min_length=1, max_length=4096)]


class Token(Told):
    access_token: str
    token_type: Literal["Bearer"]
    expires_in: int
    scopes: list[str]
    refresh_token: str | None = None


class Me(Told):
    """`quotas`: those of the caller, and what counts against each."""

    subject: str
    scopes: list[str]
    expires_at: datetime | None
    namespace: str | None = None
    quotas: list[QuotaUse] = msgspec.field(default_factory=list)


class Quota(Asked):
    """What a user or API key may submit; what is left out, or null, has no limit. `waiting`: jobs that wait.
    `threads`: of its unfinished jobs together. `thread_demand`, `timeout_s`: of one job."""

    waiting: Annotated[int, Meta(ge=0, le=quota_jobs_max)] | None = None
    threads: Annotated[int, Meta(ge=0, le=quota_jobs_max)] | None = None
    thread_demand: Threads | None = None
    timeout_s: Annotated[float, Meta(ge=0.001, le=timeout_s_max)] | None = None
    submissions_per_s: Annotated[float, Meta(ge=0.001, le=1_000_000)] | None = None


Namespace = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=100,
        pattern=rf"^[A-Za-z0-9_][A-Za-z0-9_.-]*{END}",
        description="of idempotency keys and ids; `default` is that of the application; null: its own",
    ),
]


class NewNamespace(Asked):
    namespace: Namespace | None


class NewUser(Asked):
    name: Annotated[str, Meta(min_length=1, max_length=100, pattern=rf"^[A-Za-z0-9_][A-Za-z0-9_.@-]*{END}")]
    password: Annotated[str, Meta(min_length=8, max_length=1000)]
    scopes: Annotated[list[Scope], Meta(min_length=1)]
    quota: Quota | None = None
    namespace: Namespace | None = None


class NewPassword(Asked):
    password: Annotated[str, Meta(min_length=8, max_length=1000)]


class NewScopes(Asked):
    scopes: Annotated[list[Scope], Meta(min_length=1)]


class User(Told):
    name: str
    scopes: list[str]
    created_at: datetime
    quota: Quota | None = None
    namespace: str | None = None


class Users(Told):
    users: list[User]


class NewKey(Asked):
    name: Text
    scopes: Annotated[list[Scope], Meta(min_length=1)]
    ttl_s: Annotated[float, Meta(gt=0, le=delay_s_max)] | None = None
    quota: Quota | None = None
    namespace: Namespace | None = None


class ApiKey(Told):
    """`key` is shown once, when it is made."""

    id: UUID
    name: str
    prefix: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    key: str | None = None
    quota: Quota | None = None
    namespace: str | None = None


class ApiKeys(Told):
    keys: list[ApiKey]


class AuditEntry(Told):
    id: int
    at: datetime
    actor: str
    action: str
    target: str | None
    detail: Raw | None
    request_id: str | None


class Audit(Told):
    entries: list[AuditEntry]
    next_cursor: str | None = None

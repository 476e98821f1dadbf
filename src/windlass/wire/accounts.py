"""Who calls: tokens, users, API keys, and what operators did."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta, Raw

from windlass.model import (
    delay_s_max,
)
from windlass.wire.base import (
    END,
    Asked,
    Scope,
    Text,
    Told,
)


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
    subject: str
    scopes: list[str]
    expires_at: datetime | None


class NewUser(Asked):
    name: Annotated[str, Meta(min_length=1, max_length=100, pattern=rf"^[A-Za-z0-9_][A-Za-z0-9_.@-]*{END}")]
    password: Annotated[str, Meta(min_length=8, max_length=1000)]
    scopes: Annotated[list[Scope], Meta(min_length=1)]


class NewPassword(Asked):
    password: Annotated[str, Meta(min_length=8, max_length=1000)]


class NewScopes(Asked):
    scopes: Annotated[list[Scope], Meta(min_length=1)]


class User(Told):
    name: str
    scopes: list[str]
    created_at: datetime


class Users(Told):
    users: list[User]


class NewKey(Asked):
    name: Text
    scopes: Annotated[list[Scope], Meta(min_length=1)]
    ttl_s: Annotated[float, Meta(gt=0, le=delay_s_max)] | None = None


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

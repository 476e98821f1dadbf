"""Who may call, and who did what."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol
from uuid import UUID

from windlass.quotas import Submitter, Use

# How the subjects of users and of API keys begin; the name, or the id, follows.
USER: Final = "user:"
KEY: Final = "key:"


@dataclass(frozen=True, slots=True)
class User:
    """Someone who may log in. `password_hash` as argon2 writes it: never shown."""

    name: str
    password_hash: str
    scopes: Sequence[str]
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key of a program, without the key: only its digest is stored. `prefix`: how it begins, to tell keys apart."""

    id: UUID
    name: str
    prefix: str
    scopes: Sequence[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One thing an operator did. `detail` is JSON text. A larger `id` was noted later."""

    id: int
    at: datetime
    actor: str
    action: str
    target: str | None
    detail: str | None
    request_id: str | None


class Accounts(Protocol):
    """Who may do what, and who did. What expires does so by the database's clock."""

    async def add_user(
        self, name: str, password_hash: str, scopes: Collection[str], submitter: Submitter | None = ...
    ) -> User:
        """With its quotas and namespace, if it has any. Raises NameTaken."""

    async def user(self, name: str) -> User | None: ...

    async def users(self, *, limit: int = ...) -> list[User]:
        """By name."""

    async def set_password(self, name: str, password_hash: str) -> User:
        """Raises UserNotFound."""

    async def set_scopes(self, name: str, scopes: Collection[str]) -> User:
        """Raises UserNotFound."""

    async def remove_user(self, name: str) -> None:
        """With its quotas. Raises UserNotFound."""

    async def submitters(self) -> dict[str, Submitter]:
        """By subject: all that have a quota or a configured namespace."""

    async def set_quota(self, quota: Submitter) -> None:
        """All of the subject's quotas at once; its namespace stays."""

    async def set_namespace(self, subject: str, namespace: str | None) -> None:
        """Whose idempotency keys and ids the subject uses from now on; None: its own."""

    async def use(self, subject: str) -> Use:
        """What counts against the subject's quotas now."""

    async def add_key(
        self,
        id: UUID,  # noqa: A002, as the key's field
        name: str,
        prefix: str,
        digest: bytes,
        scopes: Collection[str],
        expires_at: datetime | None = ...,
        submitter: Submitter | None = ...,
    ) -> ApiKey:
        """With its quotas and namespace, if it has any."""

    async def key_by_id(self, key_id: UUID) -> ApiKey:
        """Whether it may be used or not. Raises KeyNotFound."""

    async def key(self, digest: bytes) -> ApiKey | None:
        """The key with this digest, if it may be used now: neither expired nor revoked. Notes that it was used, once a
        minute at most."""

    async def keys(self, *, limit: int = ...) -> list[ApiKey]:
        """The newest first, with those expired or revoked."""

    async def revoke_key(self, key_id: UUID) -> ApiKey:
        """May be repeated; the first time counts. Raises KeyNotFound."""

    async def spend(self, token_id: str, until: datetime) -> bool:
        """Use up what can be used once. True for the first caller alone, whoever else asks at the same time; and for
        nobody once `until` has passed."""

    async def revoke(self, what: str, until: datetime) -> None:
        """Refuse a token, or all tokens of a subject that were issued before now; remembered until then."""

    async def revoked(self) -> dict[str, datetime]:
        """What is revoked, and since when: a token issued to the same subject later is good."""

    async def note(
        self, actor: str, action: str, target: str | None = ..., detail: Any = ..., request_id: str | None = ...
    ) -> None:
        """Write down what was done. `detail`: any JSON value. Never refuses: what is too long is cut."""

    async def audit(self, *, limit: int = ..., before: int | None = ...) -> list[AuditEntry]:
        """What was done, the newest first; `before`: only entries with smaller ids."""

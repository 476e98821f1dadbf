"""Who may come in, with what, and who did what: users, API keys, tokens that were spent or revoked, the audit.

Nothing here can be used to come in: passwords are kept as hashes, keys as digests.
"""

import json
import reprlib
from collections.abc import Collection
from dataclasses import astuple
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from asyncpg import Record

from windlass.errors import KeyNotFound, NameTaken, UserNotFound
from windlass.lifecycle import storable
from windlass.quotas import Submitter, Use
from windlass.store.postgres import Postgres
from windlass.store.protocol import KEY, USER, ApiKey, AuditEntry, User

_PAGE: Final = 1_000
_NEWEST: Final = 2**63 - 1
_ACTOR_MAX: Final = 200
_TARGET_MAX: Final = 500
_DETAIL_MAX: Final = 16_384


class Accounts:
    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    # Users. ---------------------------------------------------------------------------------------------------------

    async def add_user(
        self, name: str, password_hash: str, scopes: Collection[str], submitter: Submitter | None = None
    ) -> User:
        """Raises NameTaken, also for a name that differs in case alone."""
        rules = astuple(submitter or Submitter(f"{USER}{name}"))
        row = await self._postgres.fetchrow("add_user", name, password_hash, _ordered(scopes), *rules)
        if row is None:
            raise NameTaken(name)
        return User(*row)

    async def user(self, name: str) -> User | None:
        if storable(name) != name:  # whatever was typed at a login: no reason for an error of the database
            return None
        row = await self._postgres.fetchrow("user", name)
        return None if row is None else User(*row)

    async def users(self, *, limit: int = _PAGE) -> list[User]:
        """By name."""
        return [User(*row) for row in await self._postgres.fetch("users", limit)]

    async def set_password(self, name: str, password_hash: str) -> User:
        """Raises UserNotFound."""
        return _known(name, await self._postgres.fetchrow("set_password", storable(name), password_hash))

    async def set_scopes(self, name: str, scopes: Collection[str]) -> User:
        """Raises UserNotFound."""
        return _known(name, await self._postgres.fetchrow("set_scopes", storable(name), _ordered(scopes)))

    async def remove_user(self, name: str) -> None:
        """Raises UserNotFound."""
        if await self._postgres.fetchrow("remove_user", storable(name), f"{USER}{storable(name)}") is None:
            raise UserNotFound(name)

    # Quotas. --------------------------------------------------------------------------------------------------------

    async def submitters(self) -> dict[str, Submitter]:
        """By subject: all that have a quota or a configured namespace."""
        return {row["subject"]: Submitter(*row) for row in await self._postgres.fetch("submitters")}

    async def set_quota(self, quota: Submitter) -> None:
        """All of the subject's quotas at once; its namespace stays."""
        await self._postgres.fetch(
            "set_quota", quota.subject, quota.waiting_max, quota.threads_max, quota.thread_demand_max,
            quota.timeout_s_max, quota.submissions_per_s,
        )  # fmt: skip

    async def set_namespace(self, subject: str, namespace: str | None) -> None:
        await self._postgres.fetch("set_namespace", subject, namespace)

    async def use(self, subject: str) -> Use:
        """What counts against the subject's quotas now."""
        row = (await self._postgres.pinned("count_charges", subject))[0]
        return Use(row["waiting"], row["threads"])

    # API keys. ------------------------------------------------------------------------------------------------------

    async def add_key(
        self,
        id: UUID,  # noqa: A002, as the key's field
        name: str,
        prefix: str,
        digest: bytes,
        scopes: Collection[str],
        expires_at: datetime | None = None,
        submitter: Submitter | None = None,
    ) -> ApiKey:
        rules = astuple(submitter or Submitter(f"{KEY}{id}"))
        rows = await self._postgres.fetch("add_key", id, name, prefix, digest, _ordered(scopes), expires_at, *rules)
        return ApiKey(*rows[0])

    async def key_by_id(self, key_id: UUID) -> ApiKey:
        """Whether it may be used or not. Raises KeyNotFound."""
        row = await self._postgres.fetchrow("key_by_id", key_id)
        if row is None:
            raise KeyNotFound(key_id)
        return ApiKey(*row)

    async def key(self, digest: bytes) -> ApiKey | None:
        """The key with this digest, if it may be used now. Notes that it was used, once a minute at most."""
        row = await self._postgres.fetchrow("key", digest)
        return None if row is None else ApiKey(*row)

    async def keys(self, *, limit: int = _PAGE) -> list[ApiKey]:
        """The newest first, with those expired or revoked."""
        return [ApiKey(*row) for row in await self._postgres.fetch("keys", limit)]

    async def revoke_key(self, key_id: UUID) -> ApiKey:
        """May be repeated; the first time counts. Raises KeyNotFound."""
        row = await self._postgres.fetchrow("revoke_key", key_id)
        if row is None:
            raise KeyNotFound(key_id)
        return ApiKey(*row)

    # Tokens. --------------------------------------------------------------------------------------------------------

    async def spend(self, token_id: str, until: datetime) -> bool:
        """Use up what can be used once. True for the first caller alone."""
        return await self._postgres.fetchrow("spend", token_id, until) is not None

    async def revoke(self, what: str, until: datetime) -> None:
        """Refuse a token, or all tokens of a subject that were issued before now; remembered until then."""
        await self._postgres.fetch("revoke", what, until)

    async def revoked(self) -> dict[str, datetime]:
        """What is revoked, and since when."""
        return {row["what"]: row["at"] for row in await self._postgres.fetch("revoked")}

    # The audit. -----------------------------------------------------------------------------------------------------

    async def note(
        self,
        actor: str,
        action: str,
        target: str | None = None,
        detail: Any = None,
        request_id: str | None = None,
    ) -> None:
        """Write down what was done. Never refuses: what is too long is cut, for it has been done already."""
        await self._postgres.fetch(
            "note",
            _cut(actor, _ACTOR_MAX),
            _cut(action, _ACTOR_MAX),
            None if target is None else _cut(target, _TARGET_MAX),
            None if detail is None else _document(detail),
            None if request_id is None else _cut(request_id, _ACTOR_MAX),
        )

    async def audit(self, *, limit: int = 50, before: int | None = None) -> list[AuditEntry]:
        """What was done, the newest first; `before`: only entries with smaller ids."""
        last = _NEWEST if before is None else max(-_NEWEST, min(before, _NEWEST))
        return [AuditEntry(*row) for row in await self._postgres.fetch("audit", last, limit)]


def _known(name: str, row: Record | None) -> User:
    if row is None:
        raise UserNotFound(name)
    return User(*row)


def _ordered(scopes: Collection[str]) -> list[str]:
    return sorted(set(scopes))


def _cut(text: str, most: int) -> str:
    clean = storable(text)
    return clean if len(clean) <= most else clean[: most - 1] + "…"


def _document(detail: Any) -> str:
    """JSON text of anything at all: an entry in other words is better than none."""
    try:
        text = json.dumps(detail, allow_nan=False, default=str)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(reprlib.repr(detail))  # which goes no deeper than a few levels
    return text if len(text) <= _DETAIL_MAX else json.dumps({"cut": text[: _DETAIL_MAX // 2]})

"""Users, API keys and the audit, for admins. What takes something away from a user or key also ends the tokens that
were given for it.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from msgspec import Meta, Raw

from windlass.api.endpoint import Answer, Call, Endpoint
from windlass.api.logins import NAME, epoch_of
from windlass.api.submitters import key_named, key_told, quota_noted, submitter_of, user_told
from windlass.auth import keys as api_keys
from windlass.auth.scopes import written
from windlass.auth.tokens import revocable
from windlass.errors import InvalidField, InvalidJob, InvalidQuery, UserNotFound
from windlass.model import check_text, type_name_max
from windlass.store.protocol import KEY, USER
from windlass.wire import (
    ApiKey,
    ApiKeys,
    Asked,
    Audit,
    AuditEntry,
    NewKey,
    NewPassword,
    NewScopes,
    NewUser,
    User,
    Users,
)

_TAG: Final = "accounts"
_page_max: Final = 200
_margin_s: Final = 60.0  # beyond the life of a token, for clocks that differ


class Paged(Asked):
    limit: Annotated[int, Meta(ge=1, le=_page_max)] = 50
    cursor: Annotated[str, Meta(min_length=1, max_length=20)] | None = None


# Users. -------------------------------------------------------------------------------------------------------------


async def users(call: Call) -> Users:
    accounts = call.parts.accounts
    submitters = await accounts.submitters()
    return Users(users=[user_told(each, submitters.get(f"{USER}{each.name}")) for each in await accounts.users()])


async def add_user(call: Call) -> Answer:
    asked: NewUser = call.body
    if not NAME.fullmatch(asked.name):  # the pattern of its type lets a line end pass after it
        raise InvalidField("name", "must be of A-Z a-z 0-9 _ . @ -, and not begin with . @ or -")
    hashed = await call.parts.gate.passwords.hashed(asked.password)
    submitter = submitter_of(f"{USER}{asked.name}", asked.quota, asked.namespace)
    user = await call.parts.accounts.add_user(asked.name, hashed, written(asked.scopes), submitter)
    await call.parts.gate.quotas.read()
    call.note = (user.name, {"scopes": written(asked.scopes), **quota_noted(submitter)})
    return Answer(user_told(user, submitter), 201)


async def set_password(call: Call) -> None:
    hashed = await call.parts.gate.passwords.hashed(call.body.password)
    name = await _voided(call)
    await call.parts.accounts.set_password(name, hashed)


async def set_scopes(call: Call) -> User:
    asked: NewScopes = call.body
    name = await _voided(call)
    user = await call.parts.accounts.set_scopes(name, written(asked.scopes))
    call.note = (name, {"scopes": written(asked.scopes)})
    return user_told(user, (await call.parts.accounts.submitters()).get(f"{USER}{name}"))


async def remove_user(call: Call) -> None:
    await call.parts.accounts.remove_user(await _voided(call))


async def _voided(call: Call) -> str:
    """The user the path names, after his tokens were made void. First that, then the change: who crashes in between has
    taken away too much, not too little; and what a login is given in between is void as well."""
    gate = call.parts.gate
    user = await call.parts.accounts.user(call.path["name"])
    if user is None:
        raise UserNotFound(call.path["name"][:100])
    if not gate.is_open:
        name = revocable("subject", f"{USER}{user.name}", epoch_of(user))
        await gate.revoke(name, call.parts.config.auth.refresh_ttl_s + _margin_s)
    call.note = (user.name, None)
    return user.name


# API keys. ----------------------------------------------------------------------------------------------------------


async def keys(call: Call) -> ApiKeys:
    accounts = call.parts.accounts
    submitters = await accounts.submitters()
    return ApiKeys(keys=[key_told(each, submitters.get(f"{KEY}{each.id}")) for each in await accounts.keys()])


async def add_key(call: Call) -> Answer:
    """The one time the key is told."""
    asked: NewKey = call.body
    try:
        check_text("name", asked.name, type_name_max)  # it is shown in lists and in the audit
    except InvalidJob as error:
        raise InvalidField(error.field, error.problem) from None
    made = api_keys.make()
    expires_at = None if asked.ttl_s is None else datetime.now(UTC) + timedelta(seconds=asked.ttl_s)
    scopes = written(asked.scopes)
    submitter = submitter_of(f"{KEY}{made.id}", asked.quota, asked.namespace)
    key = await call.parts.accounts.add_key(
        made.id, asked.name, made.prefix, made.digest, scopes, expires_at, submitter
    )
    await call.parts.gate.quotas.read()
    call.note = (str(key.id), {"name": key.name, "scopes": scopes, **quota_noted(submitter)})
    return Answer(key_told(key, submitter, made.key), 201)


async def revoke_key(call: Call) -> ApiKey:
    """First the key, so that it gives no more tokens; then those it gave."""
    gate = call.parts.gate
    key = await call.parts.accounts.revoke_key(key_named(call))
    if not gate.is_open:
        await gate.revoke(revocable("subject", f"{KEY}{key.id}"), call.parts.config.auth.token_ttl_s + _margin_s)
    call.note = (str(key.id), {"name": key.name})
    return key_told(key, (await call.parts.accounts.submitters()).get(f"{KEY}{key.id}"))


# The audit. ---------------------------------------------------------------------------------------------------------


async def audit(call: Call) -> Audit:
    asked: Paged = call.query
    if asked.cursor is not None and not (asked.cursor.isascii() and asked.cursor.isdecimal()):
        raise InvalidQuery("cursor", "is not one that a list has told")
    before = None if asked.cursor is None else int(asked.cursor)
    entries = await call.parts.accounts.audit(limit=asked.limit + 1, before=before)
    shown = entries[: asked.limit]
    return Audit(
        entries=[
            AuditEntry(
                id=entry.id,
                at=entry.at,
                actor=entry.actor,
                action=entry.action,
                target=entry.target,
                detail=None if entry.detail is None else Raw(entry.detail.encode()),
                request_id=entry.request_id,
            )
            for entry in shown
        ],
        next_cursor=str(shown[-1].id) if len(entries) > len(shown) else None,
    )


endpoints: Final = [
    Endpoint(
        *("GET", "/v1/users", "admin", users),
        summary="List users",
        tag=_TAG,
        answers={200: Users},
    ),
    Endpoint(
        *("POST", "/v1/users", "admin", add_user),
        summary="Add a user",
        description="They log in with name and password, for tokens with these scopes or fewer. `quota`: what they "
        "may submit.",
        tag=_TAG,
        answers={201: User},
        body=NewUser,
        problems=(409, 429),
        audit="user.add",
    ),
    Endpoint(
        *("DELETE", "/v1/users/{name}", "admin", remove_user),
        summary="Remove a user",
        description="His tokens and sessions end within seconds.",
        tag=_TAG,
        answers={204: None},
        problems=(404,),
        audit="user.remove",
    ),
    Endpoint(
        *("PUT", "/v1/users/{name}/password", "admin", set_password),
        summary="Set a user's password",
        description="His tokens and sessions end within seconds: he logs in again.",
        tag=_TAG,
        answers={204: None},
        body=NewPassword,
        problems=(404, 429),
        audit="user.password",
    ),
    Endpoint(
        *("PUT", "/v1/users/{name}/scopes", "admin", set_scopes),
        summary="Set what a user may do",
        description="His tokens and sessions end within seconds: he logs in again.",
        tag=_TAG,
        answers={200: User},
        body=NewScopes,
        problems=(404,),
        audit="user.scopes",
    ),
    Endpoint(
        *("GET", "/v1/keys", "admin", keys),
        summary="List API keys",
        description="The newest first, with those that are revoked or expired. The keys themselves are kept nowhere.",
        tag=_TAG,
        answers={200: ApiKeys},
    ),
    Endpoint(
        *("POST", "/v1/keys", "admin", add_key),
        summary="Make an API key",
        description="`key` is told this once. It is exchanged for tokens at `POST /v1/auth/token`.",
        tag=_TAG,
        answers={201: ApiKey},
        body=NewKey,
        audit="key.add",
    ),
    Endpoint(
        *("DELETE", "/v1/keys/{id}", "admin", revoke_key),
        summary="Revoke an API key",
        description="It gives no more tokens, and those it gave end within seconds. May be repeated.",
        tag=_TAG,
        answers={200: ApiKey},
        problems=(404,),
        audit="key.revoke",
    ),
    Endpoint(
        *("GET", "/v1/audit", "admin", audit),
        summary="List what operators did",
        description="The newest first: who, what, to what, when, and the id of the request.",
        tag=_TAG,
        answers={200: Audit},
        query=Paged,
    ),
]

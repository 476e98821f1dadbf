"""The quotas and namespaces of users and API keys, for admins. A change holds here at once, with the other API
processes within seconds; tokens stay good.
"""

from typing import Any, Final
from uuid import UUID

import msgspec

from windlass.api.endpoint import Call, Endpoint
from windlass.auth.scopes import known, written
from windlass.errors import KeyNotFound, UserNotFound
from windlass.quotas import Submitter
from windlass.store.protocol import KEY, USER
from windlass.store.protocol import ApiKey as StoredKey
from windlass.store.protocol import User as StoredUser
from windlass.wire import ApiKey, NewNamespace, Quota, User

_TAG: Final = "accounts"


async def set_user_quota(call: Call) -> User:
    user = await _user_named(call)
    return user_told(user, await _set_quota(call, f"{USER}{user.name}", user.name))


async def set_user_namespace(call: Call) -> User:
    user = await _user_named(call)
    return user_told(user, await _set_namespace(call, f"{USER}{user.name}", user.name))


async def set_key_quota(call: Call) -> ApiKey:
    key = await call.parts.accounts.key_by_id(key_named(call))
    return key_told(key, await _set_quota(call, f"{KEY}{key.id}", str(key.id)))


async def set_key_namespace(call: Call) -> ApiKey:
    key = await call.parts.accounts.key_by_id(key_named(call))
    return key_told(key, await _set_namespace(call, f"{KEY}{key.id}", str(key.id)))


async def _set_quota(call: Call, subject: str, target: str) -> Submitter | None:
    submitter = submitter_of(subject, call.body, None)
    await call.parts.accounts.set_quota(submitter)
    call.note = (target, quota_noted(submitter))
    return await _reread(call, subject)


async def _set_namespace(call: Call, subject: str, target: str) -> Submitter | None:
    asked: NewNamespace = call.body
    await call.parts.accounts.set_namespace(subject, asked.namespace)
    call.note = (target, {"namespace": asked.namespace})
    return await _reread(call, subject)


async def _reread(call: Call, subject: str) -> Submitter | None:
    quotas = call.parts.gate.quotas
    await quotas.read()
    return quotas.find(subject)


async def _user_named(call: Call) -> StoredUser:
    user = await call.parts.accounts.user(call.path["name"])
    if user is None:
        raise UserNotFound(call.path["name"][:100])
    return user


def key_named(call: Call) -> UUID:
    """The API key that the path names. What is no UUID names none."""
    try:
        return UUID(call.path["id"])
    except ValueError:
        raise KeyNotFound(call.path["id"][:64]) from None


# Shapes. ------------------------------------------------------------------------------------------------------------


def submitter_of(subject: str, quota: Quota | None, namespace: str | None) -> Submitter:
    asked = quota or Quota()
    return Submitter(
        subject=subject,
        namespace=namespace,
        waiting_max=asked.waiting,
        threads_max=asked.threads,
        thread_demand_max=asked.thread_demand,
        timeout_s_max=asked.timeout_s,
        submissions_per_s=asked.submissions_per_s,
    )


def quota_noted(submitter: Submitter) -> dict[str, Any]:
    """For the audit: what is set."""
    noted: dict[str, Any] = {}
    if (quota := _quota_told(submitter)) is not None:
        noted["quota"] = {name: value for name, value in msgspec.to_builtins(quota).items() if value is not None}
    if submitter.namespace is not None:
        noted["namespace"] = submitter.namespace
    return noted


def user_told(user: StoredUser, submitter: Submitter | None) -> User:
    return User(
        name=user.name,
        scopes=written(known(user.scopes)),
        created_at=user.created_at,
        quota=_quota_told(submitter),
        namespace=None if submitter is None else submitter.namespace,
    )


def key_told(key: StoredKey, submitter: Submitter | None, shown: str | None = None) -> ApiKey:
    """`shown`: the key itself, when it is made."""
    return ApiKey(
        id=key.id,
        name=key.name,
        prefix=key.prefix,
        scopes=written(known(key.scopes)),
        created_at=key.created_at,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        last_used_at=key.last_used_at,
        key=shown,
        quota=_quota_told(submitter),
        namespace=None if submitter is None else submitter.namespace,
    )


def _quota_told(submitter: Submitter | None) -> Quota | None:
    """None where none is set."""
    if submitter is None:
        return None
    quota = Quota(
        waiting=submitter.waiting_max,
        threads=submitter.threads_max,
        thread_demand=submitter.thread_demand_max,
        timeout_s=submitter.timeout_s_max,
        submissions_per_s=submitter.submissions_per_s,
    )
    return None if quota == Quota() else quota


_QUOTA: Final = (
    "All quotas at once: what is left out has no limit. `waiting`: jobs that wait. `threads`: of unfinished jobs "
    "together. `thread_demand` and `timeout_s`: the most that one job may ask for. `submissions_per_s`: in each API "
    "process. Holds within seconds; jobs that were submitted without a quota do not count."
)
_NAMESPACE: Final = (
    "Subjects with the same namespace share idempotency keys and ids; `default` is that of the application; null: its "
    "own. What was submitted before stays in the namespace it had then: a repetition is stored again."
)

endpoints: Final = [
    Endpoint(
        *("PUT", "/v1/users/{name}/quota", "admin", set_user_quota),
        summary="Set what a user may submit",
        description=_QUOTA,
        tag=_TAG,
        answers={200: User},
        body=Quota,
        problems=(404,),
        audit="user.quota",
    ),
    Endpoint(
        *("PUT", "/v1/users/{name}/namespace", "admin", set_user_namespace),
        summary="Set whose idempotency keys a user shares",
        description=_NAMESPACE,
        tag=_TAG,
        answers={200: User},
        body=NewNamespace,
        problems=(404,),
        audit="user.namespace",
    ),
    Endpoint(
        *("PUT", "/v1/keys/{id}/quota", "admin", set_key_quota),
        summary="Set what an API key may submit",
        description=_QUOTA,
        tag=_TAG,
        answers={200: ApiKey},
        body=Quota,
        problems=(404,),
        audit="key.quota",
    ),
    Endpoint(
        *("PUT", "/v1/keys/{id}/namespace", "admin", set_key_namespace),
        summary="Set whose idempotency keys an API key shares",
        description=_NAMESPACE,
        tag=_TAG,
        answers={200: ApiKey},
        body=NewNamespace,
        problems=(404,),
        audit="key.namespace",
    ),
]

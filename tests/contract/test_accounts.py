"""Who may come in is who was let in; what can be used once is used once; what was done is written down."""

import asyncio
import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from windlass.errors import KeyNotFound, NameTaken, UserNotFound
from windlass.store.ids import Ids
from windlass.store.protocol import Accounts, ApiKey, Upkeep, Views
from windlass.store.store import Store

Sql = asyncpg.Connection
HOUR = timedelta(hours=1)


def later(delta: timedelta = HOUR) -> datetime:
    return datetime.now(UTC) + delta


@pytest.fixture
def accounts(store: Store) -> Accounts:
    slices: tuple[Accounts, Views, Upkeep] = (store.accounts, store.views, store.upkeep)  # as the protocols say
    return slices[0]


# Users. ---------------------------------------------------------------------------------------------------------------


async def test_a_user_is_as_he_was_added(accounts: Accounts) -> None:
    ann = await accounts.add_user("ann", "$argon2id$…", ["read", "submit", "read"])
    assert (ann.name, ann.password_hash, ann.scopes) == ("ann", "$argon2id$…", ["read", "submit"])
    assert abs((ann.created_at - datetime.now(UTC)).total_seconds()) < 60
    assert await accounts.user("ann") == ann
    await accounts.add_user("aaron", "h", ["admin"])
    assert [user.name for user in await accounts.users()] == ["aaron", "ann"]
    assert [user.name for user in await accounts.users(limit=1)] == ["aaron"]


@pytest.mark.parametrize("name", ["ann", "Ann", "ANN"])
async def test_a_name_is_taken_in_whatever_case(accounts: Accounts, name: str) -> None:
    ann = await accounts.add_user("ann", "first", ["read"])
    with pytest.raises(NameTaken):
        await accounts.add_user(name, "second", ["admin"])
    assert await accounts.users() == [ann]


async def test_of_many_who_take_a_name_at_once_one_gets_it(accounts: Accounts) -> None:
    added = await asyncio.gather(
        *(accounts.add_user("root", f"hash {n}", ["admin"]) for n in range(16)), return_exceptions=True
    )
    (winner,) = [one for one in added if not isinstance(one, BaseException)]
    assert all(isinstance(one, NameTaken) for one in added if one is not winner)
    assert await accounts.user("root") == winner


@pytest.mark.parametrize(
    "name", ["bob", "Ann", "", "ann'; drop table windlass.account; --", "ann\0", "\ud800", "x" * 9999]
)
async def test_nobody_is_found_under_another_name(accounts: Accounts, name: str) -> None:
    ann = await accounts.add_user("ann", "h", ["read"])
    assert await accounts.user(name) is None
    with pytest.raises(UserNotFound):
        await accounts.set_password(name, "other")
    with pytest.raises(UserNotFound):
        await accounts.set_scopes(name, ["admin"])
    with pytest.raises(UserNotFound):
        await accounts.remove_user(name)
    assert await accounts.users() == [ann]


async def test_a_password_and_scopes_are_changed_one_without_the_other(accounts: Accounts) -> None:
    for name in ("ann", "bob"):
        await accounts.add_user(name, "old", ["read"])
    assert (await accounts.set_password("ann", "new")).password_hash == "new"
    ann = await accounts.set_scopes("ann", {"operate"})
    assert (ann.password_hash, ann.scopes) == ("new", ["operate"])
    assert await accounts.user("ann") == ann
    bob = await accounts.user("bob")
    assert bob
    assert (bob.password_hash, bob.scopes) == ("old", ["read"])


async def test_a_removed_user_is_gone_and_his_name_is_free(accounts: Accounts) -> None:
    await accounts.add_user("ann", "old", ["admin"])
    await accounts.remove_user("ann")
    assert await accounts.user("ann") is None
    assert (await accounts.add_user("ann", "new", ["read"])).scopes == ["read"]


# API keys. ------------------------------------------------------------------------------------------------------------


async def added(accounts: Accounts, digest: bytes = b"d" * 32, expires_at: datetime | None = None) -> ApiKey:
    return await accounts.add_key(uuid4(), "ci", "wl_abcd", digest, ["submit"], expires_at)


async def test_a_key_is_found_by_its_digest_alone(accounts: Accounts) -> None:
    key = await added(accounts)
    assert await accounts.key(b"d" * 32) == key
    for digest in (b"", b"d" * 31, b"e" * 32):
        assert await accounts.key(digest) is None


async def test_a_key_past_its_time_is_not_found(accounts: Accounts) -> None:
    await added(accounts, b"old", later(-timedelta(seconds=1)))
    await added(accounts, b"new", later())
    assert await accounts.key(b"old") is None
    assert await accounts.key(b"new") is not None


async def test_a_revoked_key_is_not_found_and_stays_in_the_list(accounts: Accounts) -> None:
    key = await added(accounts)
    revoked = await accounts.revoke_key(key.id)
    assert revoked.revoked_at is not None
    assert await accounts.key(b"d" * 32) is None
    assert await accounts.revoke_key(key.id) == revoked
    assert await accounts.key_by_id(key.id) == revoked
    with pytest.raises(KeyNotFound):
        await accounts.key_by_id(uuid4())
    assert await accounts.keys() == [revoked]
    with pytest.raises(KeyNotFound):
        await accounts.revoke_key(uuid4())


async def test_keys_are_listed_newest_first(accounts: Accounts) -> None:
    names = ["a", "b", "c"]
    for name in names:
        await accounts.add_key(Ids(lambda: 0).make(1)[0], name, "wl_", name.encode(), ["read"])
    assert [key.name for key in await accounts.keys()] == names[::-1]
    assert [key.name for key in await accounts.keys(limit=2)] == ["c", "b"]


async def test_the_use_of_a_key_is_noted_once_a_minute(accounts: Accounts, sql: Sql) -> None:
    key = await added(accounts)

    async def used_at() -> datetime | None:
        return (await accounts.keys())[0].last_used_at

    async def versions() -> str:
        version: str = await sql.fetchval("select xmin::text from windlass.api_key where id = $1", key.id)
        return version

    assert await used_at() is None
    await asyncio.gather(*(accounts.key(b"d" * 32) for _ in range(8)))
    first, version = await used_at(), await versions()
    assert first is not None
    for _ in range(3):
        await accounts.key(b"d" * 32)
    assert (await used_at(), await versions()) == (first, version)
    await sql.execute("update windlass.api_key set last_used_at = last_used_at - interval '61 seconds'")
    await accounts.key(b"d" * 32)
    again = await used_at()
    assert again is not None
    assert again > first


async def test_a_key_is_used_while_someone_holds_its_row(accounts: Accounts, sql: Sql) -> None:
    key = await added(accounts)
    async with sql.transaction():
        await sql.execute("select from windlass.api_key where id = $1 for update", key.id)
        async with asyncio.timeout(5):
            assert await accounts.key(b"d" * 32) is not None


# Tokens. --------------------------------------------------------------------------------------------------------------


async def test_of_many_who_spend_a_token_one_does(accounts: Accounts) -> None:
    until = later()
    spent = await asyncio.gather(*(accounts.spend(f"token {n % 4}", until) for n in range(64)))
    assert sum(spent) == 4
    assert not await accounts.spend("token 0", until)


async def test_a_token_past_its_time_is_spent_by_nobody(accounts: Accounts) -> None:
    assert not await accounts.spend("old", later(-timedelta(seconds=1)))


async def test_a_spent_token_is_not_spent_again_after_a_sweep(accounts: Accounts, store: Store, sql: Sql) -> None:
    assert await accounts.spend("new", later())
    assert await accounts.spend("old", until := later())
    await sql.execute("update windlass.spent set until = until - interval '3 hours' where token_id = 'old'")
    assert await store.upkeep.sweep_tokens() == 1
    assert not await accounts.spend("new", later())
    assert not await accounts.spend("old", until - 3 * HOUR)


async def test_what_is_revoked_says_since_when(accounts: Accounts, sql: Sql) -> None:
    await accounts.revoke("user:ann", later())
    await accounts.revoke("token", later())
    first = await accounts.revoked()
    assert set(first) == {"user:ann", "token"}
    await accounts.revoke("user:ann", later(-HOUR))
    second = await accounts.revoked()
    assert second["user:ann"] > first["user:ann"], "a later one counts"
    assert second["token"] == first["token"]
    left_s = await sql.fetchval(
        "select date_part('epoch', until - now()) from windlass.revoked where what = 'user:ann'"
    )
    assert left_s > 3000, "the longer one is kept"


async def test_what_was_revoked_is_forgotten_after_its_time_and_not_before(
    accounts: Accounts, store: Store, sql: Sql
) -> None:
    for what in ("now", "just gone", "gone", "long gone"):
        await accounts.revoke(what, later())
    ages = {"just gone": "61 minutes", "gone": "70 minutes", "long gone": "3 hours"}
    for what, age in ages.items():
        await sql.execute(f"update windlass.revoked set until = until - interval '{age}' where what = $1", what)
    assert set(await accounts.revoked()) == {"now", "just gone"}
    assert await store.upkeep.sweep_tokens() == 1
    assert set(await accounts.revoked()) == {"now", "just gone"}


async def test_a_sweep_goes_on_until_nothing_is_left(accounts: Accounts, store: Store, sql: Sql) -> None:
    for n in range(7):
        await accounts.spend(f"{n}", later())
    await sql.execute("update windlass.spent set until = until - interval '3 hours' where token_id <> '0'")
    assert await store.upkeep.sweep_tokens(limit=2) == 6
    assert await sql.fetchval("select count(*) from windlass.spent") == 1


# The audit. -----------------------------------------------------------------------------------------------------------


async def test_the_audit_is_read_newest_first_in_pages(accounts: Accounts) -> None:
    for n in range(5):
        await accounts.note("ann", "cancel", f"job {n}", {"n": n}, f"request-{n}")
    first = await accounts.audit(limit=2)
    rest = await accounts.audit(before=first[-1].id)
    assert [entry.target for entry in [*first, *rest]] == [f"job {n}" for n in range(4, -1, -1)]
    entry = first[0]
    assert (entry.actor, entry.action, entry.request_id) == ("ann", "cancel", "request-4")
    assert json.loads(entry.detail or "") == {"n": 4}
    assert abs((entry.at - datetime.now(UTC)).total_seconds()) < 60
    assert await accounts.audit(before=rest[-1].id) == []
    for odd in (0, -(2**70), 2**70):
        await accounts.audit(before=odd)


async def test_entries_past_their_retention_are_removed_oldest_first_in_pages(
    accounts: Accounts, store: Store, sql: Sql
) -> None:
    for n in range(7):
        await accounts.note("ann", "cancel", f"job {n}")
    await sql.execute("update windlass.audit set at = at - interval '401 days' where target < 'job 5'")
    await sql.execute("update windlass.audit set at = at - interval '399 days' where target = 'job 5'")
    assert [await store.upkeep.expire_audit(limit=3) for _ in range(3)] == [3, 2, 0]
    assert [entry.target for entry in await accounts.audit()] == ["job 6", "job 5"]


async def test_the_last_month_of_the_audit_stays_whoever_asks(accounts: Accounts, sql: Sql) -> None:
    await accounts.note("ann", "cancel", "recent")
    await accounts.note("ann", "cancel", "old")
    await sql.execute("update windlass.audit set at = at - interval '29 days'")
    assert await sql.fetchval("select windlass.expire_audit_v1(0, 100)") == 0
    await sql.execute("update windlass.audit set at = at - interval '2 days' where target = 'recent'")
    assert await sql.fetchval("select windlass.expire_audit_v1(-1, 100)") == 1


async def test_an_entry_needs_no_more_than_who_and_what(accounts: Accounts) -> None:
    await accounts.note("ann", "pause")
    (entry,) = await accounts.audit()
    assert (entry.target, entry.detail, entry.request_id) == (None, None, None)


_DEEP: list[Any] = []
for _ in range(100_000):
    _DEEP = [_DEEP]
_ROUND: list[Any] = []
_ROUND.append(_ROUND)


@pytest.mark.parametrize(
    "detail",
    [math.nan, "\0", "\ud800", "x" * 100_000, {"a": UUID(int=1)}, {(1, 2): 3}, _DEEP, _ROUND, object(), {1: 2}, "'"],
    ids=lambda value: type(value).__name__,
)
async def test_what_was_done_is_noted_whatever_is_said_of_it(accounts: Accounts, detail: Any) -> None:
    odd = "\0\ud800" + "x" * 10_000
    await accounts.note(odd, odd, odd, detail, odd)
    (entry,) = await accounts.audit()
    assert entry.detail is not None
    json.loads(entry.detail)
    assert max(map(len, (entry.actor, entry.action, entry.target or "", entry.detail))) < 20_000

"""An unfinished job may be shown as it was a moment ago; never longer, never after an action here, never to who says no."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from tests.eventually import aeventually
from tests.factory import TYPES, Rig
from tests.shortcuts import Behind, behind, client, values
from windlass.api.app import opened
from windlass.api.parts import Parts
from windlass.bus.redis.cache import RedisJobCache
from windlass.bus.redis.seals import Seals
from windlass.clock import steady_s
from windlass.config import Config
from windlass.embedded.valkey import EmbeddedValkey
from windlass.model import Declared, Status
from windlass.store.store import Store

LIFE_S = 30.0  # longer than any test takes, so that none depends on how busy the machine is
FRESH = {"cache-control": "no-cache"}


@pytest.fixture
async def door(store: Store, valkey: EmbeddedValkey) -> AsyncIterator[Behind]:
    with client(valkey.url) as connection:
        connection.flushall()
    async with behind(valkey.url, store, job_cache_s=LIFE_S) as door:
        yield door


@pytest.fixture
async def parts(store: Store, settings: Config, door: Behind) -> AsyncIterator[Parts]:
    await store.upkeep.declare([Declared(name) for name in TYPES])
    async with opened(door.intake, store.views, store.accounts, settings, door.shortcuts) as parts:
        yield parts


async def status(api: httpx2.AsyncClient, job_id: UUID, **headers: str) -> str:
    answer = await api.get(f"/v1/jobs/{job_id}", headers={name.replace("_", "-"): v for name, v in headers.items()})
    assert answer.status_code == 200
    found: str = answer.json()["status"]
    return found


async def kept(api: httpx2.AsyncClient, job_id: UUID, valkey: EmbeddedValkey) -> None:
    """Shown once, so that it is kept."""
    await status(api, job_id)

    async def there() -> bool:
        return bool(values(valkey.url))

    await aeventually(there)


async def test_an_unfinished_job_is_shown_again_as_it_was(
    api: httpx2.AsyncClient, rig: Rig, store: Store, valkey: EmbeddedValkey
) -> None:
    job_id = await rig.job(Status.SCHEDULED, payload={"password": "hush-7f3a", "n": 1})
    await kept(api, job_id, valkey)
    first = await api.get(f"/v1/jobs/{job_id}")
    await store.intake.cancel(job_id)  # by somebody else
    again = await api.get(f"/v1/jobs/{job_id}")
    assert again.content == first.content
    assert again.headers["etag"] == first.headers["etag"]
    assert again.json()["status"] == "scheduled"
    assert (await api.get(f"/v1/jobs/{job_id}", headers={"if-none-match": first.headers["etag"]})).status_code == 304
    for said in ("no-cache", "max-age=0", "No-Store"):
        assert await status(api, job_id, cache_control=said) == "cancelled"


async def test_what_is_kept_is_masked(api: httpx2.AsyncClient, rig: Rig, valkey: EmbeddedValkey) -> None:
    await kept(api, await rig.job(Status.SCHEDULED, payload={"password": "hush-7f3a"}), valkey)
    assert b"hush-7f3a" not in b"".join(values(valkey.url).values())


@pytest.mark.parametrize("there", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
async def test_a_finished_job_is_not_kept(
    api: httpx2.AsyncClient, rig: Rig, valkey: EmbeddedValkey, there: Status
) -> None:
    finished, unfinished = await rig.job(there), await rig.job(Status.READY)
    await status(api, finished)
    await kept(api, unfinished, valkey)
    assert len(values(valkey.url)) == 1


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
@pytest.mark.parametrize(
    ("verb", "there", "then"), [("cancel", Status.READY, "cancelled"), ("run-now", Status.SCHEDULED, "ready")]
)
async def test_after_an_action_here_the_job_is_shown_as_it_is(
    api: httpx2.AsyncClient, rig: Rig, valkey: EmbeddedValkey, verb: str, there: Status, then: str, many: bool
) -> None:
    job_id = await rig.job(there)
    await kept(api, job_id, valkey)
    path, body = (f"/v1/jobs/{verb}", {"ids": [str(job_id)]}) if many else (f"/v1/jobs/{job_id}/{verb}", None)
    assert (await api.post(path, json=body)).status_code == 200
    assert await status(api, job_id) == then


async def test_what_somebody_saw_before_an_action_is_not_kept_after_it(
    door: Behind, store: Store, rig: Rig, valkey: EmbeddedValkey
) -> None:
    """By another process, which knows nothing of the action: it looked before, and keeps after."""
    job_id = await rig.job(Status.READY)
    async with Seals(store.identities) as seals:
        other = RedisJobCache(door.link, seals, life_s=LIFE_S, now_ms=store.postgres.now_ms)
        await door.shortcuts.jobs.drop([job_id])
        other.keep(job_id, b"old", read_s=steady_s())
        await other.aclose()
        assert await other.look(job_id) is None
        assert await door.shortcuts.jobs.look(job_id) is None


async def test_what_was_held_up_since_it_was_read_is_kept_no_longer_for_that(door: Behind, rig: Rig) -> None:
    job_id = await rig.job(Status.READY)
    door.shortcuts.jobs.keep(job_id, b"old", read_s=steady_s() - LIFE_S)
    door.shortcuts.jobs.keep(other := uuid4(), b"new", read_s=steady_s())

    async def is_kept() -> bool:
        door.shortcuts.jobs.keep(other, b"new", read_s=steady_s())
        return await door.shortcuts.jobs.look(other) == b"new"

    await aeventually(is_kept)
    assert await door.shortcuts.jobs.look(job_id) is None


async def test_forged_and_stale_values_are_not_shown(
    api: httpx2.AsyncClient, door: Behind, store: Store, rig: Rig, valkey: EmbeddedValkey
) -> None:
    one, two = await rig.job(Status.READY), await rig.job(Status.SCHEDULED)
    await kept(api, one, valkey)
    ((name, value),) = values(valkey.url).items()
    with client(valkey.url) as connection:
        for forged in (b"", b'{"status": "completed"}', value[:-2] + b"x}", value + b" "):
            connection.set(name, forged)
            assert await status(api, one) == "ready"
            connection.delete(name)
        connection.set(name, value)
        assert await status(api, two) == "scheduled"
    await store.intake.cancel(one)
    assert await status(api, one) == "ready"
    async with Seals(store.identities) as seals:
        now_ms = store.postgres.now_ms
        later = RedisJobCache(
            door.link, seals, life_s=LIFE_S, now_ms=lambda: now_ms() + int(LIFE_S * 1000)
        )  # Redis has kept it for too long
        assert await later.look(one) is None
        await later.aclose()


async def test_a_job_that_is_not_there_is_not_invented(api: httpx2.AsyncClient, valkey: EmbeddedValkey) -> None:
    assert (await api.get(f"/v1/jobs/{uuid4()}")).status_code == 404
    assert values(valkey.url) == {}


async def test_large_jobs_are_not_kept(api: httpx2.AsyncClient, door: Behind, rig: Rig, valkey: EmbeddedValkey) -> None:
    await status(api, await rig.job(Status.READY, payload="x" * 70_000))
    await kept(api, await rig.job(Status.READY), valkey)
    assert len(values(valkey.url)) == 1


async def test_readiness_tells_how_redis_is(api: httpx2.AsyncClient, door: Behind, parts: Parts) -> None:
    answer: Any = await api.get("/readyz?verbose")
    assert answer.text.splitlines()[-1] == "redis: ok"


# Jobs just submitted. -----------------------------------------------------------------------------------------------

SUBMISSIONS: list[dict[str, Any]] = [
    {"type": "echo", "payload": {"n": 12345678901234567890, "password": "hush-7f3a"}},
    {"type": "echo", "payload": None, "name": "Ann's", "priority": -7, "thread_demand": 3, "queue": "other"},
    {"type": "echo", "delay_s": 60, "tags": ["a", "b"], "max_attempts": 9, "timeout_s": 5},
    {"type": "echo", "scheduled_at": "2099-01-01T02:00:00.5+02:00", "idempotency_key": "k", "if_too_wide": "wait"},
    {"type": "echo", "scheduled_at": "2020-01-01T00:00:00Z", "retry": {"base_s": 3, "jitter": 0}},
]


@pytest.mark.parametrize("submission", SUBMISSIONS)
async def test_a_job_is_cached_on_submission_exactly_as_it_would_be_read(
    api: httpx2.AsyncClient, valkey: EmbeddedValkey, submission: dict[str, Any]
) -> None:
    answer = await api.post("/v1/jobs", json=submission)
    job_id = answer.json()["id"]
    (cached,) = [value for name, value in (await in_redis(valkey, 1)).items() if b":job:" in name]
    assert b"hush-7f3a" not in cached
    shown = await api.get(f"/v1/jobs/{job_id}")
    assert shown.content in cached
    assert (await api.get(f"/v1/jobs/{job_id}", headers=FRESH)).content == shown.content


async def in_redis(valkey: EmbeddedValkey, count: int) -> dict[bytes, bytes]:
    """What is kept of jobs, once it is so much."""

    async def there() -> dict[bytes, bytes] | None:
        found = {name: value for name, value in values(valkey.url).items() if b":job:" in name}
        return found if len(found) >= count else None

    return await aeventually(there) or {}


async def test_jobs_of_a_small_batch_are_cached_and_those_of_a_large_one_are_not(
    api: httpx2.AsyncClient, valkey: EmbeddedValkey
) -> None:
    large = await api.post("/v1/jobs/bulk", json=[{"type": "echo", "payload": n} for n in range(501)])
    small = await api.post("/v1/jobs/bulk", json=[{"type": "echo", "payload": n} for n in range(500)])
    assert (large.status_code, small.status_code) == (202, 202)
    assert len(await in_redis(valkey, 500)) == 500


async def test_the_older_route_shows_active_jobs_from_the_cache_too(
    api: httpx2.AsyncClient, store: Store, valkey: EmbeddedValkey
) -> None:
    job_id = (await api.post("/jobs", json={"type": "echo", "payload": {"a": 1}, "name": "x"})).json()["id"]
    await in_redis(valkey, 1)
    fresh = (await api.get(f"/jobs/{job_id}", headers=FRESH)).json()
    await store.intake.cancel(UUID(job_id))  # by somebody else
    assert (await api.get(f"/jobs/{job_id}")).json() == fresh
    assert (fresh["status"], fresh["payload"], fresh["result"]) == ("pending", {"a": 1}, None)
    assert (await api.get(f"/jobs/{job_id}", headers=FRESH)).json()["status"] == "cancelled"


async def test_a_repeated_submission_and_a_large_job_are_not_cached(
    api: httpx2.AsyncClient, valkey: EmbeddedValkey
) -> None:
    keyed = {"type": "echo", "idempotency_key": "k"}
    await api.post("/v1/jobs", json={"type": "echo", "payload": "x" * 20_000})
    job_id = (await api.post("/v1/jobs", json=keyed)).json()["id"]
    ((name, _),) = (await in_redis(valkey, 1)).items()
    with client(valkey.url) as connection:
        connection.delete(name)
    assert (await api.post("/v1/jobs", json=keyed)).json()["id"] == job_id
    await api.post("/v1/jobs", json={"type": "echo", "payload": "last"})
    assert name not in await in_redis(valkey, 1)

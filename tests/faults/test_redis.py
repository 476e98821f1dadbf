"""Redis absent, killed, hung, wiped, full, slow or lying: the API answers the same, waits once at most, and says so once."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from tests.eventually import aeventually
from tests.factory import TYPES
from tests.faults.liar import Reply, garbage, lying, refusals, silence, wrong_kinds
from tests.shortcuts import Behind, behind, client
from windlass.api.app import build, opened
from windlass.auth.tokens import Signer
from windlass.bus.postgres import PostgresWaker
from windlass.bus.redis import link
from windlass.bus.waking import Waking
from windlass.config import ApiConfig, AuthConfig, Config, StoreConfig
from windlass.config.redis_url import parse_redis_url
from windlass.embedded.process import free_port
from windlass.embedded.valkey import EmbeddedValkey
from windlass.errors import Misconfigured
from windlass.model import Declared, scoped_key
from windlass.quotas import namespace_of
from windlass.store.store import Store

Logged = Callable[[], list[str]]
SECRET = "0123456789abcdef0123456789abcdef"


@dataclass(frozen=True, slots=True)
class Front:
    """The API over a store, with a Redis at `url` that may be anything."""

    http: httpx2.AsyncClient
    behind: Behind

    async def same(self) -> None:
        """Everything a Redis could spoil, answered as it must be."""
        key, http = uuid4().hex, self.http
        one, other = {"type": "echo", "payload": {"n": 1}}, {"type": "echo", "payload": {"n": 2}}
        headers = {"idempotency-key": key}
        first = await http.post("/v1/jobs", json=one, headers=headers)
        assert first.status_code == 202, first.text
        again = await http.post("/v1/jobs", json=one, headers=headers)
        assert (again.status_code, again.headers["idempotency-replayed"]) == (200, "true")
        assert again.json() == {**first.json(), "duplicate": True}
        assert (await http.post("/v1/jobs", json=other, headers=headers)).status_code == 422
        many = [{**one, "idempotency_key": key}, {**one, "idempotency_key": f"{key}-2"}]
        bulk = (await http.post("/v1/jobs/bulk", json=many)).json()
        assert (bulk["ids"][0], bulk["duplicates"]) == (first.json()["id"], 1)
        url = f"/v1/jobs/{first.json()['id']}"
        for _ in range(2):
            assert (await http.get(url)).json()["status"] == "ready"
        assert (await http.post(f"{url}/cancel")).json()["status"] == "cancelled"
        assert (await http.get(url)).json()["status"] == "cancelled"
        assert (await http.post("/v1/jobs", json=one, headers=headers)).json()["status"] == "cancelled"
        assert (await http.get("/readyz")).text == "ok"

    async def health(self) -> str:
        lines = (await self.http.get("/readyz?verbose")).text.splitlines()
        return next(line.partition(": ")[2] for line in lines if line.startswith("redis"))


@asynccontextmanager
async def front(store: Store, config: StoreConfig, url: str, *, well: bool = True) -> AsyncIterator[Front]:
    settings = Config(store=config, auth=AuthConfig(auth_secret=SECRET), api=ApiConfig(port=0, access_log="off"))
    await store.upkeep.declare([Declared(name) for name in TYPES])
    async with AsyncExitStack() as stack:
        waker = PostgresWaker(store.hints)
        stack.push_async_callback(waker.aclose)
        waking = Waking(store.intake, waker, store.hints)
        door = await stack.enter_async_context(behind(url, store, waking, well=well))
        parts = await stack.enter_async_context(
            opened(door.intake, store.views, store.accounts, settings, door.shortcuts)
        )
        headers = {"authorization": f"Bearer {Signer.of(settings.auth).sign('tester', ['admin'], 600)}"}
        transport = httpx2.ASGITransport(app=build(parts), raise_app_exceptions=True)
        yield Front(
            await stack.enter_async_context(
                httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers)
            ),
            door,
        )


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """What was logged about Redis so far."""
    with caplog.at_level(logging.INFO, logger="windlass.bus"):
        yield lambda: [each.getMessage() for each in caplog.records if each.name.startswith("windlass.bus.")]


async def is_well(front: Front, *, well: bool) -> None:
    async def there() -> bool:
        return front.behind.link.well is well

    await aeventually(there)


@contextmanager
def own_valkey(tmp_path: Path, **settings: str) -> Iterator[EmbeddedValkey]:
    with EmbeddedValkey(tmp_path / "valkey", settings={name.replace("_", "-"): v for name, v in settings.items()}) as v:
        yield v


# A time-out costs 50 ms, and no more than two can be under way when the first is noticed; the rest is for a busy machine.
ONCE_S = 0.3


# Not there. -------------------------------------------------------------------------------------------------------------


async def test_absent_at_start_it_is_not_waited_for_and_used_when_it_comes(
    store: Store, config: StoreConfig, tmp_path: Path, logged: Logged
) -> None:
    with own_valkey(tmp_path) as server:
        url = server.url
        server.kill()
        await aeventually(lambda: _is_gone(server))
        async with front(store, config, url, well=False) as api:
            for _ in range(3):
                await api.same()
            assert api.behind.waited_s < ONCE_S
            assert await api.health() == "does not answer; done without"
            assert len(logged()) == 1, logged()
            server.start()
            assert server.url == url
            await is_well(api, well=True)
            await api.same()
            assert await api.health() == "ok"
            assert logged()[1:] == ["Redis is used again"]


async def _is_gone(server: EmbeddedValkey) -> bool:
    return not server.alive


async def test_killed_it_is_done_without(store: Store, config: StoreConfig, tmp_path: Path, logged: Logged) -> None:
    with own_valkey(tmp_path) as server:
        async with front(store, config, server.url) as api:
            await api.same()
            server.kill()
            api.behind.asked.clear()
            for _ in range(3):
                await api.same()
            await is_well(api, well=False)
            await is_told(logged)
            assert api.behind.waited_s < ONCE_S
            assert len(logged()) == 1, logged()


async def is_told(logged: Logged) -> None:
    async def told() -> bool:
        return bool(logged())

    await aeventually(told)


async def test_killed_while_nobody_asks_it_is_noticed_all_the_same(tmp_path: Path, logged: Logged) -> None:
    with own_valkey(tmp_path) as server:
        async with link.Link(parse_redis_url(server.url), timeout_s=0.05, look_s=0.05) as idle:
            await aeventually(lambda: _is(idle, well=True))
            server.kill()
            await aeventually(lambda: _is(idle, well=False))
            await is_told(logged)
            assert idle.health() == "does not answer; done without"


async def _is(idle: link.Link, *, well: bool) -> bool:
    return idle.well is well


async def test_hung_it_costs_one_time_out_and_is_used_again_when_it_goes_on(
    store: Store, config: StoreConfig, tmp_path: Path, logged: Logged
) -> None:
    with own_valkey(tmp_path) as server:
        async with front(store, config, server.url) as api:
            await api.same()
            os.kill(server.pid, signal.SIGSTOP)
            try:
                api.behind.asked.clear()
                for _ in range(5):
                    await api.same()
                assert api.behind.waited_s < ONCE_S
                assert api.behind.waited_s > 0.04, "and it did cost that one"
                await is_told(logged)
                assert len(logged()) == 1, logged()
            finally:
                os.kill(server.pid, signal.SIGCONT)
            await is_well(api, well=True)
            await api.same()
            assert logged()[1:] == ["Redis is used again"]


# There, and no good. ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reply", [garbage, silence], ids=["garbage", "five seconds late"])
async def test_one_that_never_answers_as_it_should_is_not_asked(
    store: Store, config: StoreConfig, logged: Logged, reply: Reply
) -> None:
    async with lying(reply) as url, front(store, config, url, well=False) as api:
        for _ in range(3):
            await api.same()
        assert api.behind.waited_s < ONCE_S
        await is_told(logged)
        assert len(logged()) == 1, logged()


async def test_one_that_becomes_slow_costs_one_time_out(store: Store, config: StoreConfig, logged: Logged) -> None:
    slow = asyncio.Event()
    async with (
        lying(lambda command: None if slow.is_set() else refusals(command)) as url,
        front(store, config, url) as api,
    ):
        slow.set()
        for _ in range(5):
            await api.same()
        assert api.behind.waited_s < ONCE_S
        await is_told(logged)
        assert len(logged()) == 1, logged()


@pytest.mark.parametrize(
    ("reply", "says"), [(refusals, "refuses"), (wrong_kinds, None)], ids=["refusals", "other questions' answers"]
)
async def test_one_that_answers_nonsense_or_refuses_changes_no_answer(
    store: Store, config: StoreConfig, logged: Logged, reply: Reply, says: str | None
) -> None:
    async with lying(reply) as url, front(store, config, url) as api:
        for _ in range(5):
            await api.same()
        about = {line.split("; ")[0] for line in logged()}
        assert len(about) == len(logged()), "each kind of trouble once"
        assert all(says in line for line in logged() if says)


async def test_wiped_all_the_while_it_changes_no_answer(
    store: Store, config: StoreConfig, valkey: EmbeddedValkey, logged: Logged
) -> None:
    async def wipe() -> None:
        while True:
            with client(valkey.url) as connection:
                connection.flushall()
            await asyncio.sleep(0.01)

    async with front(store, config, valkey.url) as api:
        wiping = asyncio.create_task(wipe())
        for _ in range(5):
            await api.same()
        wiping.cancel()
        await asyncio.wait([wiping])
        assert logged() == []


@pytest.mark.parametrize("policy", ["allkeys-lru", "noeviction"])
async def test_full_it_forgets_or_refuses_and_changes_no_answer(
    store: Store, config: StoreConfig, tmp_path: Path, logged: Logged, policy: str
) -> None:
    with own_valkey(tmp_path, maxmemory="2mb", maxmemory_policy=policy) as server:
        async with front(store, config, server.url) as api:
            job = {"type": "echo", "payload": {}}
            batch = [{**job, "idempotency_key": f"{policy}-{n}"} for n in range(5_000)]
            for _ in range(2):
                answer = await api.http.post("/v1/jobs/bulk", json=batch)
            assert answer.json()["duplicates"] == 5_000
            await api.same()
            with client(server.url) as connection:
                info, size = connection.info("memory"), connection.dbsize()
            assert info["used_memory"] < 4_000_000
            assert size < 5_000
            kinds = {line.split("; ")[0] for line in logged()}
            assert len(kinds) == len(logged()), logged()


# At start. ----------------------------------------------------------------------------------------------------------------


async def test_a_wrong_password_is_told_once_without_it(
    store: Store, config: StoreConfig, tmp_path: Path, logged: Logged
) -> None:
    with EmbeddedValkey(tmp_path / "valkey", listen="tcp") as server:
        port = server.url.rpartition(":")[2]
        async with front(store, config, f"redis://:hush-7f3a@127.0.0.1:{port}", well=False) as api:
            await api.same()
            await is_told(logged)
            assert "hush-7f3a" not in "".join(logged())
            assert "invalid username-password pair" in logged()[0]


async def test_without_the_driver_the_start_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "_missing", True)
    with pytest.raises(Misconfigured, match="needs the extra redis"):
        link.Link(parse_redis_url(f"redis://127.0.0.1:{free_port()}"), timeout_s=0.05)


# Restored, or behind. -----------------------------------------------------------------------------------------------------


async def test_a_job_that_redis_knows_and_postgresql_has_lost_is_stored_anew(
    store: Store, config: StoreConfig, valkey: EmbeddedValkey
) -> None:
    """As after a crash of a PostgreSQL that was told not to wait for its disk: no other incarnation, and yet a job less."""
    async with front(store, config, valkey.url) as api:
        body, headers = {"type": "echo", "payload": {}}, {"idempotency-key": uuid4().hex}
        first = (await api.http.post("/v1/jobs", json=body, headers=headers)).json()
        keys = api.behind.shortcuts.keys

        async def known() -> bool:
            me = (await api.http.get("/v1/auth/me")).json()["subject"]
            return (await keys.recall([scoped_key(namespace_of(me, None), headers["idempotency-key"])])).found != {}

        await aeventually(known)
        async with store.postgres.connection() as connection:
            await connection.execute(
                "truncate windlass.job, windlass.ready, windlass.idempotency, windlass.counter, windlass.tally"
            )
        second = await api.http.post("/v1/jobs", json=body, headers=headers)
        assert second.status_code == 202
        assert second.json()["id"] != first["id"]
        third = await api.http.post("/v1/jobs", json=body, headers=headers)
        assert (third.status_code, third.json()["id"]) == (200, second.json()["id"])

"""Roles with the rights of `windlass migrate grants`: what each is for works, and what goes beyond it is refused."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import asyncpg
import pytest

from tests.factory import Rig
from windlass.app import App
from windlass.bus.protocol import NoWaker
from windlass.config import LeaseConfig, PlacementConfig, StoreConfig
from windlass.errors import Misconfigured
from windlass.leader.loop import Leader
from windlass.lifecycle import Completed, Failed
from windlass.model import Declared, Error, NewJob, Status
from windlass.store import migrate, partitions
from windlass.store.grants import KINDS, RIGHTS, Kind, grants, lacking
from windlass.store.partitions import Bounds, _create
from windlass.store.setup_check import check_setup
from windlass.store.store import Store, open_store

Sql = asyncpg.Connection
MakeRole = Callable[..., Awaitable[StoreConfig]]


@pytest.fixture
def make_role(sql: Sql, config: StoreConfig) -> MakeRole:
    """The store as a new role that can log in, and nothing else."""

    async def make(*, in_role: str | None = None) -> StoreConfig:
        name = f"role_{uuid4().hex[:12]}"
        await sql.execute(f"create role {name} login nosuperuser" + (f" in role {in_role}" if in_role else ""))
        assert config.database_url is not None
        return replace(config, database_url=config.database_url.replace("windlass@", f"{name}@"))

    return make


def role_of(config: StoreConfig) -> str:
    assert config.database_url is not None
    return config.database_url.partition("//")[2].partition("@")[0]


async def granted(sql: Sql, config: StoreConfig, *kinds: Kind) -> StoreConfig:
    await sql.execute(grants(role_of(config), kinds, config.schema))
    return config


async def test_every_table_and_view_is_in_the_list_of_rights(sql: Sql) -> None:
    rows = await sql.fetch(
        "select relname from pg_class where relnamespace = 'windlass'::regnamespace and relkind in ('r', 'p', 'v')"
        " and not relispartition"
    )
    assert {row["relname"] for row in rows} == RIGHTS.keys(), "a new table needs a line in store/grants.py"


async def test_an_enqueuer_enqueues_in_its_own_transaction_and_gets_results(
    sql: Sql, make_role: MakeRole, store: Store
) -> None:
    config = await granted(sql, await make_role(), "enqueuer")
    worker = await Rig(store).worker(types=["double"])
    await store.hints.rest(worker.id, queues=["default"], types=["double"], free=8)
    async with App(config=config) as app:

        @app.job
        def double(n: int) -> int:
            return 2 * n

        handle = await double.aenqueue(2)
        own = await asyncpg.connect(config.database_url)
        async with own.transaction():
            await double.options(connection=own, idempotency_key="k", tags=["t"], delay_s=3600).aenqueue(3)
            again = await double.options(connection=own, idempotency_key="k", tags=["t"], delay_s=3600).aenqueue(3)
        assert again.duplicate
        declared = await sql.fetch("select type, fields from windlass.type_version")
        assert [tuple(row) for row in declared] == [("double", ["n"])], (
            "or its jobs would die at workers of an older version"
        )
        (lease,) = await worker.claim()
        await worker.settle(lease, Completed(4))
        assert await handle.aresult(timeout_s=10) == 4
        assert await handle.astatus() is Status.COMPLETED
        with pytest.raises(Misconfigured, match="permission denied"):
            await again.acancel()
    for refused in (
        "select * from windlass.account",
        "delete from windlass.job",
        "update windlass.running set rank = 0",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await own.execute(refused)
    for refused in ("create table windlass.mine ()", "drop table windlass.tag"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await own.execute(refused)
    await own.close()


async def test_a_worker_works_and_does_every_chore_but_partitions(sql: Sql, make_role: MakeRole, rig: Rig) -> None:
    config = replace(await granted(sql, await make_role(), "worker"), partitions_ahead=9)
    await rig.enqueue(5, tags=["t"], max_attempts=1)
    async with open_store(config) as store:
        own = Rig(store)
        await store.upkeep.declare([Declared("echo"), Declared("other")])
        worker = await own.worker(lease_ttl_s=1)
        await store.hints.rest(worker.id, queues=["default"], types=["echo"], free=8)
        first, second, third, *lost = await worker.claim(free=5)
        await worker.settle(first, Completed({}))
        await worker.settle(second, Failed(Error("E", "m"), final=True))
        await worker.settle(third, Failed(Error("E", "m")))
        assert len(lost) == 2
        await own.job(Status.HELD)
        await own.enqueue(thread_demand=99, if_too_wide="fail")
        leader = Leader(
            store.upkeep,
            store.claims(),
            NoWaker(),
            holder=uuid4(),
            lease=LeaseConfig(),
            placement=PlacementConfig(),
            rolls=False,
        )
        await leader.term._try(0.0)
        for chore in leader._chores:
            await chore.act()
        await leader.term.leave()
        await (
            store.identities.read()
        )  # or there would be no locks in Redis, and the API would show jobs as waiting that run
        assert await store.upkeep.partition_problem() is not None
        with pytest.raises(Misconfigured, match=r"permission denied|must be owner"):
            await store.upkeep.roll_partitions()
        with pytest.raises(Misconfigured, match="permission denied"):
            await store.accounts.users()


async def test_an_api_does_what_operators_ask_for(sql: Sql, make_role: MakeRole, rig: Rig) -> None:
    config = await granted(sql, await make_role(), "api")
    dead, waiting, held, done = [
        await rig.job(status) for status in (Status.FAILED, Status.READY, Status.HELD, Status.COMPLETED)
    ]
    async with open_store(config) as store:
        await store.intake.enqueue([NewJob("echo", tags=["t"], idempotency_key="k"), NewJob("echo")])
        assert await store.intake.cancel(waiting) is Status.CANCELLED
        assert await store.intake.retry(dead) is Status.READY
        assert await store.intake.run_now(held) is Status.READY
        await store.intake.set_paused("default", paused=True)
        await store.accounts.add_user("ann", "x", ["read"])
        await store.accounts.note("ann", "did", None, None)
        assert [user.name for user in await store.accounts.users()] == ["ann"]
        later = datetime.now(UTC) + timedelta(hours=1)
        assert await store.accounts.spend("token", later)
        await store.accounts.revoke("token", later)
        assert list(await store.accounts.revoked()) == ["token"]
        assert len(await store.accounts.audit()) == 1
        assert (await store.views.job(done)).status is Status.COMPLETED
        assert (await store.views.jobs()).jobs
        assert await store.views.counts()
        await store.views.workers()
        await store.identities.read()
        with pytest.raises(Misconfigured, match="permission denied"):
            await Rig(store).worker()


async def test_an_owner_of_the_schema_alone_migrates_and_rolls_partitions(
    sql: Sql, make_role: MakeRole, url: str
) -> None:
    config = replace(await make_role(), schema="jobs")
    await sql.execute(grants(role_of(config), ["owner"], "jobs"))
    own = await asyncpg.connect(config.database_url)
    await migrate.upgrade(own, "jobs")
    assert await partitions.rights_problem(own, "jobs") is None
    day = datetime.now(UTC).date() - timedelta(days=30)
    for table in ("attempt", "outcome", "tag", "job"):
        await _create(own, "jobs", table, Bounds(day, day + timedelta(days=1)))
    async with open_store(config) as store:
        assert len((await store.upkeep.roll_partitions()).removed) == 1
    report = await check_setup(config)
    assert report.kinds == KINDS
    await migrate.downgrade(own, "jobs")
    await own.close()


async def test_a_member_of_the_owner_makes_partitions_that_belong_to_the_owner(sql: Sql, make_role: MakeRole) -> None:
    owner = replace(await make_role(), schema="jobs")
    await sql.execute(grants(role_of(owner), ["owner"], "jobs"))
    own = await asyncpg.connect(owner.database_url)
    await migrate.upgrade(own, "jobs")
    await own.close()
    member = replace(await make_role(in_role=role_of(owner)), schema="jobs", partitions_ahead=6)
    async with open_store(member) as store:
        assert await store.upkeep.partition_problem() is None
        assert await store.upkeep.partition_days_ahead() == 4
        assert (await store.upkeep.roll_partitions()).made
        assert await store.upkeep.partition_days_ahead() == 7
    owners = await sql.fetch(
        "select distinct pg_get_userbyid(relowner) as name from pg_class where relnamespace = 'jobs'::regnamespace"
    )
    assert [row["name"] for row in owners] == [role_of(owner)]


async def test_the_check_tells_what_a_role_may_do_and_what_it_lacks(sql: Sql, make_role: MakeRole) -> None:
    config = await granted(sql, await make_role(), "worker")
    report = await check_setup(config)
    assert report.kinds == ("enqueuer", "worker")
    own = await asyncpg.connect(config.database_url)
    assert await migrate.upgrade(own) == []  # as a deploy does each time
    assert report.days_ahead == 4
    assert f'grant "windlass" to "{role_of(config)}"' in (report.partition_problem or "")
    await sql.execute(f"revoke insert on windlass.job from {role_of(config)}")
    assert await lacking(own, "windlass", "enqueuer") == ["insert on job"]
    await own.close()

"""The storm: whole nodes under load while their processes and their database are killed at random; then the judge.

    python -m tests.faults.storm --jobs 100000 --seconds 60 --nodes 2 --processes 3 --threads 8 --seed 1
    python -m tests.faults.storm --jobs 20000 --seconds 120 --nodes 2 --processes 2 --life 8

Every second a worker process is killed, now and then also a guard or a supervisor (whose node is started again), and
PostgreSQL twice, all by SIGKILL. With `--life` whole nodes are killed instead, supervisor, guard and workers together, so that
none lives longer than that: then every job of a dead worker must start again within the lease and two seconds.
Nothing here is told to the nodes, and nothing is asked of them but their work.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import asyncpg
import psutil

from tests.eventually import aeventually, eventually
from tests.faults.judge import Verdict, gather, judge
from tests.faults.node import Node
from tests.pressure import waited_for_processors_s
from windlass.bus.postgres import PostgresWaker
from windlass.bus.waking import Waking
from windlass.clock import steady_s
from windlass.config import StoreConfig
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.errors import Unavailable
from windlass.model import NewJob
from windlass.store import migrate
from windlass.store.ids import Ids
from windlass.store.store import Store, open_store

_BATCH: Final = 10
_SHORT_S: Final = (0.005, 0.05)
_LONG_S: Final = (0.5, 2.0)
_KILL_S: Final = 1.0
_GUARD_AT, _SUPERVISOR_AT, _ROUND = 3, 8, 10  # of so many kills, at which a guard and a supervisor follow
_LOOK_S: Final = 0.2
_NO_DATABASE: Final = 6
_ATTEMPTS: Final = 100
_LATE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    jobs: int = 100_000
    seconds: float = 60.0
    nodes: int = 2
    processes: int = 3
    threads: int = 8
    long: float = 0.002  # the share of jobs that are under way long enough to meet those who take them over
    seed: int = 1
    submitters: int = 4  # the first of them submits one by one: such jobs are handed to workers at rest
    batch: int = _BATCH  # the others
    quiet_s: float = 600.0  # how long it may take until all jobs are done, after the last kill
    life: float = 0.0  # seconds that a node lives, where whole nodes are killed and nothing else
    lease: float = 15.0


# What is shared with other tests of whole nodes. ------------------------------------------------------------------------


class Witness:
    """A file of lines that outlive whatever happens to this process."""

    def __init__(self, file: Path) -> None:
        self._fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, lines: Iterable[str]) -> None:
        os.write(self._fd, "".join(f"{line}\n" for line in lines).encode())

    def fault(self, what: str, pids: Iterable[int] = ()) -> None:
        self.note([json.dumps({"what": what, "at_s": steady_s(), "pids": list(pids)})])


class Load:
    """Clients that submit at a steady pace, and repeat with the same ids what nobody answered."""

    def __init__(self, store: Store, file: Path) -> None:
        self.repeated = 0
        self._intake = Waking(store.intake, PostgresWaker(store.hints), store.hints)
        self._ids = Ids(store.postgres.now_ms)
        self._witness = Witness(file)

    async def submit(self, make: Callable[[UUID], NewJob], count: int, seconds: float, batch: int = _BATCH) -> None:
        """So many jobs, evenly over the time; as soon as possible once behind."""
        began_s = steady_s()
        for n in range(0, count, batch):
            await until(began_s + seconds * n / count)
            await self.send([make(job_id) for job_id in self._ids.make(min(batch, count - n))])

    async def send(self, batch: list[NewJob]) -> None:
        self._witness.note(f"sent {job.id}" for job in batch)
        await aeventually(lambda: self._answered(batch), timeout_s=120)
        self._witness.note(f"acked {job.id}" for job in batch)

    async def _answered(self, batch: list[NewJob]) -> bool:
        try:
            await self._intake.enqueue(batch)
        except Unavailable:
            self.repeated += 1
            return False
        return True


async def until(moment_s: float) -> None:
    async def come() -> bool:
        return steady_s() >= moment_s

    await aeventually(come, timeout_s=moment_s - steady_s() + 60)


async def quiet(url: str, timeout_s: float) -> None:
    """Wait until every job has finished."""
    connection = await asyncpg.connect(url)

    async def nothing_waits() -> bool:
        await until(steady_s() + _LOOK_S)
        tables = ("scheduled", "held", "ready", "running")
        left = " or ".join(f"exists (select from windlass.{table})" for table in tables)
        return not await connection.fetchval(f"select {left}")

    try:
        await aeventually(nothing_waits, timeout_s)
    finally:
        await connection.close()


# The storm. -------------------------------------------------------------------------------------------------------------


class Storm:
    def __init__(self, plan: Plan, folder: Path, server: EmbeddedPostgres) -> None:
        self._plan = plan
        self._folder = folder
        self._server = server
        self._url = server.url
        self._chance = random.Random(plan.seed)
        self._faults = Witness(folder / "faults")
        self._nodes: list[Node] = []
        self._waited: list[
            tuple[float, float]
        ] = []  # when, and how long processes have waited for a processor until then
        self._orphans: list[psutil.Process] = []  # guards of killed supervisors: they end when they are done

    async def rage(self, load: Load) -> None:
        """Load and faults together, for as long as planned."""
        plan = self._plan
        self._nodes = [self._node() for _ in range(plan.nodes)]
        for node in self._nodes:
            await asyncio.to_thread(node.ready, plan.processes)
        began_s = steady_s()
        async with asyncio.TaskGroup() as group:
            for n in range(plan.submitters):
                count = plan.jobs // plan.submitters + (n < plan.jobs % plan.submitters)
                group.create_task(load.submit(self._job, count, plan.seconds, batch=plan.batch if n else 1))
            group.create_task(self._watch_pressure(began_s + plan.seconds))
            if plan.life:
                group.create_task(self._kill_nodes(began_s))
            else:
                group.create_task(self._kill_processes(began_s))
                group.create_task(self._kill_database(began_s))

    async def settle(self) -> None:
        """Wait for the last job, then let the nodes go in order."""
        self._revive()
        await quiet(self._url, self._plan.quiet_s)
        for node in self._nodes:
            node.signal()
        for node in self._nodes:
            assert await asyncio.to_thread(node.ended) == 0, node.log.read_text()
        await asyncio.to_thread(psutil.wait_procs, self._orphans, 60)

    def end(self) -> None:
        for node in self._nodes:
            node.destroy()

    def _node(self) -> Node:
        plan = self._plan
        return Node(
            self._url, self._folder / "effects", processes=plan.processes, threads=plan.threads,
            lease_ttl_s=plan.lease, heartbeat_s=plan.lease / 3,
        )  # fmt: skip

    def _job(self, job_id: UUID) -> NewJob:
        chance = self._chance
        seconds = chance.uniform(*(_LONG_S if chance.random() < self._plan.long else _SHORT_S))
        # A start that died counts, and here they die more often than three times.
        return NewJob(chance.choice(("work", "toil")), {"seconds": seconds}, id=job_id, max_attempts=_ATTEMPTS)

    async def _kill_processes(self, began_s: float) -> None:
        for n in range(1, int(self._plan.seconds / _KILL_S)):
            await until(began_s + n * _KILL_S)
            self._revive()
            await asyncio.to_thread(self._kill_worker)
            if n % _ROUND == _GUARD_AT:
                await asyncio.to_thread(self._kill_guard)
            if n % _ROUND == _SUPERVISOR_AT:
                await asyncio.to_thread(self._kill_supervisor)

    def _revive(self) -> None:
        """A node that was started while the database was away says so and ends: whoever keeps it starts it again."""
        for n, node in enumerate(self._nodes):
            if (code := node.process.poll()) is not None:
                assert code == _NO_DATABASE, node.log.read_text()
                self._nodes[n] = self._node()

    def _kill_worker(self) -> None:
        workers = [worker for node in self._nodes for worker in node.workers]
        if workers:
            self._kill("worker", self._chance.choice(workers))

    def _kill_guard(self) -> None:
        guards = [guard for node in self._nodes for guard in node.guards]
        if guards:
            self._kill("guard", self._chance.choice(guards))

    def _kill_supervisor(self) -> None:
        n = self._chance.randrange(len(self._nodes))
        doomed = self._nodes[n]
        self._orphans += doomed.guards
        self._kill("supervisor", psutil.Process(doomed.pid))
        doomed.process.wait(10)
        self._nodes[n] = self._node()

    async def _watch_pressure(self, until_s: float) -> None:
        while steady_s() < until_s:
            self._waited.append((steady_s(), waited_for_processors_s()))
            await until(steady_s() + _LOOK_S)

    def busiest_s(self, window_s: float) -> float:
        """How long processes had to wait for a processor during the busiest time of that length."""
        return max(
            later - earlier
            for began_s, earlier in self._waited
            for ended_s, later in self._waited
            if began_s <= ended_s <= began_s + window_s
        )

    async def _kill_nodes(self, began_s: float) -> None:
        """The oldest first, so that each lives about as long; each after its successor has come up, however slowly."""
        pause_s = self._plan.life / self._plan.nodes
        for n in range(1, int(self._plan.seconds / pause_s)):
            await until(began_s + n * pause_s)
            self._nodes.append(self._node())
            await asyncio.to_thread(self._nodes[-1].ready, self._plan.processes)
            await asyncio.to_thread(self._kill_node)

    def _kill_node(self) -> None:
        doomed = self._nodes.pop(0)
        frozen = doomed.freeze()  # so that no guard gives anything back
        self._faults.fault("node", [one.pid for one in frozen])
        doomed.destroy()

    def _kill(self, what: str, victim: psutil.Process) -> None:
        with suppress(psutil.NoSuchProcess):
            pids = [victim.pid, *(child.pid for child in victim.children(recursive=True))]
            self._faults.fault(what, pids)
            victim.kill()

    async def _kill_database(self, began_s: float) -> None:
        for third in (1, 2):
            await until(began_s + self._plan.seconds * third / 3)
            await asyncio.to_thread(self._restart_database)

    def _restart_database(self) -> None:
        self._faults.fault("database")
        self._server.kill()
        eventually(lambda: not self._server.alive)
        self._server.start()
        self._faults.fault("database back")


async def weather(plan: Plan, folder: Path) -> Verdict:
    """A whole storm in an empty folder (of a short name: the database's socket is in it), and what the judge says."""
    async with _database(folder / "data") as (server, store):
        load = Load(store, folder / "client")
        storm = Storm(plan, folder, server)
        began_s = steady_s()
        try:
            await storm.rage(load)
            raged_s = steady_s()
            await storm.settle()
        finally:
            await asyncio.to_thread(storm.end)
        evidence = await gather(folder, server.url)
        within_s = plan.lease + _LATE_S
        verdict = judge(evidence, node_within_s=within_s + storm.busiest_s(within_s) if plan.life else None)
        took = f"{raged_s - began_s:.1f} s of faults, quiet {steady_s() - raged_s:.1f} s later"
        verdict.figures = {"plan": plan, "took": took, "submissions repeated": load.repeated} | verdict.figures
        return verdict


@asynccontextmanager
async def _database(folder: Path) -> AsyncIterator[tuple[EmbeddedPostgres, Store]]:
    """PostgreSQL with its default durability."""
    with EmbeddedPostgres(folder) as server:
        connection: asyncpg.Connection[Any] = await asyncpg.connect(server.url)
        assert await connection.fetchval("select current_setting('fsync')") == "on"
        await migrate.upgrade(connection)
        await connection.close()
        async with open_store(StoreConfig(database_url=server.url, pool_min=0, pool_max=10)) as store:
            yield server, store


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("jobs", "nodes", "processes", "threads", "seed", "submitters", "batch"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Plan(), name))
    for name in ("seconds", "long", "life", "lease"):
        parser.add_argument(f"--{name}", type=float, default=getattr(Plan(), name))
    plan = Plan(**vars(parser.parse_args()))
    folder = Path(tempfile.mkdtemp(prefix="storm-"))
    verdict = asyncio.run(weather(plan, folder))
    print(f"{verdict.table()}\nevidence        {folder}")
    return 0 if verdict else 1


if __name__ == "__main__":
    sys.exit(main())

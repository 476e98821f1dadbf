"""Rolling restarts under load: jobs longer than the drain are given back, and none is lost, burned or finished twice."""

import asyncio
import random
from pathlib import Path
from typing import Final
from uuid import UUID

from tests.faults.judge import gather, judge
from tests.faults.node import Node
from tests.faults.storm import Load, Witness, quiet
from windlass.model import NewJob
from windlass.store.store import Store

RESTARTS: Final = 20
DRAIN_S: Final = 0.2
LONG_S: Final = (0.3, 1.5)  # some outlast even what comes after the drain: their process ends with them in it
LONG_TYPES: Final = ("work", "work", "work", "toil")  # a blocking call ends when it likes, and each costs us a second
SHORT_S: Final = (0.005, 0.05)
JOBS_A_RESTART: Final = 120


class Fleet:
    """Two nodes, of which one is restarted after the other."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._faults = Witness(folder / "faults")
        self.nodes = [self._node(), self._node()]

    def _node(self) -> Node:
        return Node(self._url, self._folder / "effects", processes=1, threads=8, drain_s=DRAIN_S)

    def restart(self, n: int) -> None:
        """As a deployment does: TERM, wait for the end, start the new one, wait until it works."""
        old = self.nodes[n]
        self._stop(old)
        self.nodes[n] = self._node()
        self.nodes[n].ready()

    def _stop(self, node: Node) -> None:
        self._faults.fault("drain", [one.pid for one in node.everyone()])
        node.signal()
        assert node.ended() == 0, node.log.read_text()

    def stop(self) -> None:
        for node in self.nodes:
            self._stop(node)

    def destroy(self) -> None:
        for node in self.nodes:
            node.destroy()


async def test_twenty_rolling_restarts_lose_burn_and_double_nothing(url: str, store: Store, tmp_path: Path) -> None:
    fleet = Fleet(url, tmp_path)
    load = Load(store, tmp_path / "client")
    chance = random.Random(1)

    def job(job_id: UUID) -> NewJob:
        if chance.random() < 0.1:
            type_, seconds = chance.choice(LONG_TYPES), chance.uniform(*LONG_S)
        else:
            type_, seconds = chance.choice(("work", "toil")), chance.uniform(*SHORT_S)
        return NewJob(type_, {"seconds": seconds}, id=job_id)

    try:
        for node in fleet.nodes:
            await asyncio.to_thread(node.ready)
        for n in range(RESTARTS):
            async with asyncio.TaskGroup() as group:
                group.create_task(load.submit(job, JOBS_A_RESTART, seconds=1))
                group.create_task(asyncio.to_thread(fleet.restart, n % 2))
        await quiet(url, timeout_s=30)
        await asyncio.to_thread(fleet.stop)
    finally:
        await asyncio.to_thread(fleet.destroy)

    verdict = judge(await gather(tmp_path, url))
    print(f"\n{verdict.table()}")
    assert verdict, verdict.table()
    assert not load.repeated, "a restart of workers is none of the submitters' business"
    assert verdict.figures["extra starts"] != "0", "no job outlasted a drain: nothing was shown"

"""Two mails never: a worker is killed at random points of its exchange with a real SMTP server that takes every mail.

    python -m tests.faults.mail_kills --kills 200 --seed 1

Whole nodes (`windlass worker`) send mail jobs, each to an address of its own, while their worker processes are killed by
SIGKILL: a random moment after an exchange has reached a random point (MAIL, RCPT, DATA, the mail taken), with the server's
answer held back or not. Afterwards, from the witness of the server and from the store: no address has two mails, every
job is completed and its address has one, or it is held and says that it needs a decision. Then each is decided by what the
server knows, and in the end every address has exactly one.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import asyncpg
import psutil
from aiosmtpd.smtp import SMTP

from tests.eventually import aeventually
from tests.faults.node import Node
from windlass.config import StoreConfig
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.model import Job, NewJob, Status, needs_decision
from windlass.store import migrate
from windlass.store.protocol import JobQuery
from windlass.store.store import Store, open_store

APP: Final = "windlass.jobs:app"
POINTS: Final = ("mail", "rcpt", "data", "taken", "taken")
_JITTER_S: Final = 0.006  # after the point: somewhere on the way to the next, or past our record that it is done
_HOLDS: Final = 0.3
_UNDER_WAY: Final = 8
_QUIET_S: Final = 600.0


@dataclass(eq=False)
class Aim:
    """One kill to come: the worker of the next exchange, so long after it has reached a point. `holds`: the server does not
    answer before that is done."""

    point: str
    after_s: float
    holds: bool
    node: Node
    session: Any = None
    victim: psutil.Process | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def strike(self) -> None:
        await asyncio.sleep(self.after_s)
        if self.victim is not None:
            with suppress(psutil.NoSuchProcess):
                self.victim.kill()
        self.done.set()


class MailServer:
    """Takes every mail, lets an exchange be aimed at, and remembers who got what."""

    def __init__(self) -> None:
        self.port = 0
        self.taken: list[tuple[str, str]] = []  # address and Message-ID
        self.aim: Aim | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def at(self, point: str, session: Any) -> None:
        """An exchange is at this point."""
        aim = self.aim
        if aim is None:
            return
        if aim.session is None and point == "mail":
            aim.session = session  # the next exchange is the one; meanwhile it waits
            aim.victim = await asyncio.to_thread(_worker_of, aim.node, session.peer[1])
        if aim.session is session and aim.point == point:
            self.aim = None
            task = asyncio.create_task(aim.strike())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            if aim.holds:
                await aim.done.wait()

    async def handle_MAIL(  # noqa: N802 - the library's names
        self, server: Any, session: Any, envelope: Any, address: str, options: list[str]
    ) -> str:
        envelope.mail_from = address
        await self.at("mail", session)
        return "250 yes"

    async def handle_RCPT(  # noqa: N802
        self, server: Any, session: Any, envelope: Any, address: str, options: list[str]
    ) -> str:
        envelope.rcpt_tos.append(address)
        await self.at("rcpt", session)
        return "250 yes"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        message_id = str(message_from_bytes(envelope.content)["Message-ID"])
        self.taken += [(address, message_id) for address in envelope.rcpt_tos]
        await self.at("taken", session)
        return "250 taken"


def _worker_of(node: Node, port: int) -> psutil.Process | None:
    """The worker process that speaks, itself or through a child, from this port."""
    for worker in node.workers:
        with suppress(psutil.Error):
            family = [worker, *worker.children(recursive=True)]
            if any(end.laddr and end.laddr.port == port for each in family for end in each.net_connections("tcp")):
                return worker
    return None


class _Protocol(SMTP):
    async def smtp_DATA(self, arg: str) -> None:  # noqa: N802
        await self.event_handler.at("data", self.session)
        await super().smtp_DATA(arg)


@asynccontextmanager
async def mail_server() -> AsyncIterator[MailServer]:
    made = MailServer()
    loop = asyncio.get_running_loop()

    server = await loop.create_server(lambda: _Protocol(made, hostname="mx.test", loop=loop), "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


@dataclass
class Report:
    """`wrong` must be empty."""

    kills: int = 0
    points: Counter[str] = field(default_factory=Counter)
    jobs: int = 0
    completed: int = 0
    undecided: int = 0
    undecided_sent: int = 0
    mails: int = 0
    wrong: list[str] = field(default_factory=list)

    def table(self) -> str:
        points = ", ".join(f"{count} at {point}" for point, count in sorted(self.points.items()))
        lines = {
            "workers killed": f"{self.kills} ({points})",
            "mail jobs": f"{self.jobs}",
            "completed": f"{self.completed}",
            "held, needs decision": f"{self.undecided} (the server had taken {self.undecided_sent} of them)",
            "mails taken": f"{self.mails}",
            "wrong": "; ".join(self.wrong[:10]) or "nothing",
        }
        return "\n".join(f"{name:<22}{value}" for name, value in lines.items())


class Killing:
    """One run: jobs are submitted as fast as they end, and workers killed, until there were enough kills."""

    def __init__(self, store: Store, node: Node, server: MailServer, kills: int, seed: int) -> None:
        self._store = store
        self._node = node
        self._server = server
        self._kills = kills
        self._chance = random.Random(seed)
        self._ids: dict[UUID, str] = {}
        self.report = Report()

    async def run(self) -> None:
        feeding = asyncio.create_task(self._feed())
        try:
            while self.report.kills < self._kills:
                await self._kill()
        finally:
            feeding.cancel()
        jobs = await self._all_end()
        self._judge(jobs)
        await self._decide_all(jobs)

    async def _feed(self) -> None:
        """Keep a few mails on their way."""
        while True:
            counts = await self._store.views.counts()
            waiting = sum(n for (_, _, status), n in counts.items() if status in {Status.READY, Status.RUNNING})
            for _ in range(max(0, _UNDER_WAY - waiting)):
                to = f"n{len(self._ids)}@example.org"
                mail = {"to": to, "subject": "Hello", "body": "x" * self._chance.choice((10, 100_000))}
                # Killed again and again, so more than the usual three attempts; suspects run in processes of their own.
                (stored,) = await self._store.intake.enqueue([NewJob("email", mail, max_attempts=100)])
                self._ids[stored.id] = to
            await asyncio.sleep(0.02)

    async def _kill(self) -> None:
        chance = self._chance
        aim = Aim(chance.choice(POINTS), chance.random() * _JITTER_S, chance.random() < _HOLDS, self._node)
        self._server.aim = aim
        with suppress(TimeoutError):  # its worker may die of something else first
            async with asyncio.timeout(20):
                await aim.done.wait()
        self._server.aim = None
        if aim.done.is_set() and aim.victim is not None:
            self.report.kills += 1
            self.report.points[aim.point] += 1

    async def _all_end(self) -> list[Job]:
        """Every job is completed, or waits for a person."""

        async def ended() -> list[Job] | None:
            for job in await self._jobs_of(Status.SCHEDULED):  # a suspect that backs off need not be waited for
                await self._store.intake.run_now_many([job.id])
            counts = await self._store.views.counts()
            moving = {Status.SCHEDULED, Status.READY, Status.RUNNING}
            if any(n for (_, _, status), n in counts.items() if status in moving):
                await asyncio.sleep(0.05)
                return None
            return [await self._store.views.job(job_id) for job_id in self._ids]

        jobs = await aeventually(ended, _QUIET_S)
        assert jobs is not None
        return jobs

    async def _jobs_of(self, status: Status) -> list[Job]:
        return list((await self._store.views.jobs(JobQuery([status], limit=200))).jobs)

    def _judge(self, jobs: list[Job]) -> None:
        report, got = self.report, Counter(address for address, _ in self._server.taken)
        report.jobs, report.mails = len(jobs), len(self._server.taken)
        report.wrong += [f"{address} got {count} mails" for address, count in got.items() if count > 1]
        for address, message_id in self._server.taken:
            if message_id.strip("<>").partition("@")[0] not in {str(i) for i, to in self._ids.items() if to == address}:
                report.wrong.append(f"{address} got a mail of another id, {message_id}")
        for job in jobs:
            to = self._ids[job.id]
            if job.status is Status.COMPLETED:
                report.completed += 1
                if got[to] != 1:
                    report.wrong.append(f"{job.id} is completed, and {to} got {got[to]}")
            elif (job.status, job.reason) == (Status.HELD, needs_decision):
                report.undecided += 1
                report.undecided_sent += got[to]
            else:
                report.wrong.append(f"{job.id} is {job.status}: {job.reason or job.error}")

    async def _decide_all(self, jobs: list[Job]) -> None:
        """A person looks at the server's log and decides; then everybody has one mail."""
        got = {address for address, _ in self._server.taken}
        for job in jobs:
            if job.status is Status.HELD:
                await self._store.intake.decide(job.id, "done" if self._ids[job.id] in got else "redo")
        ended = await self._all_end()
        got_at_last = Counter(address for address, _ in self._server.taken)
        self.report.wrong += [
            f"{job.id} is {job.status} at last" for job in ended if job.status is not Status.COMPLETED
        ]
        self.report.wrong += [
            f"{to} got {got_at_last[to]} at last" for to in self._ids.values() if got_at_last[to] != 1
        ]


async def kill_workers(store: Store, url: str, folder: Path, *, kills: int, seed: int = 1) -> Report:
    async with mail_server() as server:
        node = Node(
            url, folder / "ledger", app=APP, threads=2, processes=2, smtp_host="127.0.0.1", smtp_port=server.port,
            smtp_security="none", mail_from="shop@example.com",
        )  # fmt: skip
        try:
            await asyncio.to_thread(node.ready, 2)
            killing = Killing(store, node, server, kills, seed)
            await killing.run()
            return killing.report
        finally:
            await asyncio.to_thread(node.destroy)


async def _main(kills: int, seed: int) -> int:
    folder = Path(tempfile.mkdtemp(prefix="mails-"))
    with EmbeddedPostgres(folder / "data") as server:
        connection: asyncpg.Connection[Any] = await asyncpg.connect(server.url)
        await migrate.upgrade(connection)
        await connection.close()
        async with open_store(StoreConfig(database_url=server.url, pool_min=0, pool_max=4)) as store:
            report = await kill_workers(store, server.url, folder, kills=kills, seed=seed)
    print(report.table())
    return 1 if report.wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    return asyncio.run(_main(given.kills, given.seed))


if __name__ == "__main__":
    sys.exit(main())

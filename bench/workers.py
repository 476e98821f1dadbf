"""What whole workers do: `windlass worker` as a user starts it, measured from outside."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median, quantiles

import psutil

from bench.cases import Result, side_by_side
from bench.rig import PAYLOAD, QUEUE, Bench, drain_bare, fresh
from windlass.bus.postgres import PostgresWaker
from windlass.bus.waking import Waking
from windlass.clock import steady_s
from windlass.model import NewJob, Status


@asynccontextmanager
async def workers(bench: Bench, *, processes: int = 1, threads: int = 8) -> AsyncIterator["subprocess.Popen[bytes]"]:
    """A supervisor with its workers, ready to claim."""
    command = [sys.executable, "-m", "windlass", "worker", "--app", "bench.app:app"]
    command += ["--processes", str(processes), "--threads", str(threads)]
    environment = {**os.environ, "WINDLASS_DATABASE_URL": bench.url, "WINDLASS_LOG_LEVEL": "error"}
    with subprocess.Popen(command, env=environment) as supervisor:
        try:
            while sum(w.alive and w.name != "bench" for w in await bench.store.views.workers()) < processes:
                assert supervisor.poll() is None, "the workers have not started"
                await asyncio.sleep(0.05)
            yield supervisor
        finally:
            supervisor.terminate()
            supervisor.wait(30)


async def drain_workers(bench: Bench, type_: str, jobs: int, processes: int) -> float:
    """Jobs per second from the first start to the last end, as the database saw them."""
    await bench.store.intake.set_paused(QUEUE, paused=True)
    await bench.store.intake.enqueue([NewJob(type_, PAYLOAD) for _ in range(jobs)])
    async with workers(bench, processes=processes):
        await bench.store.intake.set_paused(QUEUE, paused=False)
        await bench.store.hints.call_all()
        while (await bench.store.views.counts()).get((QUEUE, type_, Status.COMPLETED), 0) < jobs:
            await asyncio.sleep(0.1)
        connection = await bench.connect()
        sql = "select date_part('epoch', max(finished_at) - min(started_at)) from windlass.outcome"
        took_s: float = await connection.fetchval(sql)
        await connection.close()
        return jobs / took_s


async def drain(server_url: str, jobs: int, rounds: int) -> Result:
    async def ours(bench: Bench) -> float:
        return await drain_workers(bench, "noop", jobs, 1)

    async def theirs(bench: Bench) -> float:
        await bench.enqueue(jobs)
        return await drain_bare(bench)

    return await side_by_side(
        server_url, "no-op async jobs, 1 process / bare SQL loop", ours, theirs, least=0.5, rounds=rounds
    )


async def two(server_url: str, jobs: int, rounds: int) -> Result:
    async def ours(bench: Bench) -> float:
        return await drain_workers(bench, "noop", jobs, 2)

    async def theirs(bench: Bench) -> float:
        return await drain_workers(bench, "noop", jobs, 1)

    return await side_by_side(
        server_url, "no-op async jobs, 2 processes / 1 process", ours, theirs, least=1.0, rounds=rounds
    )


async def plain(server_url: str, jobs: int, rounds: int) -> Result:
    rates = []
    for _ in range(rounds):
        async with fresh(server_url) as bench:
            rates.append(await drain_workers(bench, "plain", jobs, 1))
    return within("no-op def jobs in 8 threads / 15,000", median(rates), 15_000, "jobs/s", least=True)


async def latency(server_url: str, jobs: int) -> list[Result]:
    """One job every 20 ms on an idle system: from before its submission to the first line of its handler."""
    async with fresh(server_url) as bench, workers(bench):
        waker = PostgresWaker(bench.store.hints)
        intake = Waking(bench.store.intake, waker, bench.store.hints)
        await settled(bench, resting=1)
        began = time.perf_counter()
        for n in range(jobs):
            await asyncio.sleep(max(0.0, began + n * 0.02 - time.perf_counter()))
            await intake.enqueue([NewJob("stamp", {"sent_s": steady_s()})])
        while (await bench.store.views.counts()).get((QUEUE, "stamp", Status.COMPLETED), 0) < jobs:
            await asyncio.sleep(0.1)
        connection = await bench.connect()
        rows = await connection.fetch("select result::text::float8 * 1000 as ms from windlass.outcome")
        await connection.close()
        await waker.aclose()
    times = [row["ms"] for row in rows]
    bare = await bare_latency(server_url, jobs)
    return [
        within("submit to start, idle, p50 / 2 ms", median(times), 2.0, "ms"),
        within("submit to start, idle, p99 / 5 ms", _p99(times), 5.0, "ms"),
        within("submit to start, idle, p50 / twice the bare way", median(times), 2 * median(bare), "ms"),
        within("submit to start, idle, p99 / twice the bare way", _p99(times), 2 * _p99(bare), "ms"),
    ]


async def settled(bench: Bench, resting: int = 0) -> None:
    """An idle system: so many workers rest, and what it took to make all this is on the disk. Without that, the first seconds
    measure how the disk catches up with a new database."""
    connection = await bench.connect()
    await connection.execute("checkpoint")
    while await connection.fetchval("select count(hand_key) from windlass.idle") < resting:
        await asyncio.sleep(0.05)
    await connection.close()
    await asyncio.to_thread(os.sync)


def _p99(times: list[float]) -> float:
    return quantiles(times, n=100)[98]


async def bare_latency(server_url: str, jobs: int) -> list[float]:
    """The least that durability and another connection cost on this machine, in milliseconds: a row is inserted and
    committed, a listener hears of it, and takes it away with a statement that does not wait for the disk."""
    loop = asyncio.get_running_loop()
    async with fresh(server_url) as bench:
        sender, listener, taker = [await bench.connect() for _ in range(3)]
        await sender.execute("create table bare (id bigint primary key, payload text)")
        await taker.execute("set synchronous_commit = off")
        taken: asyncio.Future[float] = loop.create_future()
        await settled(bench)

        async def take(row: int) -> None:
            await taker.fetch("delete from bare where id = $1 returning payload", row)
            taken.set_result(time.perf_counter())

        await listener.add_listener("bare", lambda _c, _p, _n, row: loop.create_task(take(int(str(row)))) and None)
        times = []
        for n in range(jobs):
            await asyncio.sleep(0.02)
            taken = loop.create_future()
            began = time.perf_counter()
            sql = "with new as (insert into bare values ($1, $2) returning id) select pg_notify('bare', id::text) from new"
            await sender.fetch(sql, n, json.dumps(PAYLOAD))
            times.append((await taken - began) * 1000)
        for connection in (sender, listener, taker):
            await connection.close()
    return times


async def idle(server_url: str, seconds: float) -> list[Result]:
    async with fresh(server_url) as bench, workers(bench) as supervisor:
        everyone = [psutil.Process(supervisor.pid), *psutil.Process(supervisor.pid).children(recursive=True)]
        of_role = {
            each: role for each in everyone for role in ("worker.main", "guard") if role in " ".join(each.cmdline())
        }
        (worker,) = [each for each, role in of_role.items() if role == "worker.main"]
        await asyncio.sleep(2)
        before = {each: sum(each.cpu_times()[:2]) for each in everyone}
        await asyncio.sleep(seconds)
        shares = {each: 100 * (sum(each.cpu_times()[:2]) - before[each]) / seconds for each in everyone}
        memory = {each: each.memory_info().rss / 1e6 for each in everyone}
    others = sum(memory.values()) - memory[worker]
    print(
        f"  (beside the worker: supervisor and guard {others:.0f} MB, {sum(shares.values()) - shares[worker]:.2f} % of a core)"
    )
    return [
        within("an idle worker's memory / 80 MB", memory[worker], 80, "MB"),
        within("an idle worker's share of a core / 1 %", shares[worker], 1.0, "%"),
    ]


def within(case: str, ours: float, limit: float, unit: str, *, least: bool = False) -> Result:
    """A figure against a fixed limit."""
    ratio = ours / limit
    return Result(case, ours, limit, unit, ratio, "≥ 1" if least else "≤ 1", ratio >= 1 if least else ratio <= 1)

"""The cases: each measures two things side by side and gives their ratio, because these machines are noisy."""

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median
from uuid import UUID, uuid4

import asyncpg

from bench.rig import PAYLOAD, QUEUE, TYPE, Bench, drain_bare, drain_store, fresh
from windlass.model import NewJob
from windlass.store.ids import Ids
from windlass.store.protocol import Ask


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the report. `ratio` is ours over theirs; `target` what design §12 and the issue ask of it."""

    case: str
    ours: float
    theirs: float
    unit: str
    ratio: float
    target: str
    met: bool


Measure = Callable[[Bench], Awaitable[float]]


async def side_by_side(
    server_url: str, case: str, ours: Measure, theirs: Measure, *, least: float, rounds: int, unit: str = "jobs/s"
) -> Result:
    """Alternate the two, each time on a fresh database; the median of the rounds' ratios counts."""
    pairs = []
    for turn in range(rounds):
        measured = {}
        for measure in (ours, theirs) if turn % 2 else (theirs, ours):
            async with fresh(server_url) as bench:
                measured[measure] = await measure(bench)
        pairs.append((measured[ours], measured[theirs]))
    ratio = median(our / their for our, their in pairs)
    best = (median(our for our, _ in pairs), median(their for _, their in pairs))
    return Result(case, *best, unit, ratio, f"≥ {least}", ratio >= least)


async def drain(server_url: str, jobs: int, rounds: int) -> Result:
    async def ours(bench: Bench) -> float:
        await bench.enqueue(jobs)
        return await drain_store(bench)

    async def theirs(bench: Bench) -> float:
        await bench.enqueue(jobs)
        return await drain_bare(bench)

    return await side_by_side(server_url, "store drain / bare SQL loop", ours, theirs, least=0.8, rounds=rounds)


async def bulk(server_url: str, jobs: int, rounds: int) -> Result:
    async def ours(bench: Bench) -> float:
        began = time.perf_counter()
        await bench.enqueue(jobs)
        return jobs / (time.perf_counter() - began)

    async def theirs(bench: Bench) -> float:
        connection, ids = await bench.connect(), Ids(bench.store.postgres.now_ms).make(jobs)
        began = time.perf_counter()
        async with connection.transaction():
            for start in range(0, jobs, 5_000):
                await insert_bare(connection, bench, ids[start : start + 5_000])
        rate = jobs / (time.perf_counter() - began)
        await connection.close()
        return rate

    return await side_by_side(server_url, "bulk enqueue / bare insert", ours, theirs, least=0.7, rounds=rounds)


async def single(server_url: str, jobs: int, rounds: int) -> Result:
    async def ours(bench: Bench) -> float:
        began = time.perf_counter()
        for _ in range(jobs):
            await bench.store.intake.enqueue([NewJob(TYPE, PAYLOAD)])
        return jobs / (time.perf_counter() - began)

    async def theirs(bench: Bench) -> float:
        connection, ids = await bench.connect(), Ids(bench.store.postgres.now_ms).make(jobs)
        began = time.perf_counter()
        for job_id in ids:
            await insert_bare(connection, bench, [job_id])
        rate = jobs / (time.perf_counter() - began)
        await connection.close()
        return rate

    return await side_by_side(server_url, "single enqueue / bare insert", ours, theirs, least=0.7, rounds=rounds)


async def insert_bare(connection: "asyncpg.Connection[asyncpg.Record]", bench: Bench, ids: list[UUID]) -> None:
    """The enqueue statement itself with ready-made arrays: the whole schema, and nothing of ours around it."""
    n, nothing = len(ids), [None] * len(ids)
    await connection.fetch(
        bench.store.postgres.sql["enqueue"], ids, [TYPE] * n, nothing, [QUEUE] * n, [0] * n, [1] * n,
        [json.dumps(PAYLOAD)] * n, [3] * n, [3600.0] * n, nothing, nothing, nothing, ["narrow"] * n, nothing, nothing,
        nothing, 60.0,
    )  # fmt: skip


async def growth(server_url: str, jobs: int, finished: int, rounds: int) -> Result:
    """Drain beside millions of finished jobs, against an empty store. The history is made once: it is large."""
    ratios = []
    async with fresh(server_url) as full:
        await add_history(full, finished)
        for _ in range(rounds):
            async with fresh(server_url) as empty:
                await empty.enqueue(jobs)
                theirs = await drain_store(empty)
            await full.enqueue(jobs)
            ratios.append((await drain_store(full), theirs))
    ratio = median(our / their for our, their in ratios)
    ours, theirs = median(our for our, _ in ratios), median(their for _, their in ratios)
    case = f"drain with {finished:,} finished / empty"
    return Result(case, ours, theirs, "jobs/s", ratio, "≥ 0.9", ratio >= 0.9)


async def add_history(bench: Bench, finished: int) -> None:
    """Finished jobs as the store leaves them: a job row, an outcome row, their indexes, and the counts."""
    connection = await bench.connect()
    made = 0
    while made < finished:
        page = min(100_000, finished - made)
        ids = Ids(bench.store.postgres.now_ms).make(page)
        await connection.execute(
            """insert into windlass.job (id, created_at, timeout_s, max_attempts, priority, thread_demand, type, queue,
                 if_too_wide, payload)
               select id, now(), 3600, 3, 0, 1, $2, $3, 'narrow', $4::text::json from unnest($1::uuid[]) id""",
            ids, TYPE, QUEUE, json.dumps(PAYLOAD),
        )  # fmt: skip
        await connection.execute(
            """insert into windlass.outcome (job_id, ready_at, started_at, finished_at, attempt, failures, threads, status,
                 queue, type, worker_id, token)
               select id, now(), now(), now(), 1, 0, 1, 'completed', $2, $3, $4, $5 from unnest($1::uuid[]) id""",
            ids, QUEUE, TYPE, bench.worker_id, uuid4(),
        )  # fmt: skip
        made += page
    await connection.execute(
        "insert into windlass.counter (status, queue, type, n) values ('completed', $1, $2, $3)", QUEUE, TYPE, finished
    )
    await connection.execute("analyze windlass.job, windlass.outcome")
    await connection.execute("checkpoint")
    await connection.close()


async def snapshot(server_url: str, jobs: int, rounds: int) -> Result:
    async def free(bench: Bench) -> float:
        await bench.enqueue(jobs)
        return await drain_store(bench)

    async def held(bench: Bench) -> float:
        await bench.enqueue(jobs)
        connection = await bench.connect()
        async with connection.transaction(isolation="repeatable_read"):
            await connection.fetchval("select count(*) from windlass.worker")
            rate = await drain_store(bench)
        await connection.close()
        return rate

    case = f"drain of {jobs:,} under a held snapshot / without"
    return await side_by_side(server_url, case, held, free, least=0.9, rounds=rounds)


async def wide_head(server_url: str, wide: int) -> Result:
    """What a claim of one thread costs behind wide jobs it cannot take, against none of them."""

    async def narrow_claim_ms(bench: Bench) -> float:
        ask = Ask(bench.worker_id, [QUEUE], [TYPE], free=1, most=1)
        times = []
        for _ in range(200):
            claims = bench.store.claims()  # no floor: a full look each time
            began = time.perf_counter()
            leases = await claims.claim(ask)
            times.append((time.perf_counter() - began) * 1000)
            assert len(leases) == 1
        return median(times)

    async with fresh(server_url) as bench:
        await bench.enqueue(200)
        without = await narrow_claim_ms(bench)
    async with fresh(server_url) as bench:
        await bench.enqueue(wide, thread_demand=8)
        await bench.enqueue(200)
        behind = await narrow_claim_ms(bench)
    case = f"narrow claim behind {wide:,} wide jobs / none"
    return Result(case, behind, without, "ms", behind / without, "< 1 ms", behind < 1)

"""What the HTTP API takes: `windlass api` as a user starts it, posted to from another process."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from secrets import token_hex
from statistics import quantiles
from typing import Any

import httpx2

from bench.cases import Result
from bench.rig import Bench, fresh
from bench.workers import within
from windlass.model import NewJob, Status

CONNECTIONS = 64


@asynccontextmanager
async def api(bench: Bench, secret: str, port: int) -> AsyncIterator[None]:
    """One API process, ready."""
    environment = {
        **os.environ,
        "WINDLASS_DATABASE_URL": bench.url,
        "WINDLASS_AUTH_SECRET": secret,
        "WINDLASS_UNKNOWN_TYPES": "accept",
        "WINDLASS_ACCESS_LOG": "off",
        "WINDLASS_LOG_LEVEL": "error",
    }
    command = [sys.executable, "-m", "windlass", "api", "--port", str(port)]
    with subprocess.Popen(command, env=environment) as server:
        try:
            while not await asyncio.to_thread(_is_ready, port):
                assert server.poll() is None, "the API has not started"
                await asyncio.sleep(0.05)
            yield
        finally:
            server.terminate()
            server.wait(30)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


async def submissions(server_url: str, seconds: float) -> list[Result]:
    """Durable submissions over HTTP; what was answered 202 is counted again in the database."""
    secret, port = token_hex(32), _free_port()
    async with fresh(server_url) as bench, api(bench, secret, port):
        token = await asyncio.to_thread(_token, secret)
        command = [sys.executable, "-m", "bench.posting", f"http://127.0.0.1:{port}", token, str(CONNECTIONS)]
        await _post(command, 1.0)  # plans, caches and connections are made
        before = await _stored(bench)
        seen = await _post(command, seconds)
        stored = await _stored(bench) - before
        assert list(seen["statuses"]) == ["202"], seen["statuses"]
        assert stored == seen["statuses"]["202"], "as many are stored as were promised"
    return [
        within(f"POST /v1/jobs, {CONNECTIONS} connections / 4,000", seen["rate"], 4_000, "jobs/s", least=True),
        within("POST /v1/jobs, p99 / 50 ms", seen["p99_ms"], 50.0, "ms"),
    ]


async def _post(command: list[str], seconds: float) -> dict[str, Any]:
    posting = await asyncio.create_subprocess_exec(*command, str(seconds), stdout=subprocess.PIPE)
    said, _ = await posting.communicate()
    seen: dict[str, Any] = json.loads(said)
    return seen


async def _stored(bench: Bench) -> int:
    return (await bench.store.views.counts()).get(("default", "noop", Status.READY), 0)


def _token(secret: str, scope: str = "submit") -> str:
    create = [sys.executable, "-m", "windlass", "token", "create", "--scope", scope]
    environment = {**os.environ, "WINDLASS_AUTH_SECRET": secret}
    return subprocess.run(create, env=environment, capture_output=True, text=True, check=True).stdout.strip()


# Lists beside much history. -------------------------------------------------------------------------------------------

FINISHED = 1_000_000
WAITING = 200_000
LISTS = (
    "/v1/jobs",
    "/v1/jobs?limit=200",
    "/v1/jobs?status=completed&limit=200",
    "/v1/jobs?status=failed&limit=200",
    "/v1/jobs?status=ready&limit=200",
    "/v1/jobs?status=scheduled",
    "/v1/jobs?status=running",
    "/v1/jobs?type=type-3&limit=200",
    "/v1/jobs?type=type-3&queue=queue-1&status=failed",
    "/v1/jobs?queue=queue-2&limit=200",
    "/v1/jobs?tag=rare",
    "/v1/jobs?created_before=2020-01-01T00:00:00Z",
    "/v1/dead-letters?limit=200",
    "/v1/dead-letters/groups",
    "/v1/stats",
    "/v1/queues",
    "/v1/workers",
    "/v1/types",
    "/v1/audit",
    "/jobs",
    "/jobs?status=pending",
    "/db/jobs",
    "/failedJobs?page=3&limit=50",
    "/stats",
)


async def lists(server_url: str, share: int) -> Result:
    """The slowest list, by the 95th percentile of each, with a million finished and 200,000 waiting jobs."""
    secret, port = token_hex(32), _free_port()
    async with fresh(server_url) as bench:
        await _fill(bench, FINISHED // share, WAITING // share)
        token = await asyncio.to_thread(_token, secret, "admin")
        async with api(bench, secret, port):
            times_ms = {path: await asyncio.to_thread(_p95_ms, port, token, path) for path in LISTS}
    for path, took_ms in sorted(times_ms.items(), key=lambda item: -item[1])[:3]:
        print(f"  ({path}: {took_ms:.1f} ms)")
    return within(f"the slowest of {len(LISTS)} lists, p95 / 50 ms", max(times_ms.values()), 50.0, "ms")


async def _fill(bench: Bench, finished: int, waiting: int) -> None:
    connection = await bench.connect()
    await connection.execute(
        """create temp table made as select n, uuidv7() as id, 'queue-' || n / 7 % 4 as queue, 'type-' || n % 6 as type
           from generate_series(1, $1::integer) n""",
        finished,
    )
    await connection.execute(
        """insert into windlass.job (id, created_at, timeout_s, max_attempts, priority, thread_demand, type, queue,
             if_too_wide, payload)
           select id, now(), 3600, 3, 0, 1, type, queue, 'narrow', '{"n": 1}' from made"""
    )
    await connection.execute(
        """insert into windlass.outcome (job_id, ready_at, started_at, finished_at, attempt, failures, threads, status,
             queue, type, worker_id, token, error, fingerprint)
           select id, now(), now(), now(), 1, 0, 1, case when n % 50 = 0 then 'failed' else 'completed' end, queue, type,
             $1, $1, case when n % 50 = 0 then '{"type": "ValueError", "message": "no"}'::json end,
             case when n % 50 = 0 then 'print-' || n % 13 end
           from made""",
        bench.worker_id,
    )
    await connection.execute(
        """insert into windlass.counter (status, queue, type, n)
           select case when n % 50 = 0 then 'failed' else 'completed' end, queue, type, count(*) from made group by 1, 2, 3"""
    )
    jobs = [NewJob(f"type-{n % 6}", {"n": n}, queue=f"queue-{n % 4}") for n in range(waiting)]
    await bench.store.intake.enqueue(jobs)
    await connection.execute("vacuum analyze")
    await connection.close()


def _p95_ms(port: int, token: str, path: str) -> float:
    """Over one connection kept alive, after two calls that warm it."""
    times_ms = []
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {token}"}) as client:
        for _ in range(22):
            began_s = time.perf_counter()
            answer = client.get(path)
            times_ms.append((time.perf_counter() - began_s) * 1000)
            assert answer.status_code == 200, (path, answer.text)
    return quantiles(times_ms[2:], n=20)[18]

"""A hostile submitter beside innocent load, at a real `windlass up`: what the innocents notice, and what it costs.

    python -m tests.faults.hostile --seconds 60
    python -m tests.faults.hostile --seconds 10 --only "queue names" --only flood

Every attack of attacks.py goes on at the same time, with a token that may only submit. Another process (innocents.py)
submits small jobs and asks /livez. The suite runs it for a shorter time; WINDLASS_TEST_HOSTILE_S=60 gives it the
whole.
"""

import argparse
import asyncio
import bisect
import json
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import quantiles
from typing import Any
from urllib.parse import urlsplit

import httpx2
import psutil

from tests.e2e.household import ROOT, Up, up
from tests.faults.attacks import ATTACKS, Attack, Attacker
from tests.faults.innocents import waited_s
from windlass.auth.tokens import Signer
from windlass.config import AuthConfig

_LOOK_S = 0.1
_PATIENCE_S = 30.0
# How `windlass up` is set for the run: as by an operator who lets strangers submit.
SETTINGS = {"WINDLASS_THREADS": "4"}
# What bounds jobs that are wide, long or many: without quotas a submitter may take all threads.
QUOTA = {"waiting": 200, "threads": 2, "submissions_per_s": 100, "thread_demand": 2, "timeout_s": 60}
_QUOTA_POINT = 6


@dataclass(slots=True)
class Seen:
    """What the run has shown. Times without what was waited for a processor."""

    starts_s: list[float] = field(default_factory=list)
    submits_s: list[float] = field(default_factory=list)
    livez_s: list[float] = field(default_factory=list)
    looks_s: list[float] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)
    api_mb: float = 0.0
    worker_mb: float = 0.0
    attacker: dict[int, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        return {
            "innocent jobs": len(self.starts_s),
            "never started": sum(each == float("inf") for each in self.starts_s),
            "start p99 s": p99(self.starts_s),
            "submit p99 s": p99(self.submits_s),
            "livez p99 s": p99(self.livez_s),
            "livez max s": max(self.livez_s, default=0.0),
            "look p99 s": p99(self.looks_s),
            "innocents were told": self.statuses,
            "API grew by MB": round(self.api_mb),
            "workers grew by MB": round(self.worker_mb),
            "the attacker was told": self.attacker,
            "errors in the log": len(self.errors),
        }


def p99(times: Sequence[float]) -> float:
    return quantiles(times, n=100)[98] if len(times) > 1 else float("inf")


class Watch:
    """Memory of the API and of the workers while the run lasts, and what both have waited for a processor by when."""

    def __init__(self, made: Up) -> None:
        self._api, self._worker = made.api, made.worker
        self._first = self._memory()
        self.api_mb = self.worker_mb = 0.0
        self._waits: list[tuple[float, float]] = []
        self._waited: dict[int, float] = {}

    def _memory(self) -> tuple[float, float]:
        return _pss_mb([self._api]), _pss_mb([self._worker, *_children(self._worker)])

    def look(self) -> None:
        api_mb, worker_mb = self._memory()
        self.api_mb = max(self.api_mb, api_mb - self._first[0])
        self.worker_mb = max(self.worker_mb, worker_mb - self._first[1])
        for each in (self._api, *_children(self._worker)):
            self._waited[each.pid] = waited_s(each.pid)
        self._waits.append((time.time(), sum(self._waited.values())))

    def waited_s(self, begin: float, end: float) -> float:
        """Between two moments of the wall clock."""

        def by(moment: float) -> float:
            at = min(bisect.bisect(self._waits, (moment, float("inf"))), len(self._waits) - 1)
            return self._waits[at][1]

        return by(end) - by(begin) if self._waits else 0.0


def _children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


def _pss_mb(processes: list[psutil.Process]) -> float:
    """What is shared counts once: children are forked."""
    found = 0.0
    for each in processes:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            found += each.memory_full_info().pss / 1e6
    return found


@contextmanager
def attacked(folder: Path) -> Iterator[Up]:
    """A `windlass up` to run against: PostgreSQL, the API, and a worker of four threads."""
    with up(folder=folder, cwd=ROOT, **SETTINGS) as made:
        yield made


async def run(made: Up, seconds: float, attacks: Collection[Attack]) -> Seen:
    seen, port = Seen(), urlsplit(made.url).port
    assert port is not None
    watch = Watch(made)
    attacker = Attacker(port, _token(made, "hostile", "submit"))
    bounded = Attacker(port, await asyncio.to_thread(_bounded_token, made), attacker.heard)
    innocents = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.faults.innocents"),
        *(str(port), _token(made, "innocent", "submit", "read"), str(seconds), str(made.api.pid)),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    told = asyncio.create_task(innocents.communicate())
    attacking = [
        asyncio.create_task(_repeat(each, bounded if each.point == _QUOTA_POINT else attacker)) for each in attacks
    ]
    try:
        async with asyncio.timeout(seconds + _PATIENCE_S):
            while not told.done():
                await asyncio.to_thread(watch.look)
                await asyncio.wait([told], timeout=_LOOK_S)
        heard = json.loads(told.result()[0])
    finally:
        for task in attacking:
            task.cancel()
        ended = await asyncio.gather(*attacking, return_exceptions=True)
        with suppress(ProcessLookupError):
            innocents.kill()
    faults = [each for each in ended if isinstance(each, Exception)]
    assert not faults, faults
    seen.submits_s, seen.livez_s, seen.looks_s = heard["submits_s"], heard["livez_s"], heard["looks_s"]
    seen.statuses = heard["statuses"]
    seen.starts_s = await _starts_s(made, heard["jobs"], watch)
    seen.api_mb, seen.worker_mb, seen.attacker = watch.api_mb, watch.worker_mb, attacker.heard
    seen.errors = [line for line in made.said.splitlines() if "Traceback" in line and "uvicorn" in line]
    return seen


def _token(made: Up, subject: str, *scopes: Any) -> str:
    secret = (made.folder / "auth-secret").read_text()
    return Signer.of(AuthConfig(auth_secret=secret)).sign(subject, scopes, 600)


def _bounded_token(made: Up) -> str:
    """The token of an API key with quotas, as an operator gives it to strangers."""
    headers = {"Authorization": f"Bearer {_token(made, 'operator', 'admin')}"}
    with httpx2.Client(base_url=made.url, headers=headers, timeout=30, trust_env=False) as client:
        key = client.post("/v1/keys", json={"name": "stranger", "scopes": ["submit"], "quota": QUOTA}).json()["key"]
        return str(client.post("/v1/auth/token", json={"api_key": key}).json()["access_token"])


async def _repeat(attack: Attack, attacker: Attacker) -> None:
    for _ in range(attack.times):
        await attack.once(attacker)
        await asyncio.sleep(attack.every_s)


async def _starts_s(made: Up, submitted: dict[str, float], watch: Watch) -> list[float]:
    """From the call that submitted each job to its start; one that has not started counts as never."""
    started = await asyncio.to_thread(_started, made, len(submitted))
    found = []
    for job_id, at in submitted.items():
        if job_id in started:
            found.append(max(0.0, started[job_id] - at - watch.waited_s(at, started[job_id])))
        else:
            found.append(float("inf"))
    return found


def _started(made: Up, wanted: int) -> dict[str, float]:
    """When the innocents' jobs started, by the database's clock, which is this machine's."""
    found: dict[str, float] = {}
    deadline_s = time.monotonic() + _PATIENCE_S
    headers = {"Authorization": f"Bearer {_token(made, 'judge', 'read')}"}
    with httpx2.Client(base_url=made.url, headers=headers, timeout=30, trust_env=False) as client:
        while len(found) < wanted and time.monotonic() < deadline_s:
            cursor: str | None = ""
            while cursor is not None:
                query = {"tag": "innocent", "limit": "200"} | ({"cursor": cursor} if cursor else {})
                page = client.get("/v1/jobs", params=query).json()
                for job in page["jobs"]:
                    if job["started_at"] is not None and job["id"] not in found:
                        found[job["id"]] = datetime.fromisoformat(job["started_at"]).timestamp()
                cursor = page["next_cursor"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--only", action="append", choices=[each.name for each in ATTACKS])
    parser.add_argument("--without", action="append", default=[], choices=[each.name for each in ATTACKS])
    asked = parser.parse_args()
    attacks = [
        each for each in ATTACKS if (not asked.only or each.name in asked.only) and each.name not in asked.without
    ]
    with tempfile.TemporaryDirectory() as folder, attacked(Path(folder) / "up") as made:
        seen = asyncio.run(run(made, asked.seconds, attacks))
    print(json.dumps(seen.summary(), indent=1))


if __name__ == "__main__":
    main()

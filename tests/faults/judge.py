"""The judge: what became of every job, from four witnesses that know nothing of each other. Imports no product code.

    python -m tests.faults.judge FOLDER DATABASE_URL

- `client`, what the submitter was told: lines "sent id" and "acked id"; sent and never acked is unknown
- `effects`, what handlers did: lines "start|end id attempt token pid seconds" (tests/faults/ledger.py)
- `faults`, what was done to whom: lines of JSON, {"what", "at_s", "pids"}
- the store: where every job is, and what is kept of its attempts

All seconds are those of the clock that the processes of a machine share. To be asked when nothing moves any more.
"""

import asyncio
import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import asyncpg

# A claim is not durable at once: this long before PostgreSQL is killed it may be forgotten, and its job claimed again.
_FORGET_S: Final = 2.0
_KILLS: Final = ("worker", "supervisor", "guard", "node")
_SAMPLE: Final = 5
_PROMOTE_S: Final = 0.5


# The witnesses. ---------------------------------------------------------------------------------------------------------


class Fault(NamedTuple):
    """`what`: worker, supervisor, guard, node (killed, with all that dies of it), database, database back, drain."""

    what: str
    at_s: float
    pids: frozenset[int]


# A job and the token of a claim, which may have taken other jobs too.
Lease = tuple[str, str]


@dataclass(slots=True)
class Start:
    """One execution: a handler said that it began, and perhaps that it came to its end."""

    job: str
    attempt: int
    token: str
    pid: int
    at_s: float
    end_s: float | None = None

    @property
    def lease(self) -> Lease:
        return self.job, self.token


class Stored(NamedTuple):
    """An outcome, or the record of an attempt that did not finish its job."""

    job: str
    attempt: int
    failures: int
    status: str
    token: str | None
    worker: str | None
    result: str | None


@dataclass
class Evidence:
    """All that the witnesses say."""

    sent: set[str]
    acked: set[str]
    starts: list[Start]
    faults: list[Fault]
    outcomes: list[Stored]
    attempts: list[Stored]
    unfinished: dict[str, int]
    misfiled: dict[str, int]
    worker_pids: dict[str, int]


def said_to_client(file: Path) -> tuple[set[str], set[str]]:
    words = [line.split() for line in _lines(file)]
    return {job for _, job in words}, {job for what, job in words if what == "acked"}


def effects(file: Path) -> list[Start]:
    """Every start, in the order of time, with its end. An end without a start would be a fault of the handlers."""
    starts: list[Start] = []
    begun: dict[tuple[str, str, str], Start] = {}
    for what, job, attempt, token, pid, at_s in (line.split() for line in _lines(file)):
        if what == "start":
            starts.append(Start(job, int(attempt), token, int(pid), float(at_s)))
            begun[job, token, pid] = starts[-1]
        else:
            begun[job, token, pid].end_s = float(at_s)
    return sorted(starts, key=lambda start: start.at_s)


def faults(file: Path) -> list[Fault]:
    said = [json.loads(line) for line in _lines(file)]
    return [Fault(one["what"], one["at_s"], frozenset(one["pids"])) for one in said]


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


_OUTCOMES: Final = """
  select job_id::text, attempt, failures, status, token::text, worker_id::text, result::text from windlass.outcome
  union all
  select job_id::text, attempt, failures, status, token::text, worker_id::text, result::text from windlass.outcome_kept
"""
_ATTEMPTS: Final = """
  select job_id::text, attempt, 0, status, token::text, worker_id::text, null from windlass.attempt
  union all
  select job_id::text, attempt, 0, status, token::text, worker_id::text, null from windlass.attempt_kept
"""


async def gather(folder: Path, url: str) -> Evidence:
    sent, acked = said_to_client(folder / "client")
    connection = await asyncpg.connect(url)
    try:
        unfinished = {
            table: await connection.fetchval(f"select count(*) from windlass.{table}")
            for table in ("scheduled", "held", "ready", "running")
        }
        check = dict(await connection.fetchrow('select * from windlass."check"') or {})
        names = await connection.fetch("select id::text, name from windlass.worker")
        return Evidence(
            sent, acked, effects(folder / "effects"), faults(folder / "faults"),
            [Stored(*row) for row in await connection.fetch(_OUTCOMES)],
            [Stored(*row) for row in await connection.fetch(_ATTEMPTS)],
            {table: count for table, count in unfinished.items() if count},
            {what: count for what, count in check.items() if count},
            {row["id"]: int(row["name"].split("-")[-2]) for row in names},  # host-pid-place
        )  # fmt: skip
    finally:
        await connection.close()


# The verdict. -----------------------------------------------------------------------------------------------------------


@dataclass
class Verdict:
    """`findings` must be empty. `figures` are what the table shows."""

    findings: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    figures: dict[str, object] = field(default_factory=dict)
    recoveries_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def __bool__(self) -> bool:
        return not any(self.findings.values())

    def table(self) -> str:
        lines = [(name, str(figure)) for name, figure in self.figures.items()]
        lines += [(f"{kind}: started again after", _spread(taken)) for kind, taken in self.recoveries_s.items()]
        for name, found in self.findings.items():
            if not found:
                continue
            shown = ", ".join(found[:_SAMPLE]) + (" …" if len(found) > _SAMPLE else "")
            lines.append((f"WRONG: {name}", f"{len(found):,} ({shown})"))
        width = max(len(name) for name, _ in lines)
        lines.append(("verdict", "nothing wrong" if self else "WRONG"))
        return "\n".join(f"{name:<{width}}  {figure}" for name, figure in lines)


def judge(evidence: Evidence, *, node_within_s: float | None = None) -> Verdict:
    """`node_within_s`: how soon after the end of a whole node its jobs must have started again."""
    verdict = Verdict()
    starts: dict[str, list[Start]] = defaultdict(list)
    for start in evidence.starts:
        starts[start.job].append(start)
    _judge_loss(evidence, verdict)
    _judge_outcomes(evidence, starts, verdict)
    reasons = _explain(evidence)
    _judge_extra(evidence, reasons, verdict)
    _judge_losses(evidence, verdict)
    _judge_overlaps(evidence, starts, reasons, verdict)
    _measure(evidence, starts, verdict, node_within_s)
    return verdict


def _judge_loss(evidence: Evidence, verdict: Verdict) -> None:
    """What was acknowledged is completed; what was not is, if it was stored; and nobody else's job is there."""
    completed = {one.job for one in evidence.outcomes if one.status == "completed"}
    stored = {one.job for one in evidence.outcomes}
    verdict.figures |= {
        "jobs sent": f"{len(evidence.sent):,}",
        "acknowledged": f"{len(evidence.acked):,} ({len(evidence.sent - evidence.acked):,} unknown)",
        "completed": f"{len(completed):,}",
    }
    verdict.findings["lost"] += sorted(evidence.acked - completed)
    verdict.findings["not completed"] += sorted(stored - completed)
    verdict.findings["never submitted"] += sorted(stored - evidence.sent)
    verdict.findings["left behind"] += [f"{count} {table}" for table, count in evidence.unfinished.items()]
    verdict.findings["misfiled"] += [f"{count} {what}" for what, count in evidence.misfiled.items()]


def _judge_outcomes(evidence: Evidence, starts: Mapping[str, list[Start]], verdict: Verdict) -> None:
    """One outcome a job, written by an attempt that really came to its end, and no failure burned on the way but by starts
    that died."""
    outcomes = Counter(one.job for one in evidence.outcomes)
    twice = [job for job, count in outcomes.items() if count > 1]
    twice += [one.job for one in evidence.attempts if one.status == "completed"]
    verdict.findings["finished twice"] += twice
    died = Counter(one.job for one in evidence.attempts if one.status == "lost")
    for one in evidence.outcomes:
        ended = {start.token for start in starts[one.job] if start.end_s is not None}
        if one.status == "completed" and not (one.token in ended and one.result == f'"{one.token}"'):
            verdict.findings["finished by an attempt that did not end"].append(one.job)
        if one.failures > died[one.job]:
            verdict.findings["burned"].append(one.job)


def _explain(evidence: Evidence) -> dict[Lease, str]:
    """For every lease that was started: how it ended, where anything explains it."""
    reasons = {(one.job, one.token): one.status for one in (*evidence.attempts, *evidence.outcomes) if one.token}
    reached = {one.job: one.attempt for one in evidence.outcomes}
    drained = {pid for fault in evidence.faults if fault.what == "drain" for pid in fault.pids}
    crashes_s = [fault.at_s for fault in evidence.faults if fault.what == "database"]
    for start in evidence.starts:
        if start.lease in reasons:
            continue
        if any(-_FORGET_S < start.at_s - crash_s < _FORGET_S / 2 for crash_s in crashes_s):
            reasons[start.lease] = "forgotten"
        elif start.pid in drained and start.attempt < reached.get(start.job, 0):
            reasons[start.lease] = "released"
    return reasons


def _judge_extra(evidence: Evidence, reasons: Mapping[Lease, str], verdict: Verdict) -> None:
    """Every lease is begun once at most, and every start but the one that finished its job is a lease that was lost."""
    begun = Counter(start.lease for start in evidence.starts)
    extra = len(evidence.starts) - len({start.job for start in evidence.starts})
    kept = Counter(one.status for one in evidence.attempts)
    given_up = Counter(reasons.get(lease, "unexplained") for lease in begun)
    lost = kept["lost"] + kept["failed"] + given_up["released"] + given_up["forgotten"]
    parts = {
        "lost": kept["lost"], "failed": kept["failed"], "released": given_up["released"],
        "forgotten by the database": given_up["forgotten"],
    }  # fmt: skip
    verdict.figures |= {
        "starts": f"{len(evidence.starts):,}",
        "extra starts": f"{extra:,}",
        "leases lost": f"{lost:,} ({', '.join(f'{count:,} {what}' for what, count in parts.items())})",
    }
    if extra > lost:
        verdict.findings["extra starts"].append(f"{extra} for {lost} leases lost")
    verdict.findings["begun twice under one lease"] += [job for (job, _), count in begun.items() if count > 1]
    verdict.findings["started, and nothing says how it ended"] += [lease[0] for lease in begun if lease not in reasons]


def _judge_losses(evidence: Evidence, verdict: Verdict) -> None:
    """A lease is lost by a fault only: else something kills workers, or takes their leases, that nobody asked for."""
    struck = {pid for fault in evidence.faults for pid in fault.pids}
    lost = Counter(one.worker for one in evidence.attempts if one.status == "lost")
    innocent = {
        worker: count for worker, count in lost.items() if evidence.worker_pids.get(worker or "", 0) not in struck
    }
    verdict.findings["leases lost without a fault"] += [f"{count} of {worker}" for worker, count in innocent.items()]


def _judge_overlaps(
    evidence: Evidence, starts: Mapping[str, list[Start]], reasons: Mapping[Lease, str], verdict: Verdict
) -> None:
    """No job runs twice at once, but where the database has forgotten that it runs."""
    killed_s = {pid: fault.at_s for fault in evidence.faults if fault.what in _KILLS for pid in fault.pids}
    for job, every in starts.items():
        for earlier, later in pairwise(every):
            # One without an end ran until its process was killed; where that is not known, for a moment.
            over_s = earlier.end_s or max(earlier.at_s, killed_s.get(earlier.pid, 0.0))
            if later.at_s < over_s and reasons.get(earlier.lease) != "forgotten":
                verdict.findings["ran twice at once"].append(f"{job} for {over_s - later.at_s:.3f} s")


def _measure(
    evidence: Evidence, starts: Mapping[str, list[Start]], verdict: Verdict, node_within_s: float | None
) -> None:
    """How long after a kill the jobs of the dead were started again."""
    kills = {pid: fault for fault in evidence.faults if fault.what in _KILLS for pid in fault.pids}
    outages = list(_outages(evidence.faults))
    verdict.figures |= {
        f"killed: {what}": count
        for what, count in Counter(fault.what for fault in evidence.faults).items()
        if what in (*_KILLS, "database")
    }
    restarts: dict[Lease, tuple[float, str]] = {}
    backed_off_s: dict[Lease, float] = {}
    losses: Counter[str] = Counter()
    for one in sorted(evidence.attempts, key=lambda one: one.attempt):
        kill = kills.get(evidence.worker_pids.get(one.worker or "", 0))
        if one.status != "lost" or kill is None:
            continue
        again = next((start for start in starts[one.job] if start.at_s >= kill.at_s), None)
        if again is None:  # only if the job is lost, which is said elsewhere
            continue
        away = any(down_s < again.at_s and kill.at_s < up_s for down_s, up_s in outages)
        kind = f"{kill.what}, database away" if away else kill.what
        # Whoever took it over may be killed in turn: it is the last kill that it recovers from.
        restarts[again.lease] = min(restarts.get(again.lease, (math.inf, "")), (again.at_s - kill.at_s, kind))
        losses[one.job] += 1
        backed_off_s[again.lease] = _backed_off_s(losses[one.job])
    for lease, (taken_s, kind) in restarts.items():
        verdict.recoveries_s[kind].append(taken_s)
        if node_within_s is not None and kind == "node" and taken_s > node_within_s + backed_off_s[lease]:
            verdict.findings["started again too late"].append(f"{lease[0]} after {taken_s:.1f} s")


def _backed_off_s(losses: int) -> float:
    """How long a job that was lost so many times is held back at most: from the second time on, as a suspect."""
    return 0.0 if losses < 2 else 1.2 * 2 ** (losses - 2) + _PROMOTE_S


def _outages(every: Sequence[Fault]) -> Iterator[tuple[float, float]]:
    downs = [fault.at_s for fault in every if fault.what == "database"]
    ups = [fault.at_s for fault in every if fault.what == "database back"]
    return zip(downs, ups, strict=True)


def _spread(seconds: Iterable[float]) -> str:
    taken = sorted(seconds)
    median, most_of_them = (taken[min(len(taken) - 1, int(len(taken) * part))] for part in (0.5, 0.99))
    return f"p50 {median:.3f} s, p99 {most_of_them:.3f} s, max {taken[-1]:.3f} s ({len(taken):,} jobs)"


async def main(folder: Path, url: str) -> int:
    verdict = judge(await gather(folder, url))
    print(verdict.table())
    return 0 if verdict else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(Path(sys.argv[1]), sys.argv[2])))

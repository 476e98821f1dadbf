"""`make bench`: every figure side by side with the one it is measured against, in one run, as a table and as JSON."""

import argparse
import json
import os
import platform
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop

from bench import cases, front_door, workers
from bench.cases import Result
from windlass.embedded.postgres import EmbeddedPostgres

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench ARGS=…", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything: does it still run?")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=3, help="times each pair is measured; the median counts")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="windlass-bench-") as folder, EmbeddedPostgres(Path(folder)) as server:
        results = uvloop.run(run(server.url, options))
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    document = {"machine": platform.platform(), "cores": os.cpu_count(), "results": [asdict(r) for r in results]}
    file.write_text(json.dumps(document, indent=2) + "\n")
    print(f"\nload {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; written to {file}")


async def run(server_url: str, options: argparse.Namespace) -> list[Result]:
    share, rounds = (10, 1) if options.quick else (1, options.rounds)
    planned: dict[str, Callable[[], Awaitable[Result | list[Result]]]] = {
        "drain": lambda: cases.drain(server_url, 60_000 // share, rounds),
        "bulk": lambda: cases.bulk(server_url, 60_000 // share, rounds),
        "single": lambda: cases.single(server_url, 3_000 // share, rounds),
        "wide": lambda: cases.wide_head(server_url, 100_000 // share),
        "snapshot": lambda: cases.snapshot(server_url, 100_000 // share, rounds),
        "worker-drain": lambda: workers.drain(server_url, 200_000 // share, rounds),
        "worker-two": lambda: workers.two(server_url, 200_000 // share, rounds),
        "worker-plain": lambda: workers.plain(server_url, 100_000 // share, rounds),
        "worker-latency": lambda: workers.latency(server_url, 500 // share),
        "worker-idle": lambda: workers.idle(server_url, 20 / share),
        "http": lambda: front_door.submissions(server_url, 10 / share),
        "http-lists": lambda: front_door.lists(server_url, share),
        "growth": lambda: cases.growth(server_url, 60_000 // share, 5_000_000 // share, rounds),
    }
    print(f"{'case':<52} {'ours':>10} {'theirs':>10} {'':<7} {'ratio':>6}  target")
    results = []
    for name, measure in planned.items():
        if options.only in name:
            measured = await measure()
            for result in measured if isinstance(measured, list) else [measured]:
                results.append(result)
                print(
                    f"{result.case:<52} {result.ours:>10,.2f} {result.theirs:>10,.2f} {result.unit:<7} "
                    f"{result.ratio:>6.2f}  {result.target} {'' if result.met else 'NOT MET'}",
                    flush=True,
                )
    return results


if __name__ == "__main__":
    main()

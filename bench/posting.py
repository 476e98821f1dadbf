"""`python -m bench.posting URL TOKEN CONNECTIONS SECONDS`: post jobs, from a process of its own, and print what came back as
JSON."""

import json
import sys
from statistics import quantiles
from typing import Any

import uvloop

from bench.rig import PAYLOAD, TYPE
from windlass.cli.posting import posted
from windlass.clock import steady_s


async def post(url: str, token: str, connections: int, seconds: float) -> dict[str, Any]:
    body = json.dumps({"type": TYPE, "payload": PAYLOAD}).encode()
    began_s = steady_s()
    times_s, statuses = await posted(url, token, body, seconds, connections)
    took_s = steady_s() - began_s
    return {"rate": len(times_s) / took_s, "p99_ms": quantiles(times_s, n=100)[98] * 1000, "statuses": dict(statuses)}


if __name__ == "__main__":
    url_, token_, connections_, seconds_ = sys.argv[1:]
    print(json.dumps(uvloop.run(post(url_, token_, int(connections_), float(seconds_)))))

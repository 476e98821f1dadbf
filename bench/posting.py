"""A load generator: `python -m bench.posting HOST PORT TOKEN CONNECTIONS SECONDS` posts jobs over connections kept alive, one
request at a time on each, and prints what came back as JSON. Lean, because it shares the machine with what it measures.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from statistics import quantiles
from typing import cast

import uvloop

BODY = json.dumps({"type": "noop", "payload": {"to": "someone@example.org", "order": 12345, "lines": [1, 2, 3]}})


class Caller(asyncio.Protocol):
    """One connection: posts, waits for the whole answer, posts again, until the time is up."""

    def __init__(self, request: bytes, until_s: float, times_s: list[float], statuses: "Counter[bytes]") -> None:
        self._request = request
        self._until_s = until_s
        self._times_s = times_s
        self._statuses = statuses
        self._heard = b""
        self._sent_s = 0.0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._post()

    def _post(self) -> None:
        self._sent_s = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._heard += data
        head, blank, body = self._heard.partition(b"\r\n\r\n")
        if not blank:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        if len(body) < length:
            return
        self._heard = b""
        now_s = time.perf_counter()
        self._times_s.append(now_s - self._sent_s)
        self._statuses[head[9:12]] += 1
        if now_s < self._until_s:
            self._post()
        else:
            self._transport.close()

    def connection_lost(self, _error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


async def post(host: str, port: int, token: str, connections: int, seconds: float) -> dict[str, object]:
    request = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}"
    ).encode()
    loop = asyncio.get_running_loop()
    times_s: list[float] = []
    statuses: Counter[bytes] = Counter()
    began_s = time.perf_counter()
    callers = []
    for _ in range(connections):
        _, caller = await loop.create_connection(
            lambda: Caller(request, began_s + seconds, times_s, statuses), host, port
        )
        callers.append(caller)
    await asyncio.gather(*(caller.ended for caller in callers))
    took_s = time.perf_counter() - began_s
    percentiles = quantiles(times_s, n=100)
    return {
        "rate": len(times_s) / took_s,
        "p50_ms": percentiles[49] * 1000,
        "p99_ms": percentiles[98] * 1000,
        "statuses": {status.decode(): n for status, n in statuses.items()},
    }


if __name__ == "__main__":
    host_, port_, token_, connections_, seconds_ = sys.argv[1:]
    print(json.dumps(uvloop.run(post(host_, int(port_), token_, int(connections_), float(seconds_)))))

"""The others: a process that submits small jobs at a steady rate, asks /livez and looks at the queues, and writes
down how long each took.

    python -m tests.faults.innocents PORT TOKEN SECONDS API_PID

A process of its own, so that what the attacker does in the tests' process does not delay it. From each time is taken
what this process, and the API, waited for a processor meanwhile: on a busy machine that is no fault of the API's.
"""

import asyncio
import json
import sys
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any

from tests.api.raw import Raw

_EVERY_S = 0.05


def waited_s(pid: int | str, thread: int | str = "") -> float:
    """How long a process's first thread, or this one, has waited for a processor; 0 where the kernel does not say."""
    file = Path(f"/proc/{pid}/task/{thread}/schedstat" if thread else f"/proc/{pid}/schedstat")
    try:
        return int(file.read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


class Clock:
    """The time since it was made, without what was waited for a processor here and in the API."""

    def __init__(self, api_pid: int) -> None:
        self._api_pid = api_pid
        self._began_s, self._waited_s = time.monotonic(), self._waited()

    def _waited(self) -> float:
        return waited_s("self", threading.get_native_id()) + waited_s(self._api_pid)

    @property
    def took_s(self) -> float:
        return max(0.0, time.monotonic() - self._began_s - (self._waited() - self._waited_s))


async def _alive(port: int, api_pid: int, until_s: float, times: list[float]) -> None:
    async with Raw(port) as raw:
        while time.monotonic() < until_s:
            clock = Clock(api_pid)
            heard = await raw.call("GET", "/livez")
            times.append(clock.took_s if heard.status == 200 else 1e9)
            await asyncio.sleep(_EVERY_S)


async def _look(port: int, token: str, api_pid: int, until_s: float, times: list[float]) -> None:
    """As a dashboard does."""
    async with Raw(port) as raw:
        while time.monotonic() < until_s:
            for path in ("/v1/queues?limit=100", "/v1/stats"):
                clock = Clock(api_pid)
                heard = await raw.call("GET", path, token=token)
                times.append(clock.took_s if heard.status == 200 else 1e9)
            await asyncio.sleep(10 * _EVERY_S)


async def _beside(port: int, token: str, api_pid: int, until_s: float, told: dict[str, Any]) -> None:
    await asyncio.gather(
        _alive(port, api_pid, until_s, told["livez_s"]), _look(port, token, api_pid, until_s, told["looks_s"])
    )


async def _submit(port: int, token: str, api_pid: int, until_s: float, told: dict[str, Any]) -> None:
    """A body in two packets, as any on a network may be; each with a key of its own."""
    async with Raw(port) as raw:
        for n in count():
            if time.monotonic() > until_s:
                return
            clock, at = Clock(api_pid), time.time()
            body = {"type": "add_numbers", "payload": {"a": n, "b": 1}, "tags": ["innocent"]}
            content = json.dumps({**body, "idempotency_key": f"order-{n}"}).encode()
            lines = (
                "POST /v1/jobs HTTP/1.1",
                "Host: 127.0.0.1",
                f"Authorization: Bearer {token}",
                "Content-Type: application/json",
                f"Content-Length: {len(content)}",
            )
            await raw.send("\r\n".join([*lines, "", ""]).encode() + content[:50])
            await asyncio.sleep(0)
            await raw.send(content[50:])
            heard = await raw.hear()
            told["statuses"][heard.status] = told["statuses"].get(heard.status, 0) + 1
            told["submits_s"].append(clock.took_s)
            if heard.status == 202:
                told["jobs"][heard.json()["id"]] = at
            await asyncio.sleep(_EVERY_S)


async def main(port: int, token: str, seconds: float, api_pid: int) -> None:
    until_s = time.monotonic() + seconds
    told: dict[str, Any] = {"livez_s": [], "looks_s": [], "submits_s": [], "statuses": {}, "jobs": {}}
    beside = threading.Thread(target=lambda: asyncio.run(_beside(port, token, api_pid, until_s, told)))
    beside.start()
    await _submit(port, token, api_pid, until_s, told)
    await asyncio.to_thread(beside.join)
    print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4])))

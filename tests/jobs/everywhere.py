"""Run by `unshare -n`, as a program: a network in which every address there is leads to one listener.

So a request that gets out anywhere is seen, whichever address it was for. Prints what was asked and what was heard.
"""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable

from tests.eventually import aeventually
from tests.jobs.targets import every, resolve
from windlass.jobs.addresses import networks
from windlass.jobs.egress import Egress, EgressRefused, Unreached

PORT = 8099
CONTROLS = (
    "127.0.0.1",
    "10.0.0.1",
    "169.254.169.254",
    "192.168.1.1",
    "8.8.8.8",
    "::1",
    "fd00:ec2::254",
    "2002:7f00:1::",
)


class Rebinding:
    """A name that is public for one look and metadata for the next."""

    def __init__(self) -> None:
        self.looks = 0

    async def __call__(self, host: str, port: int) -> list[str]:
        self.looks += 1
        return ["8.8.8.8"] if self.looks % 2 else ["169.254.169.254"]


async def main() -> None:
    for command in ("link set lo up", "route add local 0.0.0.0/0 dev lo", "-6 route add local ::/0 dev lo"):
        subprocess.run(["ip", *command.split()], check=True)  # noqa: ASYNC221
    reached: list[str] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(writer.get_extra_info("sockname")[0])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await reader.read(4096)
        writer.close()

    listener = socket.create_server(("::", PORT), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1000)
    async with await asyncio.start_server(hear, sock=listener):
        for address in CONTROLS:
            _, writer = await asyncio.open_connection(address, PORT)
            writer.write(b"x")
            await writer.drain()
            writer.close()
        await aeventually(_all_of(reached))
        controls, reached[:] = len(reached), []
        refused = {url: await _ask(Egress(ports=None, timeout_s=5, resolve=resolve), url) for url in every(PORT)}
        got_out, reached[:] = list(reached), []
        rebinding = Rebinding()
        egress = Egress(networks("8.8.8.8"), None, 5, resolve=rebinding)
        turns = [await _ask(egress, f"http://rebinding.test:{PORT}/") for _ in range(40)]
        told = {
            "controls": controls,
            "refused": refused,
            "got_out": got_out,
            "turns": turns,
            "looks": rebinding.looks,
            "reached": sorted(set(reached)),
        }
        sys.stdout.write(json.dumps(told))


def _all_of(reached: list[str]) -> Callable[[], Awaitable[bool]]:
    async def all_there() -> bool:
        return len(reached) == len(CONTROLS)

    return all_there


async def _ask(egress: Egress, url: str) -> str:
    try:
        return str((await egress.request("POST", url, body=b"{}", keep_bytes=1000)).status)
    except (EgressRefused, Unreached) as error:
        return type(error).__name__


if __name__ == "__main__":
    asyncio.run(main())

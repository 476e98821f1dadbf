"""The lively mix of jobs that `windlass up --demo` submits: short and long, narrow and wide, urgent and not, for now and
for later, some that fail once and some that always do. Through the API, as anybody would.
"""

import asyncio
import base64
import random
import struct
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from windlass.auth.tokens import Signer
from windlass.cli.notices import say
from windlass.errors import WindlassError
from windlass.sdk.async_http import AsyncClient

_FIRST: Final = 60
_PAUSE_S: Final = (0.3, 3.0)
_TROUBLE_S: Final = 5.0
_TOKEN_S: Final = 300.0
_WORDS: Final = ("windlass", "anchor", "capstan", "hawser", "bollard", "fairlead")
_PIXELS: Final = 256

Job = dict[str, Any]


async def go_on(url: str, signer: Signer | None) -> None:
    """Submit jobs until cancelled."""
    token = None if signer is None else (lambda: signer.sign("demo", ["submit"], _TOKEN_S))
    async with AsyncClient(url, token=token) as client:
        several = _FIRST
        while True:
            try:
                await client.submit_many(job for _, job in zip(range(several), mix(), strict=False))
            except WindlassError as error:
                say(f"the demo waits a moment: {error}")
                await asyncio.sleep(_TROUBLE_S)
            several = random.choice((1, 1, 2, 3, 8))
            await asyncio.sleep(random.uniform(*_PAUSE_S))


def mix() -> Iterator[Job]:
    """Jobs without end. Each kind comes as often as it is named here."""
    kinds = (_sum, _sum, _text, _text, _wide, _image, _load, _load, _load, _urgent, _later, _flaky, _doomed)
    while True:
        yield {"tags": ["demo"], **random.choice(kinds)()}


def _sum() -> Job:
    return {"type": "add_numbers", "payload": {"a": random.randint(1, 1000), "b": random.randint(1, 1000)}}


def _text() -> Job:
    return {"type": "reverse_string", "payload": {"text": " ".join(random.sample(_WORDS, 3))}}


def _wide() -> Job:
    payload = {"count": random.randint(1, 20) * 1_000_000, "start": 1}
    return {"type": "large_array_sum", "payload": payload, "thread_demand": random.choice((2, 2, 4))}


def _image() -> Job:
    payload = {"source": _picture(), "width": random.choice((32, 64, 128))}
    return {"type": "resize_image", "payload": payload, "name": "thumbnail"}


def _load() -> Job:
    kind = random.choice(("default", "default", "network_task", "io_intensive", "mixed_workload", "cpu_intensive"))
    # What really works is brief: the machine has other tasks.
    most_s = 4.0 if kind in {"default", "network_task"} else 0.3
    return {"type": kind, "payload": {"task": "demo", "duration_s": round(random.uniform(0.05, most_s), 2)}}


def _urgent() -> Job:
    return {**_load(), "priority": random.choice((-20, 20, 50)), "name": "not all jobs are equal"}


def _later() -> Job:
    return {**_text(), "delay_s": round(random.uniform(5, 60), 1), "name": "for later"}


def _flaky() -> Job:
    payload = {"task": "flaky", "duration_s": 0.2, "fail": 0.5}
    return {"type": "io_intensive", "payload": payload, "max_attempts": 5, "name": "fails now and then"}


def _doomed() -> Job:
    kind = random.choice(("network_task", "io_intensive", "default"))
    payload = {"task": "doomed", "duration_s": 0.1, "fail": True}
    return {"type": kind, "payload": payload, "max_attempts": 2, "name": "always fails"}


@cache
def _picture() -> str:
    """A picture of our own, as PNG: a colour for every place."""
    rows = b"".join(b"\0" + bytes(v for x in range(_PIXELS) for v in (x, y, 128)) for y in range(_PIXELS))
    size = struct.pack(">IIBBBBB", _PIXELS, _PIXELS, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", size), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    png = b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in parts)
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + png).decode()

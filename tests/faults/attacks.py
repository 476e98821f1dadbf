"""What a token that may only submit can do to the others, each attack as a value of one table.

An attack is one round of calls, repeated at most `times` times, so that a run is bounded in count as well as in time.
It goes to a loopback address alone, and nothing is asserted here: what becomes of the attacker is of no interest, as
long as nobody else notices.
"""

import asyncio
import base64
import io
import json
import random
import struct
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from PIL import Image

from tests.api.raw import Heard, Raw

NDJSON = "application/x-ndjson"
_MB = 2**20
_GONE = (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError)


@dataclass(slots=True)
class Attacker:
    """Its token, and where the API is. `heard`: the statuses of its answers."""

    port: int
    token: str
    heard: dict[int, int] = field(default_factory=dict)

    async def post(self, path: str, body: Any, media: str = "application/json", *, patience_s: float = 30) -> None:
        with suppress(*_GONE):
            async with asyncio.timeout(patience_s), Raw(self.port) as raw:
                self.note(await raw.call("POST", path, body, token=self.token, Content_Type=media))

    async def submit(self, type_: str, payload: Any, **options: Any) -> None:
        await self.post("/v1/jobs", {"type": type_, "payload": payload, **options})

    async def bulk(self, jobs: Iterable[dict[str, Any]]) -> None:
        await self.post("/v1/jobs/bulk", "\n".join(map(json.dumps, jobs)).encode(), NDJSON)

    def head(self, path: str, length: int, media: str = "application/json") -> bytes:
        said = f"Host: 127.0.0.1\r\nAuthorization: Bearer {self.token}\r\nContent-Type: {media}\r\n"
        return f"POST {path} HTTP/1.1\r\n{said}Content-Length: {length}\r\n\r\n".encode()

    def note(self, heard: Heard) -> None:
        self.heard[heard.status] = self.heard.get(heard.status, 0) + 1


@dataclass(frozen=True, slots=True)
class Attack:
    """`point`: of the list of weaknesses this run came from. `every_s`: the pause between two rounds."""

    name: str
    point: int
    once: Callable[[Attacker], Awaitable[None]]
    every_s: float
    times: int


# 1: names without end. ----------------------------------------------------------------------------------------------


async def _queue_names(attacker: Attacker) -> None:
    await attacker.bulk({"type": "add_numbers", "queue": f"made-up-{uuid4().hex}"} for _ in range(5_000))


async def _tag_names(attacker: Attacker) -> None:
    await attacker.bulk(
        {"type": "add_numbers", "payload": {"a": 1, "b": 2}, "delay_s": 3600, "tags": [uuid4().hex for _ in range(5)]}
        for _ in range(1_000)
    )


async def _type_names(attacker: Attacker) -> None:
    for _ in range(20):
        await attacker.submit(f"made-up-{uuid4().hex}", None)


# 2: handlers that are slow on purpose. ------------------------------------------------------------------------------


async def _combining_marks(attacker: Attacker) -> None:
    job = {
        "type": "reverse_string",
        "timeout_s": 1,
        "max_attempts": 1000,
        "payload": {"text": "a" + "\u0301" * 500_000},
    }
    await attacker.post("/v1/jobs", json.dumps(job, ensure_ascii=False).encode())


async def _whole_numbers(attacker: Attacker) -> None:
    await attacker.submit("add_numbers", {"a": int("9" * 4_000), "b": 1})


# 3 and 4: pictures. -------------------------------------------------------------------------------------------------


def _palette_picture() -> str:
    """50 KB that are 50 million pixels, each four bytes once its colours are looked up."""
    made = io.BytesIO()
    picture = Image.new("P", (7_071, 7_071))
    picture.putpalette([0] * 768)
    picture.save(made, "PNG", transparency=bytes(256))
    return base64.b64encode(made.getvalue()).decode()


def _run_length_picture() -> str:
    """1 KB whose every line is a dot and an end of line: a decoder written in Python fills in the rest byte by byte."""
    width, height = 190_000, 250
    rows = b"\x01\x00\x00\x00" * height + b"\x00\x01"
    palette = bytes(8)
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(rows), 0, 0, 2, 0)
    start = 14 + len(info) + len(palette)
    file = struct.pack("<2sIHHI", b"BM", start + len(rows), 0, 0, start)
    return base64.b64encode(file + info + palette + rows).decode()


_pictures: dict[str, str] = {}


def _picture(name: str, make: Callable[[], str]) -> str:
    if name not in _pictures:
        _pictures[name] = make()
    return _pictures[name]


async def _palettes(attacker: Attacker) -> None:
    source = _picture("palette", _palette_picture)
    await asyncio.gather(*(attacker.submit("resize_image", {"source": source, "width": 10}) for _ in range(4)))


async def _run_lengths(attacker: Attacker) -> None:
    source = _picture("run lengths", _run_length_picture)
    await attacker.submit("resize_image", {"source": source, "width": 10}, timeout_s=2, max_attempts=100)


async def _stuck_picture(attacker: Attacker) -> None:
    """It times out in the middle of a call that cannot be interrupted, beside a job of an hour."""
    await attacker.submit("default", {"duration_s": 3600})
    source = _picture("palette", _palette_picture)
    await attacker.submit("resize_image", {"source": source, "width": 7_000}, timeout_s=0.3, max_attempts=100)


# 5: bodies. ---------------------------------------------------------------------------------------------------------


async def _unfinished_uploads(attacker: Attacker) -> None:
    job = b'{"type":"reverse_string","payload":{"text":"' + b"x" * 500_000 + b'"}},'
    body = b"[" + job * (31 * _MB // len(job))
    async with AsyncExitStack() as stack:
        for _ in range(3):
            with suppress(*_GONE):
                raw = await stack.enter_async_context(Raw(attacker.port))
                await raw.send(attacker.head("/v1/jobs/bulk", 32 * _MB) + body)
        for _ in range(30):  # a byte now and then
            for_all = asyncio.sleep(0.1)
            with suppress(*_GONE):
                await raw.send(b" ")
            await for_all


async def _bulk_of_nothing(attacker: Attacker) -> None:
    await attacker.post("/v1/jobs/bulk", b"{}\n" * (32 * _MB // 3), NDJSON)
    await attacker.post("/v1/jobs/bulk", b"\n" * (32 * _MB), NDJSON)
    await attacker.post("/v1/jobs/bulk", b"[" + b"{}," * (10 * _MB) + b"{}]")


async def _bulk_of_brackets(attacker: Attacker) -> None:
    """All are valid but the last: nothing is stored, and everything is looked at."""
    job = (
        b'{"type":"webhook","delay_s":3600,"payload":{"url":"http://127.0.0.1/","body":[' + b"{}," * 1_000 + b"{}]}}\n"
    )
    await attacker.post("/v1/jobs/bulk", job * 300 + b'{"type":"made-up"}', NDJSON)


async def _large_singles(attacker: Attacker) -> None:
    """Stored, and refused by their handler: nothing on this machine may be reached."""
    body = b'{"type":"webhook","payload":{"url":"http://127.0.0.1/","body":[' + b"{}," * 330_000 + b"{}]}}"
    await asyncio.gather(*(attacker.post("/v1/jobs", body) for _ in range(8)))


async def _pipelines_and_resets(attacker: Attacker) -> None:
    body = b'{"type":"made-up"}'
    for count in (5, 5_000):
        with suppress(*_GONE):
            async with Raw(attacker.port) as raw:
                await raw.send((attacker.head("/v1/jobs", len(body)) + body) * count)


# 6: more than a share. ----------------------------------------------------------------------------------------------


async def _wide_and_long(attacker: Attacker) -> None:
    await attacker.bulk(
        {"type": "default", "payload": {"duration_s": 3600}, "thread_demand": 4, "priority": 100} for _ in range(50)
    )


async def _flood(attacker: Attacker) -> None:
    await attacker.bulk({"type": "default", "payload": {"duration_s": 0.1}, "priority": 100} for _ in range(2_000))


async def _keys_of_others(attacker: Attacker) -> None:
    """Keys that an innocent caller is about to use."""
    for _ in range(20):
        key = f"order-{random.randrange(2_000)}"
        await attacker.submit("add_numbers", {"a": 0, "b": 0}, idempotency_key=key)


ATTACKS = (
    Attack("queue names", 1, _queue_names, 3, 4),
    Attack("tag names", 1, _tag_names, 3, 5),
    Attack("type names", 1, _type_names, 2, 20),
    Attack("combining marks", 2, _combining_marks, 4, 5),
    Attack("whole numbers", 2, _whole_numbers, 1, 50),
    Attack("stuck picture", 3, _stuck_picture, 10, 2),
    Attack("palettes", 4, _palettes, 5, 4),
    Attack("run lengths", 4, _run_lengths, 5, 4),
    Attack("unfinished uploads", 5, _unfinished_uploads, 1, 20),
    Attack("bulk of nothing", 5, _bulk_of_nothing, 2, 20),
    Attack("bulk of brackets", 5, _bulk_of_brackets, 2, 20),
    Attack("large singles", 5, _large_singles, 4, 10),
    Attack("pipelines and resets", 5, _pipelines_and_resets, 1, 50),
    Attack("wide and long", 6, _wide_and_long, 5, 4),
    Attack("flood", 6, _flood, 3, 5),
    Attack("keys of others", 6, _keys_of_others, 1, 50),
)

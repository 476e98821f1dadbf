"""resize_image in real children: pictures that are made to cost are bounded in memory and time, also side by side."""

import asyncio
import base64
import io
import json
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import psutil
import pytest
from PIL import Image

from tests.jobs.test_images import bomb
from tests.unit.values import lease
from tests.worker.isolating import children, isolated, log_of
from windlass.clock import steady_s
from windlass.errors import Fail
from windlass.jobs import app, pixel_budget
from windlass.jobs.images import shrunk
from windlass.jobs.pixel_budget import BudgetUsedUp, reserved
from windlass.lifecycle import Completed, Failed, Outcome, Snoozed
from windlass.worker.isolation import Isolation
from windlass.worker.run import Run

_pixels_max = 50_000_000


@pytest.fixture
async def isolation() -> AsyncIterator[Isolation]:
    one = isolated(app="windlass.jobs:app", threads=4)
    yield one
    await one.aclose()


def a_run(data: bytes, **payload: object) -> Run:
    text = json.dumps({"source": base64.b64encode(data).decode(), "width": 100, **payload})
    job = app.types["resize_image"]
    return Run(lease(job_id=UUID(int=7), type="resize_image", payload=text), job, steady_s(), 0)


def palette_bomb() -> bytes:
    """6 KB of PNG with 49 million pixels of a palette with a clear colour: it took 970 MB."""
    out = io.BytesIO()
    Image.new("P", (7_000, 7_000)).save(out, "PNG", transparency=0)
    return out.getvalue()


async def in_its_turn(isolation: Isolation, data: bytes) -> Outcome:
    """Tried again while others use up the budget, as a worker does."""
    while isinstance(outcome := await isolation.run(a_run(data)), Snoozed):
        assert outcome.delay_s >= 0.5
    return outcome


async def test_four_bombs_at_once_take_little_memory(isolation: Isolation) -> None:
    data = palette_bomb()
    runs = [asyncio.create_task(in_its_turn(isolation, data)) for _ in range(4)]
    most_mib = 0.0
    while not all(run.done() for run in runs):
        await asyncio.sleep(0.02)
        most_mib = max(most_mib, sum(map(own_mib, children())))
    assert [type(run.result()) for run in runs] == [Completed] * 4, runs
    assert most_mib < 500  # 2,900 before


def own_mib(process: psutil.Process) -> float:
    try:
        return float(process.memory_full_info().uss) / 1_048_576
    except psutil.Error:
        return 0.0


async def test_a_picture_beyond_the_limit_is_final_and_names_the_limit(
    isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_IMAGE_PIXELS_MAX", "1000000000")
    outcome = await isolation.run(a_run(bomb(18_000, 18_000)))  # 1.3 GB
    assert isinstance(outcome, Failed)
    assert (outcome.final, "1,024 MiB" in outcome.error.message) == (True, True), outcome


async def test_warnings_of_the_library_are_in_our_log(isolation: Isolation, capfd: pytest.CaptureFixture[str]) -> None:
    out = io.BytesIO()
    broken = b"Exif\0\0II*\0\x08\0\0\0\x05\0"  # says five entries, and has none
    Image.new("RGB", (40, 40)).save(out, "JPEG", exif=broken)
    run = a_run(out.getvalue())
    assert isinstance(await isolation.run(run), Completed)
    assert "EXIF" in log_of(run)
    lines = capfd.readouterr().err.splitlines()
    assert [line for line in lines if "EXIF" in line]
    assert all(json.loads(line) for line in lines)


def packed_bmp(side: int = 4_000) -> bytes:
    """A kilobyte that says: one row of one colour, 4,000 rows of them. It took 16 s of Python."""
    body = bytes([255, 1] * 400) + b"\0\1"
    head = struct.pack("<IiiHHIIiiII", 40, side, side, 1, 8, 1, len(body), 0, 0, 256, 0)
    palette = bytes(1024)
    offset = 14 + len(head) + len(palette)
    return b"BM" + struct.pack("<IHHI", offset + len(body), 0, 0, offset) + head + palette + body


def test_a_packed_bmp_is_refused_before_it_is_unpacked() -> None:
    with pytest.raises(Fail, match="packed"):
        shrunk(packed_bmp(), 10, 10, None, 80, _pixels_max)


def test_a_result_of_too_many_pixels_is_refused() -> None:
    out = io.BytesIO()
    Image.new("1", (5_000, 5_000)).save(out, "PNG")
    with pytest.raises(Fail, match="the most is 16,000,000"):
        shrunk(out.getvalue(), 4_001, None, None, 80, _pixels_max)


# The budget. ----------------------------------------------------------------------------------------------------------

_HOLDER = """
import asyncio, sys
from windlass.jobs.pixel_budget import reserved
async def hold():
    async with reserved(int(sys.argv[1]), 100):
        print("held", flush=True)
        await asyncio.Event().wait()
asyncio.run(hold())
"""


@pytest.fixture
def own_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the one that tests beside this use."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(pixel_budget, "_folder", pixel_budget._folder.__wrapped__)


@pytest.mark.usefixtures("own_budget")
async def test_pictures_wait_for_their_share_and_small_ones_do_not() -> None:
    async with reserved(60, 100):
        second = asyncio.create_task(_hold(60))
        await asyncio.wait_for(_hold(1), 30)
        assert not second.done()
    await asyncio.wait_for(second, 30)


@pytest.mark.usefixtures("own_budget")
async def test_never_more_than_the_budget_is_held_at_once() -> None:
    held = most = 0

    async def use(pixels: int) -> None:
        nonlocal held, most
        async with reserved(pixels, 100):
            held += pixels
            most = max(most, held)
            await asyncio.sleep(0.01)
            held -= pixels

    await asyncio.wait_for(asyncio.gather(*(use(pixels) for pixels in (25, 50, 75, 100, 50, 25, 100))), 60)
    assert (held, most) == (0, 100)


@pytest.mark.usefixtures("own_budget")
async def test_a_process_that_is_killed_lets_go_of_its_share() -> None:
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", _HOLDER, "100", stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"held\n"
    waiting = asyncio.create_task(_hold(100))
    await asyncio.sleep(0)
    assert not waiting.done()
    holder.kill()
    await asyncio.wait_for(waiting, 30)
    await holder.wait()


async def _hold(pixels: int) -> None:
    async with reserved(pixels, 100):
        pass


async def test_a_picture_that_does_not_get_its_turn_frees_its_thread() -> None:
    async with reserved(100, 100):
        with pytest.raises(BudgetUsedUp):
            async with reserved(60, 100, within_s=0.05):
                raise AssertionError("the budget was used up")
    async with reserved(60, 100, within_s=30):
        pass

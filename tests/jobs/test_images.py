"""resize_image, run by a real worker on real pictures."""

import base64
import io
import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

from tests.jobs.receiver import receiving, said
from tests.worker.placed import Placed
from windlass.config import JobsConfig
from windlass.errors import Fail
from windlass.jobs.addresses import networks
from windlass.jobs.egress import Egress
from windlass.jobs.home import Means, using
from windlass.jobs.images import shrunk
from windlass.model import Job, Status


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    config = JobsConfig(image_bytes_max=200_000, image_pixels_max=5_000_000)
    with using(Means(config, Egress(networks("127.0.0.1"), None, 5))):
        yield


def picture(size: tuple[int, int] = (400, 300), kind: str = "JPEG", mode: str = "RGB", **options: Any) -> bytes:
    """Its left half is red, its right half blue."""
    image = Image.new("RGB", size, "red")
    image.paste("blue", (size[0] // 2, 0, *size))
    out = io.BytesIO()
    image.convert(mode).save(out, kind, **options)
    return out.getvalue()


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def opened(job: Job) -> Image.Image:
    assert job.status is Status.COMPLETED, job.error
    return Image.open(io.BytesIO(base64.b64decode(json.loads(job.result or "")["image"])))


async def test_an_uploaded_picture_comes_back_smaller_and_is_the_same_picture(worker: Placed) -> None:
    job = await worker.run("resize_image", {"source": text(picture()), "width": 100})
    small = opened(job)
    assert (small.format, small.size) == ("JPEG", (100, 75))
    left, right = small.convert("RGB").getpixel((10, 40)), small.convert("RGB").getpixel((90, 40))
    assert isinstance(left, tuple)
    assert isinstance(right, tuple)
    assert (left[0] > 200, left[2] < 60, right[0] < 60, right[2] > 200) == (True, True, True, True)
    told = json.loads(job.result or "")
    assert told["original"] == {"format": "jpeg", "width": 400, "height": 300, "bytes": len(picture())}
    assert told["bytes"] == len(base64.b64decode(told["image"]))


async def test_a_fetched_picture_does_too(worker: Placed) -> None:
    async with receiving() as server:
        server.reply = said(200, picture(kind="PNG"), Content_Type="image/png")
        job = await worker.run("resize_image", {"source": f"{server.url}/a.png", "height": 30, "format": "webp"})
    assert (opened(job).format, opened(job).size) == ("WEBP", (40, 30))


async def test_what_cannot_be_fetched_says_so(worker: Placed) -> None:
    async with receiving() as server:
        for reply in (said(404), said(302, Location="/b"), said(200, b"x" * 200_001), said(200, b"<html>")):
            server.reply = reply
            job = await worker.run("resize_image", {"source": server.url, "width": 5})
            assert (job.status, job.attempt) == (Status.FAILED, 1)
        server.reply = said(503)
        await worker.reaches(await worker.enqueue("resize_image", {"source": server.url, "width": 5}), Status.SCHEDULED)
    job = await worker.run("resize_image", {"source": "http://169.254.169.254/x.png", "width": 5})
    assert job.error is not None
    assert "EgressRefused" in job.error.type


def shrink(
    data: bytes, width: int | None = 50, height: int | None = 50, kind: Any = None, most: int = 5_000_000
) -> Any:
    return shrunk(data, width, height, kind, 80, most)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP"])
@pytest.mark.parametrize("into", ["jpeg", "png", "webp", "gif", None])
def test_every_format_becomes_every_other(kind: str, into: str | None) -> None:
    made = shrink(picture(kind=kind), kind=into)
    small = Image.open(io.BytesIO(made["data"]))
    assert small.size == (made["width"], made["height"]) == (50, 38)
    assert str(small.format).lower() == made["format"] == (into or {"BMP": "png"}.get(kind, kind.lower()))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "I;16"])
@pytest.mark.parametrize("into", ["jpeg", "png", "webp", "gif"])
def test_every_kind_of_pixel_is_taken(mode: str, into: str) -> None:
    image = Image.new("I;16", (90, 60), 30_000) if mode == "I;16" else Image.new("RGB", (90, 60), "red").convert(mode)
    out = io.BytesIO()
    image.save(out, "PNG")
    assert shrink(out.getvalue(), kind=into)["width"] == 50


def test_a_photo_of_several_pictures_is_its_first() -> None:
    out = io.BytesIO()
    Image.new("RGB", (90, 60), "red").save(
        out, "MPO", save_all=True, append_images=[Image.new("RGB", (90, 60), "blue")]
    )
    made = shrink(out.getvalue())
    small = Image.open(io.BytesIO(made["data"]))
    pixel = small.getpixel((5, 5))
    assert isinstance(pixel, tuple)
    assert (made["format"], small.format, pixel[0] > 200) == ("jpeg", "JPEG", True)


def test_it_is_never_enlarged() -> None:
    assert (made := shrink(picture((30, 20)), 500, 500))["width"] == 30
    assert made["height"] == 20


def test_a_photo_taken_upright_stays_upright_and_tells_no_place() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010E] = "my home"
    made = shrink(picture((400, 200), exif=exif), 50, 100)
    small = Image.open(io.BytesIO(made["data"]))
    assert small.size == (50, 100)
    assert dict(small.getexif()) == {}
    assert b"my home" not in made["data"]


def test_clear_parts_become_white_where_there_is_no_clear() -> None:
    out = io.BytesIO()
    Image.new("RGBA", (60, 60), (255, 0, 0, 0)).save(out, "PNG")
    small = Image.open(io.BytesIO(shrink(out.getvalue(), kind="jpeg")["data"]))
    assert small.getpixel((5, 5)) == (255, 255, 255)


def bomb(width: int, height: int) -> bytes:
    """A PNG whose head says many pixels; so does its body, packed to a thousandth."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(10_000_000), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(2500, 2001), (10_000, 10_000), (20_000, 20_000), (60_000, 60_000), (2**31 - 1, 1)])
async def test_a_bomb_is_refused_by_its_head(size: tuple[int, int], worker: Placed) -> None:
    job = await worker.run("resize_image", {"source": text(bomb(*size)), "width": 10})
    assert (job.status, job.attempt) == (Status.FAILED, 1)
    assert job.error is not None
    assert "pixels" in job.error.message


@pytest.mark.parametrize(
    "data",
    [b"", b"x", b"%PDF-1.4", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"GIF89a", picture()[:500], b"\x89PNG\r\n\x1a\n", b"<svg/>"],
)
def test_what_is_no_whole_picture_is_final(data: bytes) -> None:
    with pytest.raises(Fail):
        shrink(data)


async def test_a_payload_that_makes_no_sense_is_final(worker: Placed) -> None:
    good = text(picture())
    for wrong in (
        {"source": good},
        {"source": "!!!", "width": 5},
        {"source": "ftp://x/y", "width": 5},
        {"source": "file:///etc/passwd", "width": 5},
        {"source": good, "width": 0},
        {"source": good, "width": 5, "format": "pdf"},
        {"source": good, "width": 5, "quality": 101},
    ):
        job = await worker.run("resize_image", wrong)
        assert (job.status, job.attempt) == (Status.FAILED, 1), wrong
    job = await worker.run("resize_image", {"source": f"data:image/jpeg;base64,{good}", "width": 5})
    assert job.status is Status.COMPLETED

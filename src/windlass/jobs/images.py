"""resize_image: a picture in, a smaller one out.

Pictures come from strangers. Each is unpacked in a child process with a memory limit, which is killed when its time is
up; pictures that are unpacked at the same time share a budget of pixels (pixel_budget.py). Only the formats and decoders named
here are used; a picture of more pixels than allowed is refused by what its head says, before any of them is unpacked (a
bomb of a few kilobytes may hold gigabytes); and nothing of the original but its pixels and colour profile goes into the
new one: no place where a photo was taken.
"""

import base64
import binascii
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from windlass import AsyncContext, Fail, Snooze
from windlass.jobs.home import app, means
from windlass.jobs.pixel_budget import BudgetUsedUp, reserved

Format = Literal["jpeg", "png", "webp", "gif"]
Side = Annotated[int, Meta(ge=1, le=20_000, description="pixels")]
Quality = Annotated[int, Meta(ge=1, le=100)]

# How long a picture waits for its turn, in its first attempt and at most, before it frees its thread and comes back.
_patience_s: Final = 0.5
_patience_s_max: Final = 30.0
_READ: Final = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
# All written in C. The one for packed BMPs is written in Python: a kilobyte kept it busy for 16 s.
_DECODERS: Final = frozenset({"jpeg", "zip", "gif", "raw"})
# What a picture becomes if no format is asked for. Some cameras and phones put several pictures into one JPEG: MPO.
_KEPT_AS: Final[dict[str, Format]] = {
    "jpeg": "jpeg",
    "mpo": "jpeg",
    "png": "png",
    "webp": "webp",
    "gif": "gif",
    "bmp": "png",
}
_WITHOUT_ALPHA: Final = frozenset({"jpeg"})
_result_bytes_max: Final = 760_000  # as base64, with the rest of the result, less than the mebibyte a result may have
_result_pixels_max: Final = 16_000_000
_memory_mb: Final = 1_024  # 50 million pixels of WebP need 850
_gap: Final = 2  # a picture is averaged to twice its new size, then resampled: nobody sees the difference
_strip_pixels: Final = 1_000_000
_ORIENTATION: Final = 0x0112
_TURNED: Final = frozenset({5, 6, 7, 8})
_profile_bytes_max: Final = 65_536
_DATA_URL: Final = re.compile(r"data:[\w.+/-]{0,100}(?:;[\w=.-]{0,60}){0,4};base64,", re.IGNORECASE)


@app.job(timeout=120, isolation="process", memory_limit_mb=_memory_mb)
async def resize_image(
    ctx: AsyncContext,
    source: Annotated[str, Meta(min_length=1, description="base64, a data: URL, or an https:// URL")],
    width: Side | None = None,
    height: Side | None = None,
    format: Format | None = None,  # noqa: A002 - the payload's word
    quality: Quality = 85,
) -> dict[str, Any]:
    """Make an image smaller so that it fits into `width` × `height`, in its proportions; it is never enlarged.

    `source` is the image as base64, or the https:// address of one. Without `format` it keeps its own.
    """
    if width is None and height is None:
        raise Fail("say width, height or both")
    data = await _fetched(source) if source[:8].lower().startswith(("http://", "https://")) else _uploaded(source)
    pixels_max = means().config.image_pixels_max
    # The more often it came in vain the longer it waits: else a large picture never gets a turn among small ones.
    patience_s = min(ctx.attempt * _patience_s, _patience_s_max)
    try:
        async with reserved(pixels_to_unpack(data, width, height, pixels_max), pixels_max, within_s=patience_s):
            # In a thread that hears of a stop, where the job does not run in a child: unpacking blocks.
            (made,) = await ctx.map_chunks(
                lambda some: shrunk(some[0], width, height, format, quality, pixels_max), [data]
            )
    except BudgetUsedUp:
        raise Snooze(patience_s) from None
    return {"image": base64.b64encode(made.pop("data")).decode(), **made}


async def _fetched(url: str) -> bytes:
    have = means()
    answer = await have.egress.request(
        "GET", url, headers=[("Accept", "image/*")], keep_bytes=have.config.image_bytes_max, whole=True
    )
    if answer.status in {408, 425, 429} or answer.status >= 500:
        raise ConnectionError(f"the image's server answered {answer.status}")
    if answer.status != 200:
        raise Fail(f"the image's server answered {answer.status}; redirects are not followed")
    if answer.cut:
        raise Fail(f"the image has more than {have.config.image_bytes_max:,} bytes")
    if answer.header("content-encoding") not in {None, "identity"}:
        raise Fail("the image's server sent it compressed, unasked")
    return answer.body


def _uploaded(source: str) -> bytes:
    head = _DATA_URL.match(source)
    text = source[head.end() :] if head else source
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise Fail("source is neither base64 nor an https:// address") from None


def pixels_to_unpack(data: bytes, width: int | None, height: int | None, pixels_max: int) -> int:
    """How many pixels it has once unpacked, by its head: a JPEG is unpacked at a half, a quarter or an eighth."""
    with _opened(data, pixels_max) as picture:
        picture.draft("RGB", _box(picture, width, height))
        return int(picture.width * picture.height)


def shrunk(
    data: bytes, width: int | None, height: int | None, kind: Format | None, quality: int, pixels_max: int
) -> dict[str, Any]:
    """The smaller picture and what there is to say of it. Blocks."""
    with _opened(data, pixels_max) as picture:
        size, was = picture.size, str(picture.format).lower()
        box = _box(picture, width, height)
        orientation = picture.getexif().get(_ORIENTATION, 1)
        profile = picture.info.get("icc_profile")
        picture.draft("RGB", box)
        small = _upright(_fitted(picture, box), orientation)
    kind = kind or _KEPT_AS[was]
    saved = _saved(small, kind, quality, profile)
    about = {"format": kind, "width": small.width, "height": small.height, "bytes": len(saved)}
    return {
        "data": saved,
        **about,
        "original": {"format": was, "width": size[0], "height": size[1], "bytes": len(data)},
    }


@contextmanager
def _opened(data: bytes, pixels_max: int) -> Iterator[Any]:
    """The picture with its head read. What is wrong with it, now or when it is unpacked, is raised as Fail."""
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415

    Image.MAX_IMAGE_PIXELS = (
        None  # refused here, in our words: the library would warn of each, or refuse by its own limit
    )
    try:
        with Image.open(io.BytesIO(data), formats=_READ) as picture:
            _refuse_bomb(picture.size, pixels_max)
            if not {tile[0] for tile in picture.tile} <= _DECODERS:
                raise Fail("the image is packed in a way that is not read; save it as PNG")
            yield picture
    except UnidentifiedImageError:
        raise Fail("source is no image; read are JPEG, PNG, WebP, GIF and BMP") from None
    except MemoryError:
        raise Fail(f"the image needs more than {_memory_mb:,} MiB of memory") from None
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, TypeError) as error:
        raise Fail(f"the image is damaged, or needs too much memory ({type(error).__name__})") from None


def _refuse_bomb(size: tuple[int, int], pixels_max: int) -> None:
    if size[0] * size[1] > pixels_max:
        raise Fail(
            f"the image has {size[0]:,} by {size[1]:,} pixels; the most is {pixels_max:,} (WINDLASS_IMAGE_PIXELS_MAX)"
        )


def _box(picture: Any, width: int | None, height: int | None) -> tuple[int, int]:
    """What it has to fit into, as the pixels lie in the file: a camera held upright stores its pictures lying down. In
    its proportions."""
    if picture.getexif().get(_ORIENTATION, 1) in _TURNED:
        width, height = height, width
    across, down = picture.size
    scale = min((width or across) / across, (height or down) / down, 1.0)
    box = max(1, round(across * scale)), max(1, round(down * scale))
    if box[0] * box[1] > _result_pixels_max:
        raise Fail(f"the result would have {box[0]:,} by {box[1]:,} pixels; the most is {_result_pixels_max:,}")
    return box


def _fitted(picture: Any, box: tuple[int, int]) -> Any:
    """The picture in this size, as L, RGB or RGBA. Averaged strip by strip, so that a palette or clear parts take no second
    copy of all pixels: 50 million of a palette took 970 MB."""
    from PIL import Image  # noqa: PLC0415

    picture.load()
    mode = _plain_mode(picture)
    by = tuple(max(1, side // wanted // _gap) for side, wanted in zip(picture.size, box, strict=True))
    if mode == picture.mode and by == (1, 1):
        averaged = picture
    else:
        averaged = Image.new(mode, (-(-picture.width // by[0]), -(-picture.height // by[1])))
        rows = max(1, _strip_pixels // picture.width // by[1]) * by[1]
        for top in range(0, picture.height, rows):
            strip = picture.crop((0, top, picture.width, min(top + rows, picture.height)))
            strip = strip.convert("RGBA").convert(mode) if mode == "RGBa" else strip.convert(mode)
            averaged.paste(strip if by == (1, 1) else strip.reduce(by), (0, top // by[1]))
        picture.close()
    # What is left over at the edges by averaging: 7 pixels by twos are three and a half.
    exact = (0.0, 0.0, picture.width / by[0], picture.height / by[1])
    small = averaged if averaged.size == box else averaged.resize(box, Image.Resampling.LANCZOS, box=exact)
    return small.convert("RGBA") if mode == "RGBa" else small


def _plain_mode(picture: Any) -> str:
    """Palettes and the rest as RGB: between the colours of a palette nothing can be in between. RGBa, with the colours
    weighted by how clear they are, where parts are clear."""
    if picture.mode in {"RGB", "L"}:
        return str(picture.mode)
    clear = picture.mode in {"RGBA", "LA", "PA", "La", "RGBa"} or "transparency" in picture.info
    return "RGBa" if clear else "RGB"


def _upright(small: Any, orientation: int) -> Any:
    from PIL.Image import Transpose  # noqa: PLC0415

    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    return small.transpose(turns[orientation]) if orientation in turns else small


def _saved(small: Any, kind: str, quality: int, profile: bytes | None) -> bytes:
    from PIL import Image  # noqa: PLC0415

    if kind in _WITHOUT_ALPHA and small.mode == "RGBA":
        ground = Image.new("RGB", small.size, "white")
        ground.paste(small, mask=small.getchannel("A"))
        small = ground
    small.info.clear()
    options: dict[str, Any] = {"quality": quality} if kind in {"jpeg", "webp"} else {}
    if profile and kind != "gif" and len(profile) <= _profile_bytes_max:
        options["icc_profile"] = profile
    out = io.BytesIO()
    small.save(out, kind.upper(), **options)
    data = out.getvalue()
    if len(data) > _result_bytes_max:
        raise Fail(
            f"the result would have {len(data):,} bytes; the most is {_result_bytes_max:,}: ask for fewer pixels"
        )
    return data

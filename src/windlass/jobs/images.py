"""resize_image: a picture in, a smaller one out.

Pictures come from strangers. Only the formats named here are opened, by their contents; a picture of more pixels than
allowed is refused by what its head says, before any of them is unpacked (a bomb of a few kilobytes may hold gigabytes);
and nothing of the original but its pixels and colour profile goes into the new one: no place where a photo was taken.
"""

import base64
import binascii
import io
import re
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from windlass import AsyncContext, Fail
from windlass.jobs.home import app, means

Format = Literal["jpeg", "png", "webp", "gif"]
Side = Annotated[int, Meta(ge=1, le=20_000, description="pixels")]
Quality = Annotated[int, Meta(ge=1, le=100)]

_READ: Final = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
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
_ORIENTATION: Final = 0x0112
_profile_bytes_max: Final = 65_536
_DATA_URL: Final = re.compile(r"data:[\w.+/-]{0,100}(?:;[\w=.-]{0,60}){0,4};base64,", re.IGNORECASE)


@app.job(timeout=120)
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
    # In a thread that hears of a stop: unpacking blocks.
    (made,) = await ctx.map_chunks(lambda some: shrunk(some[0], width, height, format, quality, pixels_max), [data])
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


def shrunk(
    data: bytes, width: int | None, height: int | None, kind: Format | None, quality: int, pixels_max: int
) -> dict[str, Any]:
    """The smaller picture and what there is to say of it. Blocks."""
    from PIL import Image, ImageOps, UnidentifiedImageError  # noqa: PLC0415

    if Image.MAX_IMAGE_PIXELS is not None:  # the library's own limit must not undercut what the settings allow
        Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS, pixels_max)
    try:
        with Image.open(io.BytesIO(data), formats=_READ) as picture:
            size, was = picture.size, str(picture.format).lower()
            _refuse_bomb(size, pixels_max)
            box = _box(size, width, height, turned=picture.getexif().get(_ORIENTATION, 1) in {5, 6, 7, 8})
            picture.draft("RGB", box)  # JPEG: unpacked at a half, a quarter or an eighth, in a third of the time
            profile = picture.info.get("icc_profile")
            small = _with_plain_colours(picture)
            small.thumbnail(box, Image.Resampling.LANCZOS)
            small = ImageOps.exif_transpose(small)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise Fail(f"the image has more than {pixels_max:,} pixels") from None
    except UnidentifiedImageError:
        raise Fail("source is no image; read are JPEG, PNG, WebP, GIF and BMP") from None
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, TypeError) as error:
        raise Fail(f"the image is damaged ({type(error).__name__})") from None
    kind = kind or _KEPT_AS[was]
    saved = _saved(small, kind, quality, profile)
    about = {"format": kind, "width": small.width, "height": small.height, "bytes": len(saved)}
    return {
        "data": saved,
        **about,
        "original": {"format": was, "width": size[0], "height": size[1], "bytes": len(data)},
    }


def _refuse_bomb(size: tuple[int, int], pixels_max: int) -> None:
    if size[0] * size[1] > pixels_max:
        raise Fail(
            f"the image has {size[0]:,} by {size[1]:,} pixels; the most is {pixels_max:,} (WINDLASS_IMAGE_PIXELS_MAX)"
        )


def _box(size: tuple[int, int], width: int | None, height: int | None, *, turned: bool) -> tuple[int, int]:
    """What it has to fit into, as the pixels lie in the file: a camera held upright stores its pictures lying down."""
    if turned:
        width, height = height, width
    return min(width or size[0], size[0]), min(height or size[1], size[1])


def _with_plain_colours(picture: Any) -> Any:
    """Palettes and the rest as RGB(A): between the colours of a palette nothing can be in between."""
    if picture.mode in {"RGB", "RGBA", "L"}:
        picture.load()
        return picture
    clear = picture.mode in {"LA", "PA", "La", "RGBa"} or "transparency" in picture.info
    return picture.convert("RGBA" if clear else "RGB")


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

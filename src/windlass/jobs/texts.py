"""The smallest job types: one value in, one value out."""

import asyncio
import math
import unicodedata
from typing import Annotated, Final

from msgspec import Meta

from windlass import Fail
from windlass.jobs.home import app

_JOINER: Final = "\u200d"
_at_once_max: Final = 4_096  # characters that the loop may spend a millisecond on

Number = int | float
Text = Annotated[str, Meta(max_length=1_000_000)]


@app.job(timeout=60)
async def add_numbers(
    a: Number | None = None, b: Number | None = None, x: Number | None = None, y: Number | None = None
) -> int | float:
    """Add two numbers, given as `a` and `b` or as `x` and `y`. Whole ones of any length are added exactly."""
    first, second = _addends([a, b], [x, y])
    try:
        total = first + second
    except OverflowError:  # a whole number that no float can hold, and a float
        total = math.inf
    if isinstance(total, float) and not math.isfinite(total):
        raise Fail("the sum is beyond what a number with a fraction can hold")
    return total


def _addends(*pairs: list[Number | None]) -> tuple[Number, Number]:
    """The one pair that was given, whole."""
    given = [pair for pair in pairs if any(each is not None for each in pair)]
    match given:
        case [[int() | float() as first, int() | float() as second]]:
            return first, second
    raise Fail("give two numbers: a and b, or x and y")


@app.job(timeout=60)
async def reverse_string(text: Text) -> str:
    """Reverse a text of up to 1,000,000 characters, as people see them: accents and joined emoji stay whole."""
    if text.isascii():
        return text[::-1]
    if len(text) <= _at_once_max:
        return _reversed(text)
    return await asyncio.to_thread(_reversed, text)  # a quarter of a second for the longest: the loop goes on


def _reversed(text: str) -> str:
    """By the places where characters begin: to append to each, mark by mark, would copy a long one every time."""
    begins = _character_begins(text)
    ends = [*begins[1:], len(text)]
    return "".join(text[begin:end] for begin, end in zip(reversed(begins), reversed(ends), strict=True))


def _character_begins(text: str) -> list[int]:
    """Marks, skin tones and what a joiner joins go with the character before them; flags are pairs of letters."""
    begins: list[int] = []
    before = ""
    for at, each in enumerate(text):
        joined = before == _JOINER or _belongs_to_the_last(each)
        if not begins or not (joined or (begins[-1] == at - 1 and _is_flag_letter(before) and _is_flag_letter(each))):
            begins.append(at)
        before = each
    return begins


def _belongs_to_the_last(each: str) -> bool:
    return each == _JOINER or unicodedata.category(each).startswith("M") or "\U0001f3fb" <= each <= "\U0001f3ff"


def _is_flag_letter(each: str) -> bool:
    return "\U0001f1e6" <= each <= "\U0001f1ff"

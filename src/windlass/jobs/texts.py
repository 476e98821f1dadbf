"""The smallest job types: one value in, one value out."""

import math
import unicodedata
from typing import Final

from windlass import Fail
from windlass.jobs.home import app

_JOINER: Final = "\u200d"


Number = int | float


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
async def reverse_string(text: str) -> str:
    """Reverse a text, character by character as people see them: accents and joined emoji stay whole."""
    return "".join(reversed(_characters(text)))


def _characters(text: str) -> list[str]:
    """Marks, skin tones and what a joiner joins go with the character before them; flags are pairs of letters."""
    found: list[str] = []
    for each in text:
        if found and (_belongs_to_the_last(each) or found[-1].endswith(_JOINER) or _is_half_a_flag(found[-1], each)):
            found[-1] += each
        else:
            found.append(each)
    return found


def _belongs_to_the_last(each: str) -> bool:
    return each == _JOINER or unicodedata.category(each).startswith("M") or "\U0001f3fb" <= each <= "\U0001f3ff"


def _is_half_a_flag(last: str, each: str) -> bool:
    first, end = "\U0001f1e6", "\U0001f1ff"
    return len(last) == 1 and first <= last <= end and first <= each <= end

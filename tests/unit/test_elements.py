"""Lists that are split while they arrive: the same documents, wherever the pieces are cut."""

import json
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.api.elements import Elements, Lines, NotAList, Splitter, TooLong

_BYTES_MAX = 100_000
_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


def cut(data: bytes, at: list[int]) -> Iterator[bytes]:
    edges = [0, *sorted(n % (len(data) + 1) for n in at), len(data)]
    return (data[begin:end] for begin, end in pairwise(edges))


def documents(splitter: Splitter, pieces: Iterator[bytes]) -> list[Any]:
    found = [json.loads(each) for piece in pieces for each in splitter.feed(piece, last=False)]
    return found + [json.loads(each) for each in splitter.feed(b"", last=True)]


@given(st.lists(_values, max_size=6), st.lists(st.integers(0, 10**6), max_size=12), st.booleans())
def test_an_array_gives_its_elements_wherever_it_is_cut(values: list[Any], at: list[int], spaced: bool) -> None:
    body = json.dumps(values, ensure_ascii=not spaced, indent=1 if spaced else None).encode()
    assert documents(Elements(_BYTES_MAX), cut(b"\n " + body + b" \r\n", at)) == values


@given(
    st.lists(_values, max_size=6),
    st.lists(st.integers(0, 10**6), max_size=12),
    st.sampled_from(["\n", "\r\n", "\n \n"]),
)
def test_lines_give_their_documents_wherever_they_are_cut(values: list[Any], at: list[int], between: str) -> None:
    body = between.join(json.dumps(each, ensure_ascii=False) for each in values).encode()
    assert documents(Lines(_BYTES_MAX), cut(body, at)) == values


@pytest.mark.parametrize(
    "body", ["", "[", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "[1]]", "[1],", "[1] [2]", '["a]', "[{]", "{}", "x", "7"]
)
def test_what_is_no_array_is_refused_wherever_it_is_cut(body: str) -> None:
    for at in range(len(body) + 1):
        with pytest.raises(NotAList):
            documents(Elements(_BYTES_MAX), cut(body.encode(), [at]))


def test_half_a_character_is_refused() -> None:
    with pytest.raises(UnicodeDecodeError):
        documents(Elements(_BYTES_MAX), iter([b'["\xc3', b'"]']))


@pytest.mark.parametrize("splitter", [Elements, Lines])
def test_a_document_without_end_is_refused_before_twice_its_limit_has_arrived(
    splitter: type[Elements] | type[Lines],
) -> None:
    pieces = iter([b'["' if splitter is Elements else b'"', *[b"x" * 1_000] * 1_000])
    with pytest.raises(TooLong):
        documents(splitter(_BYTES_MAX), pieces)
    assert len(list(pieces)) > 780  # of 1,000 were not asked for


@pytest.mark.parametrize("splitter", [Elements, Lines])
def test_a_document_that_arrives_byte_by_byte_takes_linear_time(splitter: type[Elements] | type[Lines]) -> None:
    def took_s(size: int) -> float:
        split = splitter(10**9)
        found: list[bytes | str] = []
        body = b'["' + b"x" * size + b'"]\n'
        began_s = time.process_time()
        for n in range(len(body)):
            found += split.feed(body[n : n + 1], last=False)
        found += split.feed(b"", last=True)
        assert len(found) == 1
        return time.process_time() - began_s

    took_s(1_000)
    small_s = min(took_s(20_000) for _ in range(3))
    assert took_s(320_000) < 100 * small_s  # 16 times as large; quadratic would be 256

"""The documents of a list, split off while the body arrives: a JSON array by elements, NDJSON by lines.

A list that was decoded whole took 25 times its size before it could be refused. Here at most one document and one piece
are held, and the caller refuses the first wrong document, or one too many, without waiting for the rest.
"""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Final, Protocol

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_COMMA: Final = re.compile(r"[ \t\r\n]*,[ \t\r\n]*(?=\{)")
_LINE: Final = re.compile(rb"[^\n]+")


class NotAList(ValueError):
    """The body is no JSON array. `sample`: a document of the kind that is there instead, or None where it is no
    JSON."""

    def __init__(self, sample: bytes | None, problem: str = "") -> None:
        super().__init__(problem)
        self.sample = sample


class TooLong(ValueError):
    """A document is larger than any may be."""


class Splitter(Protocol):
    @property
    def pending(self) -> int:
        """The size of what has arrived of an unfinished document: it is looked at again."""
        ...

    def feed(self, piece: bytes, *, last: bool) -> Iterator[bytes | str]:
        """The documents that are whole with this piece. `last`: nothing follows."""
        ...


class Lines:
    """A document a line; empty lines are skipped."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max: Final = bytes_max
        self._rest = bytearray()

    @property
    def pending(self) -> int:
        return len(self._rest)

    def feed(self, piece: bytes, *, last: bool) -> Iterator[bytes | str]:
        whole, newline, left = piece.rpartition(b"\n")
        if newline:
            if self._rest:
                whole = bytes(self._rest + whole)
                self._rest.clear()
            for line in _LINE.findall(whole):
                if len(line) > self._bytes_max:
                    raise TooLong
                if not line.isspace():
                    yield line
        self._rest += left
        if len(self._rest) > self._bytes_max:
            raise TooLong
        if last and self._rest and not self._rest.isspace():
            yield bytes(self._rest)


def _ignore(_text: str) -> None:
    """Numbers are not converted here: their text alone is of interest, and int() refuses one of 10,000 digits."""


class Elements:
    """The elements of one JSON array.

    Where an element ends is found by Python's own scanner, which is as quick as a decoder; a tokenizer written in
    Python took ten times as long for a payload of `{}`. It cannot say whether a text that does not parse is wrong or
    merely unfinished, so it is asked again only once the text has doubled: asked at every piece, an element that
    arrives byte by byte would take quadratic time.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max: Final = bytes_max
        self._utf8: Final = codecs.getincrementaldecoder("utf-8")()
        self._scan: Final = json.JSONDecoder(
            parse_float=_ignore, parse_int=_ignore, parse_constant=_ignore, strict=False
        ).raw_decode
        self._text = ""
        self._held: list[str] = []  # pieces that are not worth a look yet
        self._held_chars = 0
        self._at = 0
        self._look_at_chars = 0
        self._state = "begin"  # then "first", "next", "comma", "end": what may stand here

    @property
    def pending(self) -> int:
        return len(self._text) - self._at + self._held_chars

    def feed(self, piece: bytes, *, last: bool) -> Iterator[bytes | str]:
        text = self._utf8.decode(piece, last)
        self._held.append(text)
        self._held_chars += len(text)
        if self._held_chars < self._look_at_chars and not last:
            return
        self._text = self._text[self._at :] + "".join(self._held)
        self._held, self._held_chars, self._at = [], 0, 0
        yield from self._elements(last)
        left = len(self._text) - self._at
        if left > self._bytes_max:
            raise TooLong
        self._look_at_chars = left  # the text doubles first
        if last and self._state != "end":
            raise NotAList(None, "the list does not end")

    def _elements(self, last: bool) -> Iterator[str]:
        text = self._text
        while (at := self._skip()) < len(text):
            if self._state in ("begin", "comma", "end"):
                self._delimiter(text[at])
            elif self._state == "first" and text[at] == "]":
                self._at, self._state = at + 1, "end"
            else:
                end = self._end_of_element(at, last)
                while end is not None:
                    if end - at > self._bytes_max:
                        raise TooLong
                    self._at, self._state = end, "comma"
                    yield text[at:end]
                    if (follows := _COMMA.match(text, end)) is None:  # the usual case at once: another object
                        break
                    at = self._at = follows.end()
                    self._state = "next"
                    end = self._end_of_element(at, last)
                if end is None:
                    return

    def _skip(self) -> int:
        found = _SPACE.match(self._text, self._at)
        self._at = self._at if found is None else found.end()
        return self._at

    def _delimiter(self, char: str) -> None:
        follows = {("begin", "["): "first", ("comma", ","): "next", ("comma", "]"): "end"}.get((self._state, char))
        if follows is None and self._state == "begin":
            raise NotAList(_SAMPLES.get(char), f"it begins with {char!a}")
        if follows is None:
            raise NotAList(None, f"{char!a} stands where {_EXPECTED[self._state]} is expected")
        self._at, self._state = self._at + 1, follows

    def _end_of_element(self, at: int, last: bool) -> int | None:
        """None: it is not whole yet. Raises RecursionError, and ValueError where nothing can make it whole."""
        try:
            _, end = self._scan(self._text, at)
        except json.JSONDecodeError as error:
            if len(self._text) - at > self._bytes_max:
                raise TooLong from None
            if last:
                raise NotAList(None, f"{error.msg} at character {error.pos - at} of the element") from None
            return None
        # A number that ends with the text may go on in the next piece.
        return end if last or end < len(self._text) or self._text[end - 1] in '}]"' else None


_SAMPLES = {"{": b"{}", '"': b'""', "t": b"true", "f": b"false", "n": b"null"}
_SAMPLES |= dict.fromkeys("-0123456789", b"0")
_EXPECTED: Final = {"comma": "a comma", "end": "the end of the body"}

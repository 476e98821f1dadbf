"""Requests as values: queries and bodies decoded into the types their endpoint names, or refused with the path of the
field and what is wrong with it, in words.
"""

import asyncio
import difflib
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final, Literal, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec

from windlass.api.aside import aside
from windlass.api.elements import Elements, Lines, NotAList, Splitter, TooLong
from windlass.errors import InvalidField, InvalidJob, RequestError, WrongMedia
from windlass.wire import END, Asked, Submission

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"

_AT: Final = re.compile(r"^(?P<said>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>.*)`)?$", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(?P<field>.*)`$", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<field>.*)`$", re.DOTALL)
_STEP: Final = re.compile(r"\[[^]]*]|[^.[\]]+")
_NO_CHOICE: Final = "Invalid enum value "
_KIND: Final = re.compile(r"`([a-z |]+)`")
_KINDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
    "datetime": "a moment",
    "uuid": "a UUID",
}
_FIELD_MAX: Final = 200
_MESSAGE_MAX: Final = 2_000
_END: Final = repr(END)[1:-1]  # as the decoder quotes it; nobody needs to read that

_SLICE_BYTES: Final = 32_768  # ten milliseconds of work, where it is all brackets

Query = Callable[[bytes], Any]
Turn = Callable[[int], AbstractAsyncContextManager[None]]


# Queries. -----------------------------------------------------------------------------------------------------------


def query_reader(asked: type[Asked]) -> Query:
    """Reads the query of a URL. A list is `a=x&a=y` or `a=x,y`; an unknown or repeated parameter is refused."""
    lists = {each.encode_name for each in msgspec.structs.fields(asked) if _is_list(each.type)}

    def read(query: bytes) -> Any:
        values: dict[str, Any] = {}
        for name, value in _pairs(query):
            if name in lists:
                values.setdefault(name, []).extend(value.split(","))
            elif name in values:
                raise InvalidField(_shown(name), "is given twice")
            else:
                values[name] = value
        try:
            return msgspec.convert(values, asked, strict=False)
        except msgspec.ValidationError as error:
            field, wrong = explained(str(error), "", asked)
            raise InvalidField(field or "query", wrong) from None

    return read


def _pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=200)
    except ValueError:  # UnicodeError is one
        raise InvalidField("query", "must be percent-encoded UTF-8, with at most 200 parameters") from None
    for name, value in pairs:
        if "\0" in value:
            raise InvalidField(_shown(name), "must not contain the NUL character")
    return pairs


def _is_list(kind: Any) -> bool:
    if get_origin(kind) is list or kind is list:
        return True
    return any(_is_list(each) for each in get_args(kind))


# Bodies. ------------------------------------------------------------------------------------------------------------


class BodyReader:
    """Reads a body of JSON."""

    def __init__(self, kind: Any, *, optional: bool) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        self._optional = optional
        self._errors = _Errors(kind)

    def read(self, body: bytes, media: bytes | None) -> Any:
        if not body and self._optional:
            body = b"{}"
        elif media != b"application/json":  # most say exactly this; the rest is taken apart
            _check_media(media, [JSON])
        try:
            return self._decoder.decode(body)
        except (ValueError, RecursionError) as error:
            raise self._errors.refused(error, "") from None


class BulkReader:
    """Reads a list of documents while it arrives: a JSON array, or NDJSON. The first document that is wrong refuses the
    body, and so does one too many. `bytes_max`: of one document."""

    def __init__(self, kind: Any, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._list = msgspec.json.Decoder(_bare(kind))
        self._decoder = msgspec.json.Decoder(_item(kind))
        self._errors = _Errors(_item(kind))
        self._count_max = _bounds(kind).max_length

    async def read(
        self, pieces: AsyncIterator[bytes], media: bytes | None, turn: Turn
    ) -> AsyncIterator[tuple[list[Any], int]]:
        """Some documents at a time, and their size together. A large one is alone, and decoded in the caller's turn,
        which ends when the next are asked for."""
        splitter = self._splitter(_check_media(media, [JSON, NDJSON]))
        count = 0
        async for piece in _slices(pieces):
            size = splitter.pending + len(piece or b"")
            documents, problem = await aside(partial(self._split, splitter, piece, count), size)
            for group in _grouped(documents):
                size = len(group[0]) if len(group) == 1 else _SLICE_BYTES
                async with turn(size):
                    yield await aside(partial(self._decoded, group, count), size), size
                count += len(group)
            if problem is not None:
                raise self._refused(problem, count) from None
            await asyncio.sleep(0)  # what is buffered already arrives without a pause, and others are served, too
        if not count:
            raise self._wrong_count(0)

    def _decoded(self, documents: list[bytes | str], count: int) -> list[Any]:
        decode, found = self._decoder.decode, []
        for document in documents:
            if count == self._count_max:
                raise self._wrong_count(count + 1)
            try:
                found.append(decode(document))
            except (ValueError, RecursionError) as error:
                raise self._refused(error, count) from None
            count += 1
        return found

    def _split(
        self, splitter: Splitter, piece: bytes | None, count: int
    ) -> tuple[list[bytes | str], ValueError | RecursionError | None]:
        """The documents before a problem, and the problem: one of these may be wrong, too, and it comes first."""
        found: list[bytes | str] = []
        most = None if self._count_max is None else self._count_max + 1 - count
        try:
            found.extend(islice(splitter.feed(piece or b"", last=piece is None), most))
        except (ValueError, RecursionError) as problem:
            return found, problem
        return found, None

    def _splitter(self, media: str) -> Splitter:
        return Lines(self._bytes_max) if media == NDJSON else Elements(self._bytes_max)

    def _wrong_count(self, count: int) -> Exception:
        try:
            self._list.decode(b"[" + b",".join([b"0"] * count) + b"]")
        except msgspec.ValidationError as error:
            return self._errors.refused(error, "jobs")
        return AssertionError(f"{count} is no wrong count")

    def _refused(self, error: Exception, at: int) -> Exception:
        if isinstance(error, TooLong):
            return self._errors.wrong(f"jobs[{at}]", f"must be at most {self._bytes_max:,} bytes of JSON")
        if isinstance(error, NotAList) and error.sample is not None:
            try:
                self._list.decode(error.sample)
            except msgspec.ValidationError as problem:
                return self._errors.refused(problem, "jobs")
        if isinstance(error, NotAList):
            return RequestError(f"the body is no JSON: {error}, at jobs[{at}]")
        return self._errors.refused(error, f"jobs[{at}]")


async def _slices(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes | None]:
    """Small enough to be worked on without others noticing; then None."""
    async for piece in pieces:
        for start in range(0, len(piece), _SLICE_BYTES):
            yield piece[start : start + _SLICE_BYTES]
    yield None


def _grouped(documents: list[bytes | str]) -> Iterator[list[bytes | str]]:
    """In their order, large ones alone."""
    small: list[bytes | str] = []
    for each in documents:
        if len(each) <= _SLICE_BYTES:
            small.append(each)
            continue
        if small:
            yield small
            small = []
        yield [each]
    if small:
        yield small


def _check_media(media: bytes | None, taken: list[str]) -> str:
    named = media.split(b";", 1)[0].strip().lower().decode("latin-1") if media else None
    if named not in taken:
        raise WrongMedia(_shown(named) if named else None, taken)
    return named


class _Errors:
    """A decoder's complaint about a document of this kind, as a problem of ours."""

    def __init__(self, kind: Any) -> None:
        self.wrong: type[InvalidJob | InvalidField] = InvalidJob if kind is Submission else InvalidField
        self._kind = kind

    def refused(self, error: Exception, root: str) -> Exception:
        if isinstance(error, msgspec.ValidationError):
            field, problem = explained(str(error), root, self._kind)
            refused: Exception = self.wrong(field or "body", problem)
        elif isinstance(error, RecursionError):
            refused = self.wrong(root or "body", "is nested too deeply")
        elif isinstance(error, UnicodeDecodeError):
            refused = RequestError("the body is not UTF-8")
        else:
            where = f", at {root}" if root else ""
            refused = RequestError(f"the body is no JSON: {str(error).removeprefix('JSON is malformed: ')}{where}")
        return refused


def _bare(kind: Any) -> Any:
    """The same list with the same bounds, of nothing in particular."""
    return Annotated[list[Any], _bounds(kind)]


def _bounds(kind: Any) -> msgspec.Meta:
    return next((each for each in get_args(kind)[1:] if isinstance(each, msgspec.Meta)), msgspec.Meta())


def _item(kind: Any) -> Any:
    """What a list is a list of; else the type itself."""
    if get_origin(kind) is list:
        return get_args(kind)[0]
    inner = [each for each in get_args(kind) if get_origin(each) is list]
    return get_args(inner[0])[0] if inner else kind


def _known(kind: Any) -> list[str]:
    return [each.encode_name for each in msgspec.structs.fields(kind)] if hasattr(kind, "__struct_fields__") else []


# Words. -------------------------------------------------------------------------------------------------------------


def explained(message: str, root: str, kind: Any) -> tuple[str, str]:
    """The path of a field, and what is wrong with it, from the decoder's message about a value that is no `kind`."""
    if len(message) > _MESSAGE_MAX:  # it quotes a name that the caller made up: a megabyte of it tells nobody more
        message = message[:_FIELD_MAX] + "…" + message[-_MESSAGE_MAX:]
    match = _AT.match(message)
    assert match is not None  # noqa: S101 - it matches any text
    said, path = match["said"], root + (match["path"] or "")
    if found := _MISSING.match(said):
        return _joined(path, found["field"]), "is required"
    if found := _UNKNOWN.match(said):
        close = difflib.get_close_matches(found["field"], _known(_item(kind)), 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        return _joined(path, found["field"]), f"is not a known field{hint}"
    choices = _choices(kind, _STEP.findall(match["path"] or "")) if said.startswith(_NO_CHOICE) else []
    hint = f"; it is one of {', '.join(choices)}" if choices else ""
    return _shown(path.removeprefix(".")), _words(said) + hint


def _choices(kind: Any, steps: list[str]) -> list[str]:
    """What may stand at the end of a path through `kind`, if only some texts may."""
    if get_origin(kind) is Literal:
        return [] if steps else [str(each) for each in get_args(kind)]
    if steps and hasattr(kind, "__struct_fields__"):
        name, *rest = steps
        return next(
            (_choices(each.type, rest) for each in msgspec.structs.fields(kind) if each.encode_name == name), []
        )
    inner = steps[1:] if get_origin(kind) is list else steps
    return next((found for each in get_args(kind) if (found := _choices(each, inner))), [])


def _joined(path: str, field: str) -> str:
    return _shown(f"{path}.{field}".removeprefix("."))


def _words(said: str) -> str:
    said = _KIND.sub(lambda match: " or ".join(_KINDS.get(one, one) for one in match[1].split(" | ")), said)
    said = said.replace(", got ", ", not ").replace(" <= ", " of at most ").replace(" >= ", " of at least ")
    said = said.replace("of length of", "of length").replace(_END, "$")
    for before, after in (("Expected ", "must be "), (_NO_CHOICE, "cannot be ")):
        if said.startswith(before):
            return after + said.removeprefix(before)
    return said[:1].lower() + said[1:]


def _shown(text: str) -> str:
    """Names that callers made up: cut, and escaped where a log or terminal could not show them."""
    cut = text if len(text) <= _FIELD_MAX else text[: _FIELD_MAX - 1] + "…"
    return cut if cut.isprintable() else ascii(cut)[1:-1]

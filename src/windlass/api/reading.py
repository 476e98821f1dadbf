"""Requests as values: queries and bodies decoded into the types their endpoint names, or refused with the path of the
field and what is wrong with it, in words.
"""

import difflib
import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec

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

Query = Callable[[bytes], Any]


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
    """Reads a body of the given content type: JSON, and where `bulk` also a JSON document a line, as a list."""

    def __init__(self, kind: Any, *, bulk: bool, optional: bool) -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(kind)
        self._line = msgspec.json.Decoder(_item(kind)) if bulk else None
        self._optional = optional
        self._root = "jobs" if bulk else ""
        self._wrong: Any = InvalidJob if _item(kind) is Submission else InvalidField
        self.media = [JSON, NDJSON] if bulk else [JSON]

    def read(self, body: bytes, media: bytes | None) -> Any:
        if not body and self._optional:
            body = b"{}"
        elif media != b"application/json":  # most say exactly this; the rest is taken apart
            named = media.split(b";", 1)[0].strip().lower().decode("latin-1") if media else None
            if named not in self.media:
                raise WrongMedia(_shown(named) if named else None, self.media)
            if named == NDJSON:
                return self._lines(body)
        try:
            return self._decoder.decode(body)
        except (ValueError, RecursionError) as error:
            raise self._refused(error, self._root, self._kind) from None

    def _lines(self, body: bytes) -> Any:
        assert self._line is not None  # noqa: S101
        items: list[Any] = []
        for line in body.split(b"\n"):
            if line and not line.isspace():
                try:
                    items.append(self._line.decode(line))
                except (ValueError, RecursionError) as error:
                    raise self._refused(error, f"{self._root}[{len(items)}]", _item(self._kind)) from None
        try:
            msgspec.convert([None] * len(items), _bare(self._kind))  # are they too many, or too few?
        except msgspec.ValidationError as error:
            raise self._refused(error, self._root, self._kind) from None
        return items

    def _refused(self, error: Exception, root: str, kind: Any) -> Exception:
        refused: Exception
        if isinstance(error, msgspec.ValidationError):
            field, problem = explained(str(error), root, kind)
            refused = self._wrong(field or "body", problem)
        elif isinstance(error, RecursionError):
            refused = self._wrong(root or "body", "is nested too deeply")
        elif isinstance(error, UnicodeDecodeError):
            refused = RequestError("the body is not UTF-8")
        else:
            refused = RequestError(f"the body is no JSON: {str(error).removeprefix('JSON is malformed: ')}")
        return refused


def _bare(kind: Any) -> Any:
    """The same list with the same bounds, of nothing in particular."""
    meta = [each for each in get_args(kind)[1:] if isinstance(each, msgspec.Meta)]
    return Annotated[list[Any], meta[0]] if meta else list[Any]


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

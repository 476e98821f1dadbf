"""Payloads and results as people may see them: without what looks like a secret.

A job needs its `Authorization` header to run; whoever looks at the job later does not. `masked` takes the JSON of a
payload or result and gives JSON of the same shape back, number for number, with secrets as `***`; `masked_text` does it
for a text that is no JSON, `without` for secrets that are known. What is stored stays as it is. Pure.

A value is a secret by the name it goes by (secret_names.py), by where it stands (a webhook's headers: all but the
harmless ones, since a header may have any name), or by how it is written (`Bearer …`, `https://user:…@`, `?token=…`, and
known_keys.py). Rather too much is hidden than too little.
"""

import json
import re
from collections.abc import Iterable
from json.encoder import encode_basestring
from string import ascii_uppercase
from typing import Any, Final
from urllib.parse import quote

from windlass.known_keys import MASK, has_known_key, without_known_keys
from windlass.redaction import redact
from windlass.secret_names import STEMS, any_of, is_harmless_header, is_secret

_HEADER_FIELDS: Final = frozenset({"header", "headers"})
# Quick: most payloads hold none of these, and are given back as they are. A backslash may hide a letter of a name.
_STEM: Final = any_of(STEMS)
_SUSPECT_WORD: Final = re.compile(_STEM)
_WORTH_A_LOOK: Final = re.compile(any_of((*STEMS, "basic", "digest", "negotiate", "header", "://", "\\u")))

# What follows is looked for in a text of small letters, and begins with letters that are written out: a tenth of the
# time that it takes in any case, and a payload may be a megabyte. `value` is what is hidden.
_SCHEMES: Final = re.compile(
    r"(?:bearer(?<!\wbearer)|basic(?<!\wbasic)|digest(?<!\wdigest)|negotiate(?<!\wnegotiate))"
    r"\s{1,64}(?=\S{0,256}[0-9._=+/~-]|\S{16})(?P<value>[^\s\"',;]{6,4096})"
)
_SCHEME_WORD: Final = re.compile("bearer|basic|digest|negotiate")
# A header that somebody quotes: to the end of its line or text, because what it holds may have blanks.
_HEADER_LINES: Final = re.compile(
    r"(?:authorization(?:(?<![\w-]authorization)|(?<=proxy-authorization))|cookie(?:(?<![\w-]cookie)|(?<=set-cookie)))"
    r"""\\?["']?[ \t]{0,8}[:=][ \t]{0,8}\\?["']?(?P<value>[^\r\n"'\\]{1,4096})"""
)
_HEADER_WORD: Final = re.compile("authorization|cookie")
# name=value and name: value, as in queries, forms and headers; 'name': 'value', as in what programs print. Looked for
# by the word that makes a name suspicious: looked at from its beginning, every word of a megabyte would cost its time.
_NAME: Final = rf"(?P<name>(?:{_STEM})[\w.-]{{0,40}}+)"
_PAIRS: Final = (
    re.compile(
        rf"""{_NAME}\\?["']?[ \t]{{0,4}}[:=][ \t]{{0,8}}\\?["'](?P<value>(?:[^"'\\\r\n]|\\[^"'\r\n]){{1,4096}})"""
    ),
    re.compile(rf"""{_NAME}(?:=|:[ \t]{{1,8}})(?P<value>[^\s&;,\\"'<>]{{1,4096}})"""),
)
_NAME_BEGINNING: Final = re.compile(r"[\w.-]{0,64}\Z")
_SMALL: Final = {ord(letter): letter.lower() for letter in ascii_uppercase}
_nested_max: Final = 3


class _Number(str):
    """A number as it was written: nothing of it is to be rounded on the way."""

    __slots__ = ()


def masked(type_: str, text: str) -> str:
    """The JSON of a job's payload or result, as it may be shown. What is no JSON comes back as one JSON text."""
    if not _WORTH_A_LOOK.search(text.lower()) and not has_known_key(text):
        return text
    try:
        return _written(_shown(_read(text), type_, _nested_max))
    except (ValueError, RecursionError):
        return json.dumps(MASK)


def masked_text(text: str) -> str:
    """A message, a log line, an address: without the secrets that show by how they are written."""
    text = without_known_keys(text)
    low = text.lower()
    if not _WORTH_A_LOOK.search(low):
        return text
    if ":" in text or "=" in text.rstrip("="):  # not so in base64, of which there may be a megabyte
        text = redact(text)
        if _HEADER_WORD.search(low):
            text = _hidden(_HEADER_LINES, text)
        if _SUSPECT_WORD.search(low):
            for pairs in _PAIRS:
                text = _hidden(pairs, text)
    return _hidden(_SCHEMES, text) if _SCHEME_WORD.search(low) else text


def without(text: str, secrets: Iterable[str]) -> str:
    """The text without these very secrets, also where they are written as part of a URL or of JSON."""
    forms = {form for secret in secrets for form in _forms(secret)}
    for form in sorted(forms, key=len, reverse=True):  # the longest first: a secret may hold another
        text = text.replace(form, MASK)
    return text


def header_secrets(headers: Iterable[tuple[str, str]]) -> list[str]:
    """The values among these headers that are never to be shown again."""
    return [value for name, value in headers if not is_harmless_header(name)]


def _forms(secret: str) -> Iterable[str]:
    """A secret, and the part of `Bearer abc` that counts. One of a few letters would hide half of every text."""
    for part in {secret, secret.partition(" ")[2].strip()}:
        if len(part) >= 4:
            yield from (part, quote(part), quote(part, safe=""), json.dumps(part)[1:-1])
            yield json.dumps(part, ensure_ascii=False)[1:-1]


def _read(text: str) -> Any:
    return json.loads(
        text,
        parse_int=_Number,
        parse_float=_Number,
        parse_constant=_Number,
        object_pairs_hook=tuple,
    )


def _shown(value: Any, type_: str, nested: int) -> Any:
    """Objects are tuples of pairs here, so that names that are there twice stay."""
    if isinstance(value, tuple):
        return tuple((name, _field(name, item, type_, nested)) for name, item in value)
    if isinstance(value, list):
        return [_shown(item, type_, nested) for item in value]
    if isinstance(value, str) and not isinstance(value, _Number):
        return _shown_text(value, type_, nested)
    return value


def _field(name: str, value: Any, type_: str, nested: int) -> Any:
    if value is None or isinstance(value, bool) or value in ("", (), []):
        return value
    if name.lower() in _HEADER_FIELDS and isinstance(value, tuple | list):
        return _headers(value, type_, nested)
    if is_secret(name) and not (isinstance(value, _Number) and name.lower().endswith("tokens")):  # max_tokens: 512
        return MASK
    return _shown(value, type_, nested)


def _headers(value: tuple[Any, ...] | list[Any], type_: str, nested: int) -> Any:
    """An object of names, or a list of pairs or of {name, value}: whichever way headers are written."""
    if isinstance(value, tuple):
        return tuple((name, _header(name, item, type_, nested)) for name, item in value)
    shown: list[Any] = []
    for item in value:
        if isinstance(item, list) and len(item) == 2 and isinstance(item[0], str):
            shown.append([item[0], _header(item[0], item[1], type_, nested)])
        elif isinstance(item, tuple):
            said = next((text for name, text in item if name.lower() in {"name", "key"} and isinstance(text, str)), "")
            shown.append(
                tuple(
                    (k, _header(said, v, type_, nested) if k.lower() == "value" else _field(k, v, type_, nested))
                    for k, v in item
                )
            )
        else:
            shown.append(MASK if isinstance(item, str) and type_ == "webhook" else _shown(item, type_, nested))
    return shown


def _header(name: str, value: Any, type_: str, nested: int) -> Any:
    """A webhook's header may carry a secret under any name; those of other types are judged by theirs."""
    hidden = not is_harmless_header(name) if type_ == "webhook" else is_secret(name)
    return MASK if hidden and value is not None else _shown(value, type_, nested)


def _shown_text(text: str, type_: str, nested: int) -> str:
    """A text may be JSON itself: the body of a request, written out."""
    if nested and text.lstrip()[:1] in {"{", "["}:
        try:
            inner = _read(text)
        except (ValueError, RecursionError):
            return masked_text(text)
        shown = _shown(inner, type_, nested - 1)
        return text if shown == inner else _written(shown)
    return masked_text(text)


def _hidden(pattern: re.Pattern[str], text: str) -> str:
    """The text without the values that the pattern finds; of those that have a name, without those of secrets."""
    low = text.lower()
    if len(low) != len(text):  # some letters become two: then by those that names are made of
        low = text.translate(_SMALL)
    shown: list[str] = []
    end = 0
    for found in pattern.finditer(low):
        if "name" not in pattern.groupindex or is_secret(_whole_name(text, *found.span("name"))):
            shown += (text[end : found.start("value")], MASK)
            end = found.end("value")
    return "".join((*shown, text[end:])) if shown else text


def _whole_name(text: str, begin: int, end: int) -> str:
    """With what stands before the word it was found by."""
    before = _NAME_BEGINNING.search(text[max(0, begin - 64) : begin])
    return (before[0] if before else "") + text[begin:end]


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return "{" + ",".join(f"{_quoted(name)}:{_written(item)}" for name, item in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return value if isinstance(value, _Number) else _quoted(value)


def _quoted(value: Any) -> str:
    return encode_basestring(value) if isinstance(value, str) else json.dumps(value)

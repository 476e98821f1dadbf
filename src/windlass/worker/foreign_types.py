"""Types of payloads that msgspec leaves to us: Pydantic's, paths, and subclasses of JSON's own.

Pydantic is an optional dependency of the user, not of ours: it is looked for in `sys.modules`. Whoever annotates a
parameter with a model has imported it.
"""

import sys
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, Final, NamedTuple, get_args

import msgspec.inspect

from windlass import payload
from windlass.errors import InvalidPayload
from windlass.payload_check import would_crash
from windlass.worker.round_trip import lost

_MARK: Final = "__pydantic_validator__"
_LOST: Final = "does not survive JSON: it would come back as another value (a secret, or an excluded field?)"
_PLAIN: Final[tuple[Any, ...]] = (int, float, list, dict)


class Adapter(NamedTuple):
    """A parameter that Pydantic reads and writes: it mentions a model, perhaps inside a list or a union."""

    pydantic: Any

    def read(self, value: Any, path: str) -> Any:
        try:
            # As JSON, not as Python: a strict model takes a text for a moment only there.
            return self.pydantic.validate_json(payload.encode(value, path, bytes_max=sys.maxsize))
        except _pydantic_error() as error:
            raise _refused(error, path) from None

    def write(self, value: Any, path: str) -> Any:
        try:
            known = self.pydantic.validate_python(value)
            written = self.pydantic.dump_python(known, mode="json", by_alias=True, round_trip=True)
        except _pydantic_error() as error:
            raise _refused(error, path) from None
        except ValueError as error:  # its serialisation's own error
            raise InvalidPayload(path, f"cannot be written as JSON: {error}") from None
        if gone := lost(known, self.read(written, path), path):
            raise InvalidPayload(gone, _LOST)
        return written


def adapter(kind: Any) -> Adapter | None:
    pydantic = sys.modules.get("pydantic")
    if pydantic is None or not any(_is_pydantic(each) for each in _mentioned(kind)):
        return None
    try:
        return Adapter(pydantic.TypeAdapter(kind))
    except pydantic.errors.PydanticUserError as error:
        raise TypeError(str(error).splitlines()[0]) from None


def read(kind: Any, value: Any) -> Any:
    """msgspec's question for a type it does not know, deep inside another."""
    if _is_pydantic(kind):
        try:
            return kind.__pydantic_validator__.validate_json(payload.encode(value, bytes_max=sys.maxsize))
        except _pydantic_error() as error:
            raise ValueError(str(_refused(error, kind.__name__))) from None
    if isinstance(kind, type) and issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    raise ValueError(f"expected {getattr(kind, '__name__', kind)}, got {type(value).__name__}")


def write(value: Any) -> Any:
    """msgspec's question for a value it does not know."""
    if _is_pydantic(type(value)):
        written = value.model_dump(mode="json", by_alias=True, round_trip=True)
        if gone := lost(value, read(type(value), written), type(value).__name__):
            raise ValueError(f"{gone} {_LOST}")
        return written
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, str):  # subclasses of JSON's own: what it would make of them anyway
        return str.__str__(value)
    for plain in _PLAIN:
        if isinstance(value, plain):
            return plain(value)
    raise TypeError(f"a {type(value).__qualname__} has no place in JSON")


def refuse_unreadable(kind: Any) -> None:
    """Raise TypeError for a type that no JSON could become, when the handler is declared and not when it runs."""
    if any(would_crash(each) for each in _mentioned(kind)):
        raise TypeError(
            "a tuple of fixed length and a type with bounds cannot be alternatives of each other; use a NamedTuple"
        )
    for node in nodes(msgspec.inspect.type_info(kind)):
        cls = node.cls if isinstance(node, msgspec.inspect.CustomType) else PurePath
        if not (_is_pydantic(cls) or (isinstance(cls, type) and issubclass(cls, PurePath))):
            raise TypeError(f"{getattr(cls, '__qualname__', cls)} cannot be made from JSON; use a dataclass")


def nodes(node: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """A type as msgspec sees it, and every type in it, each once: types may contain themselves."""
    seen = set() if seen is None else seen
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, tuple):
        for each in node:
            yield from nodes(each, seen)
    elif isinstance(node, msgspec.inspect.Type | msgspec.inspect.Field):
        yield node
        for name in node.__struct_fields__:
            if name not in {"default", "default_factory", "cls"}:
                yield from nodes(getattr(node, name), seen)


def _mentioned(kind: Any) -> Iterator[Any]:
    yield kind
    for each in get_args(kind):
        yield from _mentioned(each)


def _is_pydantic(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, _MARK)


def _pydantic_error() -> type[Exception]:
    return sys.modules["pydantic"].ValidationError  # type: ignore[no-any-return]


def _refused(error: Any, path: str) -> InvalidPayload:
    first = error.errors(include_url=False, include_input=False)[0]
    inner = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    return InvalidPayload(path + inner, first["msg"][:1].lower() + first["msg"][1:])

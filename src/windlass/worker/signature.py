"""A handler's parameters as the shape of its payload: what a caller passes, checked on the way in and out of JSON.

A payload is the JSON object of a handler's named arguments. `payload` makes it from a call, where a mistake can still
be raised at the caller; `arguments` gives it back to the handler, on the hot path. `result_type` is what it returns.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NotRequired, Protocol, TypedDict

import msgspec

from windlass.errors import InvalidPayload, Misconfigured
from windlass.payload import decode, unfit, unknown_field
from windlass.worker import foreign_types, schema
from windlass.worker.field import ANNOTATION_ERRORS, EMPTY, Field, resolve
from windlass.worker.result_type import result_type_of

_CONTEXTS: Final = frozenset({"Context", "AsyncContext"})
_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


# Reads what `payload.decode` reads, exactly, in a third of the time (tests compare them).
_read: Final = msgspec.json.Decoder().decode


class Shape(Protocol):
    """One way a handler takes its payload."""

    def arguments(self, value: Any) -> dict[str, Any]: ...

    def payload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...


class Signature:
    """What a handler takes. `wants_ctx`: its first parameter is the context, which no caller passes; `ctx_kind`: the
    class it says that is, if it says so."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        parameters = list(inspect.signature(fn).parameters.values())
        self.ctx_kind = _ctx_kind(parameters[0], fn) if parameters and _may_be_ctx(parameters[0]) else None
        self.wants_ctx = self.ctx_kind is not None or (bool(parameters) and _is_named_ctx(parameters[0]))
        taken = parameters[1:] if self.wants_ctx else parameters
        _refuse_what_has_no_name(taken)
        self.names = tuple(each.name for each in taken)
        fields = _fields(taken, fn)
        self._taken = [(each, fields[each.name]) for each in taken]
        self._shape: Shape
        self._straight: Callable[[str], dict[str, Any]] | None = None
        if [(each.name, each.kind in _BY_NAME) for each in taken] == [("payload", True)]:
            self._shape = _Whole(fields["payload"], optional=taken[0].default is not EMPTY)
        else:
            self._shape = _Named(taken, fields, ctx=parameters[0].name if self.wants_ctx else None)
            self._straight = _straight(taken, fields)
        self._takes_nothing = not taken
        self.result_type = result_type_of(fn)

    def schema(self) -> str | None:
        """The JSON Schema of the payload, as JSON text; None where the parameters cannot be told in one."""
        rest, by_name = None, []
        for each, field in self._taken:
            told = schema.Taken(each.name, field.kind, field.adapter, each.default)
            if each.kind is inspect.Parameter.VAR_KEYWORD:
                rest = told
            else:
                by_name.append(told)
        found = schema.whole(by_name[0]) if isinstance(self._shape, _Whole) else schema.named(by_name, rest)
        return None if found is None else json.dumps(found)

    @property
    def fields(self) -> tuple[str, ...] | None:
        """The names a payload may have; None: any, or it need not be an object at all."""
        takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each, _ in self._taken)
        return None if takes_any or isinstance(self._shape, _Whole) else self.names

    def given_fields(self, text: str) -> list[str]:
        """The fields of a stored payload, if it is an object."""
        value = self._read_slowly(text)
        return sorted(value) if isinstance(value, dict) else []

    def unknown_fields(self, text: str) -> list[str]:
        """Those that the handler has no parameter for."""
        fields = self.fields
        return [] if fields is None else [field for field in self.given_fields(text) if field not in fields]

    def arguments(self, text: str) -> dict[str, Any]:
        """The keyword arguments for a stored payload; raises InvalidPayload naming the field that does not fit."""
        if self._takes_nothing and (text == "{}" or text == "null"):  # noqa: PLR1714, a set costs twice as much
            return {}
        if self._straight is not None:
            try:
                return self._straight(text)
            except msgspec.MsgspecError:
                pass  # read again below, to say exactly what is wrong, or because it is right after all
        try:
            value = _read(text)
        except msgspec.DecodeError:
            value = self._read_slowly(text)
        return self._shape.arguments(value)

    def _read_slowly(self, text: str) -> Any:
        """What the fast reader will not read: a number of many digits, or none at all that Python could."""
        try:
            return decode(text)
        except (ValueError, RecursionError) as error:  # a number of thousands of digits: JSON, but not Python's
            raise InvalidPayload("payload", f"cannot be read: {error}") from None

    def payload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What to store for a call; raises InvalidPayload if the handler could not be called with it."""
        value = self._shape.payload(args, kwargs)
        self._shape.arguments(value)
        return value


class _Whole:
    """A handler with one parameter named `payload` gets whatever was stored."""

    def __init__(self, field: Field, *, optional: bool) -> None:
        self._field = field
        self._optional = optional

    def arguments(self, value: Any) -> dict[str, Any]:
        if value is None and self._optional:
            return {}
        return {"payload": self._field.read(value, "payload")}

    def payload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = _bound(("payload",), args, kwargs)
        for name in given:
            if name != "payload":
                raise InvalidPayload(f"payload.{name}", "is no parameter; the only one is payload")
        if not given and not self._optional:
            raise InvalidPayload("payload", "is missing")
        return self._field.write(given["payload"], "payload") if given else None


class _Named:
    """A handler with named parameters: an object with a field each; `**kwargs` takes what is left."""

    def __init__(self, parameters: list[inspect.Parameter], fields: Mapping[str, Field], *, ctx: str | None) -> None:
        named = [each for each in parameters if each.kind in _BY_NAME]
        self._by_position = tuple(each.name for each in named if each.kind is not inspect.Parameter.KEYWORD_ONLY)
        self._fields = {each.name: fields[each.name] for each in named}
        self._adapted = {name: field for name, field in self._fields.items() if field.adapter is not None}
        rest = [fields[each.name] for each in parameters if each.kind is inspect.Parameter.VAR_KEYWORD]
        self._rest = rest[0] if rest else None
        self._ctx = ctx
        # One call of msgspec for all of them; as a TypedDict, because what comes out is then what the handler takes.
        shape: dict[str, Any] = {}
        for each in named:
            kind = Any if each.name in self._adapted else fields[each.name].kind
            shape[each.name] = kind if each.default is EMPTY else NotRequired[kind]
        self._all: Any = TypedDict("Payload", shape)  # type: ignore[misc]

    def arguments(self, value: Any) -> dict[str, Any]:
        if value is None:
            value = {}
        try:
            found: dict[str, Any] = msgspec.convert(value, self._all, str_keys=True, dec_hook=foreign_types.read)
        except msgspec.ValidationError as error:
            raise unfit(str(error), "payload") from None
        if self._adapted:
            for name, field in self._adapted.items():
                if name in found:
                    found[name] = field.read(found[name], f"payload.{name}")
        if len(found) != len(value):
            self._take_rest(found, value)
        return found

    def _take_rest(self, found: dict[str, Any], value: dict[str, Any]) -> None:
        for name, item in value.items():
            if name in found:
                continue
            if self._rest is None or name == self._ctx:
                raise unknown_field(name, self._fields)
            found[name] = self._rest.read(item, f"payload.{name[:100]}")

    def payload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        written: dict[str, Any] = {}
        for name, item in _bound(self._by_position, args, kwargs).items():
            field = self._fields.get(name) or self._rest
            written[name] = field.write(item, f"payload.{name}") if field else None  # refused on the way back
        return written


def _straight(
    parameters: list[inspect.Parameter], fields: Mapping[str, Field]
) -> Callable[[str], dict[str, Any]] | None:
    """From JSON to arguments in one step, where msgspec alone can do it: a third of the time of the way around."""
    if any(each.kind not in _BY_NAME or fields[each.name].adapter is not None for each in parameters):
        return None
    optional = any(each.default is not EMPTY for each in parameters)
    try:
        shape = msgspec.defstruct(
            "Payload",
            [
                (each.name, fields[each.name].kind, *(() if each.default is EMPTY else (msgspec.UNSET,)))
                for each in parameters
            ],
            forbid_unknown_fields=True,
            kw_only=True,
        )
        read = msgspec.json.Decoder(shape, dec_hook=foreign_types.read).decode
    except (TypeError, ValueError):  # a name or type that a struct cannot have
        return None
    as_dict = msgspec.structs.asdict

    def arguments(text: str) -> dict[str, Any]:
        found = as_dict(read(text))
        return {name: value for name, value in found.items() if value is not msgspec.UNSET} if optional else found

    return arguments


def _bound(names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    if len(args) > len(names):
        raise InvalidPayload("payload", f"takes {len(names)} arguments by position, and got {len(args)}")
    given = dict(zip(names, args, strict=False))
    for name in kwargs:
        if name in given:
            raise InvalidPayload(f"payload.{name}", "is given twice")
    return given | kwargs


def _refuse_what_has_no_name(parameters: list[inspect.Parameter]) -> None:
    if parameters and parameters[0].name in {"self", "cls"}:
        raise Misconfigured("a job is a plain function, not a method")
    for each in parameters:
        if each.kind is inspect.Parameter.VAR_POSITIONAL:
            raise Misconfigured(f"*{each.name} cannot be stored: arguments are kept by name; take a list")
        if each.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise Misconfigured(f"{each.name} cannot be stored: arguments are kept by name; remove the / after it")
        if each.name == "ctx":
            raise Misconfigured("ctx must be the first parameter")


def _fields(parameters: list[inspect.Parameter], fn: Callable[..., Any]) -> dict[str, Field]:
    """Each parameter's type; an annotation that names what does not exist at run time is said at once, not in a job."""
    fields: dict[str, Field] = {}
    for each in parameters:
        try:
            fields[each.name] = Field(resolve(each.annotation, fn))
        except ANNOTATION_ERRORS as error:
            raise Misconfigured(f"parameter {each.name}: {error}") from None
    return fields


def _may_be_ctx(first: inspect.Parameter) -> bool:
    return first.kind in {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}


def _is_named_ctx(first: inspect.Parameter) -> bool:
    return _may_be_ctx(first) and first.name == "ctx"


def _ctx_kind(first: inspect.Parameter, fn: Callable[..., Any]) -> str | None:
    """Which of our contexts the parameter is annotated with."""
    try:
        kind = resolve(first.annotation, fn)
    except ANNOTATION_ERRORS:
        # Imported for the type checker only: by its name, then.
        said = first.annotation.rpartition(".")[2] if isinstance(first.annotation, str) else ""
        return said if said in _CONTEXTS else None
    ours = str(getattr(kind, "__module__", "")).startswith("windlass.")
    name = getattr(kind, "__name__", "")
    return name if ours and name in _CONTEXTS else None

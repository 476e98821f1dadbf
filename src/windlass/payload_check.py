"""Checks a payload against the JSON Schema that its type's workers declared, before the job is stored.

A schema becomes a msgspec type, once; a check is then one `msgspec.convert`, half a microsecond for a small payload. The
complaints are those of the worker, which reads payloads with msgspec too.

A checker never refuses what the worker would take. What it does not understand in a schema it lets pass, and it runs no
regular expression: a bad one, fed by a stranger, could hold up the event loop of the API for hours.
"""

import functools
import json
import operator
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin
from uuid import UUID

import msgspec

from windlass.payload import unfit, unknown_field

UNCHECKED: Final = "x-unchecked"  # a mark in a schema: the worker takes more here than the schema says
OPTIONAL: Final = "x-optional"  # a mark on a whole payload: null stands for the parameter's default
_to: Final = msgspec.convert
Checker = Callable[[Any], None]

# A datetime or time that may lack its zone is declared as a plain string, and taken for one.
_FORMATS: Final[Mapping[str, Any]] = {
    "date": date,
    "date-time": datetime,
    "time": time,
    "duration": timedelta,
    "decimal": Decimal,
    "uuid": UUID,
}
_NUMBER_BOUNDS: Final = {
    "minimum": "ge", "maximum": "le", "exclusiveMinimum": "gt", "exclusiveMaximum": "lt", "multipleOf": "multiple_of",
}  # fmt: skip
_TEXT_BOUNDS: Final = {"minLength": "min_length", "maxLength": "max_length"}
_ARRAY_BOUNDS: Final = {"minItems": "min_length", "maxItems": "max_length"}
_OBJECT_BOUNDS: Final = {"minProperties": "min_length", "maxProperties": "max_length"}
_NOT_UNDERSTOOD: Final = frozenset({"allOf", "oneOf", "not", "if", "const", "patternProperties", "contains"})


def compile_checker(schema: str) -> Checker | None:
    """A function that raises InvalidPayload naming the field that does not fit; None if there is nothing to check."""
    try:
        document = json.loads(schema)
        if not isinstance(document, dict) or document.get(UNCHECKED):
            return None
        types = _Types(document.get("$defs", {}))
        return _named(document, types) if "properties" in document else _whole(document, types)
    except Exception:  # noqa: BLE001 - written by a worker of any version: what cannot be understood is not checked
        return None


def _whole(document: dict[str, Any], types: "_Types") -> Checker | None:
    """For a handler that takes its payload as it is."""
    kind = types.of(document)
    if kind is Any:
        return None
    optional = bool(document.get(OPTIONAL))

    def check(payload: Any) -> None:
        if payload is not None or not optional:
            _convert(payload, kind, "payload")

    return check


def _named(document: dict[str, Any], types: "_Types") -> Checker:
    """For a handler with named parameters. Null is an object without fields, as it is for the worker."""
    properties, required = document["properties"], document.get("required", [])
    rest = document.get("additionalProperties", True)
    rest_kind = types.of(rest) if isinstance(rest, dict) else Any
    kind = types.struct(properties, required)
    exact = types.struct(properties, required, forbid_unknown_fields=rest is False or rest_kind is not Any)

    def check(payload: Any) -> None:
        value = {} if payload is None else payload
        try:
            _to(value, exact, str_keys=True)
        except msgspec.ValidationError:
            explain(value)

    def explain(value: Any) -> None:
        """In the worker's order: what is wrong with known fields first. Or nothing is, and they are of the rest."""
        _convert(value, kind, "payload")
        for name in (each for each in value if each not in properties):
            if rest is False:
                raise unknown_field(name, properties)
            _convert(value[name], rest_kind, f"payload.{name[:100]}")

    return check


def _convert(value: Any, kind: Any, path: str) -> None:
    try:
        _to(value, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise unfit(str(error), path) from None


class _Types:
    """msgspec types for the schemas of one document; Any for what must not be judged."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._found: dict[str, Any] = {}

    def of(self, schema: Any) -> Any:
        if not isinstance(schema, dict) or schema.get(UNCHECKED) or not _NOT_UNDERSTOOD.isdisjoint(schema):
            return Any
        if "$ref" in schema:
            return self._referred(schema["$ref"])
        if "anyOf" in schema:
            return self._union(schema)
        if "enum" in schema:
            return _choice(schema["enum"])
        return self._plain(schema)

    def struct(self, properties: Mapping[str, Any], required: list[str], **options: Any) -> Any:
        """An object with these fields. The field of a tag may be missing unless the tag decides between two types, so a
        field with one possible value is never required."""
        names = {f"f{n}": name for n, name in enumerate(properties)}
        needed = {name for name in required if len(properties.get(name, {}).get("enum", "ab")) != 1}
        fields = [
            (field, self.of(properties[name]), *(() if name in needed else (msgspec.UNSET,)))
            for field, name in names.items()
        ]
        return msgspec.defstruct("Object", fields, rename=names, kw_only=True, **options)

    def _referred(self, reference: str) -> Any:
        name = reference.removeprefix("#/$defs/")
        if name not in self._found:
            self._found[name] = Any  # a type that contains itself is checked down to where it does
            self._found[name] = self.of(self._definitions.get(name))
        return self._found[name]

    def _union(self, schema: dict[str, Any]) -> Any:
        tags = schema.get("discriminator")
        kinds = [self.of(each) for each in schema["anyOf"]] if tags is None else self._tagged(schema["anyOf"], tags)
        if Any in kinds:
            return Any
        kind = functools.reduce(operator.or_, (type(None) if each is None else each for each in kinds))
        if would_crash(kind):
            return Any
        try:
            msgspec.json.Decoder(kind)
        except TypeError:  # alternatives that msgspec cannot tell apart
            return Any
        return kind

    def _tagged(self, alternatives: list[Any], tags: dict[str, Any]) -> list[Any]:
        """Objects told apart by a tag, and whatever else is among the alternatives."""
        field, mapping = tags["propertyName"], tags["mapping"]
        kinds = [self.of(each) for each in alternatives if each.get("$ref") not in mapping.values()]
        for reference in mapping.values():
            schema = self._definitions[reference.removeprefix("#/$defs/")]
            (tag,) = schema["properties"][field]["enum"]  # the mapping has it as a text, even where it is a number
            properties = {name: each for name, each in schema["properties"].items() if name != field}
            forbids = schema.get("additionalProperties") is False
            options = {"tag_field": field, "tag": tag, "forbid_unknown_fields": forbids}
            kinds.append(self.struct(properties, schema.get("required", []), **options))
        return kinds

    def _plain(self, schema: dict[str, Any]) -> Any:
        match schema.get("type"):
            case "integer":
                return _bounded(int, schema, _NUMBER_BOUNDS)
            case "number":
                return _bounded(float, schema, _NUMBER_BOUNDS)
            case "boolean":
                return bool
            case "null":
                return None
            case "string":
                return _text(schema)
            case "array":
                return self._array(schema)
            case "object":
                return self._object(schema)
            case _:
                return Any

    def _array(self, schema: dict[str, Any]) -> Any:
        if "prefixItems" in schema:
            items, least = schema["prefixItems"], schema.get("minItems", 0)
            if schema.get("maxItems") == least == len(items):
                return tuple[tuple(self.of(each) for each in items)]  # type: ignore[misc]
            fields = [
                (f"f{n}", self.of(each), *(() if n < least else (msgspec.UNSET,))) for n, each in enumerate(items)
            ]
            return msgspec.defstruct("Array", fields, array_like=True, forbid_unknown_fields="maxItems" in schema)
        item = self.of(schema.get("items", {}))
        bounds = dict(_ARRAY_BOUNDS)
        if schema.get("uniqueItems"):
            del bounds["maxItems"]  # a worker may count a set's members once
        return _bounded(list.__class_getitem__(item), schema, bounds)

    def _object(self, schema: dict[str, Any]) -> Any:
        if "properties" in schema:
            forbids = schema.get("additionalProperties") is False
            return self.struct(schema["properties"], schema.get("required", []), forbid_unknown_fields=forbids)
        rest = schema.get("additionalProperties")
        value = self.of(rest) if isinstance(rest, dict) else Any
        return _bounded(
            dict.__class_getitem__((str, value)), schema, _OBJECT_BOUNDS
        )  # keys may be numbers or dates: they are not judged


def would_crash(kind: Any) -> bool:
    """msgspec 0.22 ends the process at a union of a tuple of fixed length with anything that has bounds. A worker may have such a
    union all the same: with a NamedTuple, whose schema is that of a tuple."""
    alternatives = get_args(kind) if get_origin(kind) in {Union, UnionType} else ()
    fixed = any(get_origin(each) is tuple and Ellipsis not in get_args(each) for each in alternatives)
    return fixed and any(get_origin(each) is Annotated for each in alternatives)


def _text(schema: dict[str, Any]) -> Any:
    if schema.get("contentEncoding") == "base64":
        return bytes
    if (kind := _FORMATS.get(schema.get("format", ""))) is not None:
        return kind
    return _bounded(str, schema, _TEXT_BOUNDS)


def _choice(values: list[Any]) -> Any:
    if not values or not all(value is None or type(value) in (int, str) for value in values):
        return Any
    return Literal[tuple(values)]


def _bounded(kind: Any, schema: Mapping[str, Any], names: Mapping[str, str]) -> Any:
    bounds = {ours: schema[theirs] for theirs, ours in names.items() if theirs in schema}
    return Annotated[kind, msgspec.Meta(**bounds)] if bounds else kind

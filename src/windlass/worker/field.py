"""One declared type and its two ways through JSON: a parameter of a handler, its whole payload, or its result.

msgspec does the work; types that mention a Pydantic model are left to Pydantic (foreign_types.py).
"""

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, get_type_hints

import msgspec

from windlass.errors import InvalidPayload
from windlass.payload import unfit
from windlass.worker import foreign_types

EMPTY: Final = inspect.Parameter.empty
# Why an annotation cannot be used: it names what does not exist at run time, or a type that JSON cannot become.
ANNOTATION_ERRORS: Final = (NameError, AttributeError, TypeError, SyntaxError)


class Field:
    """A type that JSON can become; making one raises TypeError for any other."""

    def __init__(self, kind: Any) -> None:
        self.kind = Any if kind is EMPTY or kind is object else kind
        self.adapter = foreign_types.adapter(self.kind)
        self.plain = self.kind is Any
        if self.adapter is None and not self.plain:
            foreign_types.refuse_unreadable(self.kind)

    def read(self, value: Any, path: str) -> Any:
        if self.plain:
            return value
        if self.adapter is not None:
            return self.adapter.read(value, path)
        try:
            return msgspec.convert(value, self.kind, str_keys=True, dec_hook=foreign_types.read)
        except msgspec.ValidationError as error:
            raise unfit(str(error), path) from None

    def write(self, value: Any, path: str) -> Any:
        if self.plain:  # not converted: a moment would come back as a text, which nobody asked for
            return value
        return self.adapter.write(value, path) if self.adapter is not None else to_json(value, path)


def to_json(value: Any, path: str) -> Any:
    """The value as JSON has it: a dataclass as an object, a moment as a text."""
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=foreign_types.write)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidPayload(path, f"cannot be written as JSON: {error}") from None


def resolve(annotation: Any, fn: Callable[..., Any]) -> Any:
    """An annotation of this function as a type; raises one of ANNOTATION_ERRORS if there is none at run time."""
    if annotation is EMPTY:
        return EMPTY
    space = getattr(inspect.unwrap(fn), "__globals__", {})
    holder: Any = SimpleNamespace(__annotations__={"it": annotation})
    return get_type_hints(holder, globalns=space, include_extras=True)["it"]

"""What a handler returns, as JSON and back: from its return annotation, for jobs and for the steps of `ctx.once`.

A worker encodes what the handler returned; whoever asks for the result decodes it into the annotated type. What a
handler without annotation returns is stored if JSON can hold it, and comes back as JSON.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from types import NoneType
from typing import Any, Final, Never, NoReturn, get_args, get_origin

from windlass.errors import InvalidPayload, Misconfigured
from windlass.lifecycle import Written, written
from windlass.payload import decode
from windlass.worker.field import ANNOTATION_ERRORS, Field, resolve, to_json

_JSON: Final = frozenset({str, int, float, bool, list, dict, tuple, NoneType})
_NEVER: Final = (Never, NoReturn)
_AWAITED: Final = (Awaitable, Coroutine)


class ResultType:
    """The type of a result. Making one raises TypeError for a type that JSON cannot become."""

    def __init__(self, kind: Any = Any) -> None:
        self._field = Field(None if kind in _NEVER else kind)
        self._as_it_is = _JSON if self._field.adapter is None else frozenset()

    def encode(self, value: Any, path: str = "result") -> Written:
        """The value as JSON text, or why it cannot be stored. Never raises: the work was done, whatever it returned."""
        try:
            if type(value) in self._as_it_is:  # converting a plain value would copy it for nothing
                found = written(value, path)
                return found if found.problem is None else self._encode_other(value, path, found)
            return written(self._converted(value, path), path)
        except InvalidPayload as problem:
            return Written(None, str(problem))
        except Exception as error:  # noqa: BLE001 - code of the user's own types
            return Written(None, f"{path}: cannot be written as JSON: {type(error).__name__}: {error}")

    def decode(self, text: str | None) -> Any:
        """The stored text as the type says; raises InvalidPayload if it is something else."""
        value = None if text is None else decode(text)
        return self._field.read(value, "result")

    def _encode_other(self, value: Any, path: str, found: Written) -> Written:
        """A container of something that is not JSON yet; `found` names the place, if that cannot be written either."""
        try:
            converted = written(to_json(value, path), path)
        except InvalidPayload:
            return found
        return found if converted.problem is not None else converted

    def _converted(self, value: Any, path: str) -> Any:
        return to_json(value, path) if self._field.adapter is None else self._field.write(value, path)


def result_type_of(fn: Callable[..., Any]) -> ResultType:
    """From the return annotation of a handler; raises Misconfigured for one that cannot be stored."""
    try:
        return ResultType(resolve(inspect.signature(fn).return_annotation, fn))
    except ANNOTATION_ERRORS as error:
        raise Misconfigured(f"its result cannot be stored: {error}") from None


class StepResult:
    """What a step of `ctx.once` returns. A function whose annotation says nothing at run time returns JSON.

    Making one raises InvalidPayload, before the step has had its effect, for a type whose values could not be kept.
    """

    def __init__(self, key: str, fn: Callable[..., Any]) -> None:
        self._path = f"result of step {key!r}"
        try:
            self._type = ResultType(_returned(fn))
        except TypeError as error:
            raise InvalidPayload(self._path, f"cannot be kept: {error}") from None

    def encode(self, value: Any) -> str:
        text, problem = self._type.encode(value, self._path)
        if text is None:
            raise InvalidPayload(self._path, str(problem).removeprefix(f"{self._path}: "))
        return text

    def decode(self, text: str) -> Any:
        try:
            return self._type.decode(text)
        except InvalidPayload as error:
            raise InvalidPayload(self._path, f"is kept, but is no longer what its function returns: {error}") from None


def _returned(fn: Any) -> Any:
    known = fn.func if isinstance(fn, functools.partial) else fn
    try:
        kind = resolve(inspect.signature(known).return_annotation, known)
    except (ValueError, *ANNOTATION_ERRORS):  # builtins have no signature
        return Any
    return (get_args(kind) or (Any,))[-1] if get_origin(kind) in _AWAITED else kind

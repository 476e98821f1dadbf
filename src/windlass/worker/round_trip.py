"""Whether a Pydantic value came back from JSON as it went in: a masked secret or an excluded field would be lost.

Looks at fields and not at `==` alone: models may compare as they like, hold private state that nobody asked to keep,
and be subclasses of what the handler asked for. What cannot be compared counts as the same.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def lost(sent: Any, back: Any, path: str) -> str | None:
    """The path of the first value that is another one after the round trip."""
    if sent is back:
        return None
    if _is_model(sent) or (is_dataclass(sent) and not isinstance(sent, type)):
        return _lost_of_object(sent, back, path)
    if isinstance(sent, Mapping) and isinstance(back, Mapping):
        if sent.keys() != back.keys():
            return path
        pairs = [(f"{path}.{str(key)[:100]}", value, back[key]) for key, value in sent.items()]
        return _first(pairs)
    # A tuple that nobody declared as one comes back as a list, as it does in every payload.
    if isinstance(sent, list | tuple) and isinstance(back, list | tuple):
        if len(sent) != len(back):
            return path
        return _first([(f"{path}[{n}]", *pair) for n, pair in enumerate(zip(sent, back, strict=True))])
    return None if _is_same(sent, back) else path


def _lost_of_object(sent: Any, back: Any, path: str) -> str | None:
    if not isinstance(sent, type(back)):  # another member of a union, perhaps
        return path
    names = list(type(sent).model_fields) if _is_model(sent) else [each.name for each in fields(sent)]
    pairs = [(f"{path}.{name}", getattr(sent, name, None), getattr(back, name, None)) for name in names]
    if _is_model(sent):
        pairs.append((path, sent.__pydantic_extra__ or {}, getattr(back, "__pydantic_extra__", None) or {}))
    return _first(pairs)


def _first(pairs: list[tuple[str, Any, Any]]) -> str | None:
    return next((found for path, sent, back in pairs if (found := lost(sent, back, path))), None)


def _is_model(value: Any) -> bool:
    return hasattr(type(value), "__pydantic_validator__") and hasattr(type(value), "model_fields")


def _is_same(sent: Any, back: Any) -> bool:
    kind: Any = type(sent)
    if kind.__eq__ is object.__eq__ and kind is type(back):
        return True
    try:
        return bool(sent == back) or bool(sent != sent and back != back)  # noqa: PLR0124 - not a number
    except Exception:  # noqa: BLE001 - an array, or a class whose comparison fails: no reason to refuse the job
        return True

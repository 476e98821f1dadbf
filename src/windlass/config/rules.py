"""What a setting says of itself: its unit, its limits and its meaning, in the metadata of its field."""

from dataclasses import field
from typing import Any, Final, NamedTuple

_PREFIX: Final = "WINDLASS_"


class Rule(NamedTuple):
    """What a field's metadata hold: its unit, its limits (ends included) or its choices, and its meaning."""

    meaning: str
    unit: str = ""
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    secret: bool = False

    @property
    def allowed(self) -> str:
        if self.choices:
            return ", ".join(self.choices[:-1]) + f" or {self.choices[-1]}"
        if self.least is None or self.most is None:
            return self.unit
        return f"{self.least:,} to {self.most:,} {self.unit}".rstrip()


def setting(default: Any, meaning: str, **rule: Any) -> Any:
    return field(default=default, repr=not rule.get("secret"), metadata={"rule": Rule(meaning, **rule)})


def variable(name: str) -> str:
    return _PREFIX + name.upper()

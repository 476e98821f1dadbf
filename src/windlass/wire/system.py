"""The system itself: whether what it stands on is well, and how it is configured."""

from windlass.wire.base import Told


class HealthPart(Told):
    """One thing that work depends on, or that makes it quicker."""

    name: str
    ok: bool
    detail: str


class Health(Told):
    """`ok`: everything that work depends on is well. Redis only makes it quicker."""

    ok: bool
    version: str
    parts: list[HealthPart]


class SettingInEffect(Told):
    """One setting of this API process. Secrets are named, never shown."""

    variable: str
    value: str
    is_default: bool
    meaning: str


class Configuration(Told):
    settings: list[SettingInEffect]

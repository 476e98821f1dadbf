"""What went wrong."""

import msgspec

from windlass.wire.base import Told
from windlass.wire.jobs import Refused


class Problem(Told, omit_defaults=True):
    """RFC 9457. `code` is stable; `field` is the path of what is wrong. `quota`, `limit`, `current`: the quota that
    it is about, and what counts against it."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    instance: str | None = None
    request_id: str | None = None
    field: str | None = None
    quota: str | None = None
    limit: float | None = None
    current: float | None = None
    errors: list[Refused] = msgspec.field(default_factory=list)

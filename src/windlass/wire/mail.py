"""Mail that was caught for development."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, field

from windlass.wire.base import Asked, Told


class MailPage(Asked):
    limit: Annotated[int, Meta(ge=1, le=500, description="only so many, the newest")] = 50


class CaughtMailLine(Told):
    """One mail in a list. `from` and `to` are those of its envelope, `size` its length in bytes."""

    id: str
    received_at: datetime
    sender: str = field(name="from")
    to: list[str]
    subject: str
    size: int


class CaughtMails(Told):
    """The newest first."""

    mails: list[CaughtMailLine]


class CaughtMailShown(CaughtMailLine):
    """One mail. `text` and `html` are its bodies, `source` the beginning of it as it was sent."""

    headers: list[tuple[str, str]]
    text: str | None
    html: str | None
    source: str

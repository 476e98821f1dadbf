"""The folder of caught mail: one file for each, the oldest removed when there are too many.

A file holds a line of JSON (the envelope, and when it came, by this machine's clock) and then the mail as it was sent. The
id of a mail is the name of its file, and begins with the time, so that names sort as the mails came.
"""

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Final

_ID: Final = re.compile(r"[0-9]{13}-[0-9a-f]{8}")
_mails_max: Final = 500
_bytes_max: Final = 64 * 1_048_576
_text_chars_max: Final = 262_144


@dataclass(frozen=True, slots=True)
class CaughtMail:
    """One mail. `sender` and `recipients` are those of the envelope; `message` is the mail as it was sent."""

    id: str
    received_at: datetime
    sender: str
    recipients: Sequence[str]
    message: bytes

    @property
    def subject(self) -> str:
        return _header(self._parsed(), "subject")

    @property
    def headers(self) -> list[tuple[str, str]]:
        parsed = self._parsed()
        return [(name, _header(parsed, name)) for name in dict.fromkeys(parsed.keys())]

    def body(self, kind: str) -> str | None:
        """Its text (`plain`) or the source of its `html`, if it has one."""
        try:
            part = self._parsed().get_body((kind,))
            text = None if part is None else str(part.get_content())
        except Exception:  # noqa: BLE001 - anyone may send anything: the library raises what it likes about it
            return None
        return None if text is None else text[:_text_chars_max].replace("\r\n", "\n")

    @property
    def source(self) -> str:
        return self.message[:_text_chars_max].decode(errors="replace")

    def _parsed(self) -> EmailMessage:
        return message_from_bytes(self.message, policy=policy.default)


class Mailbox:
    """The caught mail in `folder`. Several processes may read it while one adds to it."""

    def __init__(self, folder: Path, *, mails_max: int = _mails_max, bytes_max: int = _bytes_max) -> None:
        self._folder = folder
        self._mails_max = mails_max
        self._bytes_max = bytes_max
        self._last_ms = 0

    def add(self, sender: str, recipients: Sequence[str], message: bytes) -> str:
        """Keep a mail, and remove the oldest ones there is no more room for; returns its id."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._last_ms = max(
            time.time_ns() // 1_000_000, self._last_ms + 1
        )  # or two of one millisecond would change places
        mail_id = f"{self._last_ms:013d}-{secrets.token_hex(4)}"
        envelope = json.dumps({"from": sender, "to": list(recipients)})
        fresh = self._folder / f".{mail_id}"
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(envelope.encode() + b"\n" + message)
        fresh.replace(self._folder / mail_id)
        self._make_room()
        return mail_id

    def ids(self) -> list[str]:
        """The newest first."""
        try:
            names = [path.name for path in self._folder.iterdir()]
        except OSError:  # nothing was caught yet
            return []
        return sorted((name for name in names if _ID.fullmatch(name)), reverse=True)

    def get(self, mail_id: str) -> CaughtMail | None:
        if not _ID.fullmatch(mail_id):  # it would lead out of the folder
            return None
        try:
            head, _, message = (self._folder / mail_id).read_bytes().partition(b"\n")
            envelope = json.loads(head)
            sender, recipients = str(envelope["from"]), [str(each) for each in envelope["to"]]
        except (OSError, ValueError, KeyError, TypeError):  # removed meanwhile, or none of ours
            return None
        received_at = datetime.fromtimestamp(int(mail_id[:13]) / 1000, UTC)
        return CaughtMail(mail_id, received_at, sender, recipients, message)

    def newest(self, count: int) -> Iterator[CaughtMail]:
        for mail_id in self.ids()[:count]:
            if (mail := self.get(mail_id)) is not None:
                yield mail

    def _make_room(self) -> None:
        left = self._bytes_max
        for n, mail_id in enumerate(self.ids()):
            path = self._folder / mail_id
            with contextlib.suppress(OSError):
                left -= path.stat().st_size
                if n and (n >= self._mails_max or left < 0):  # the newest stays in any case
                    path.unlink()


def _header(message: EmailMessage, name: str) -> str:
    try:
        return str(message.get(name, ""))
    except Exception:  # noqa: BLE001 - as above
        return ""

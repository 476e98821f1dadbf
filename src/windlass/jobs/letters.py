"""A mail's text, made from what a stranger says, with nothing in it that he did not openly say.

Whoever can put a line break into a header writes headers of his own: other recipients, another sender. So what goes
into a header is refused if it holds any control or separator, or an encoded word (mail libraries decode those, line
breaks included); addresses have a narrow form; and the finished head is read again and compared with what was meant,
because the libraries that write it have had holes. Bodies are quoted-printable: no line of them ends where it should
not. Pure.
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from email import message_from_bytes, policy
from email.header import Header
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Annotated, Final

from msgspec import Meta, Struct

from windlass.errors import Fail
from windlass.model import IfUnknown

recipients_max: Final = 50
_UNFIT: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
_NAMED: Final = re.compile(r"(?P<name>[^<>]*?)[ ]*<(?P<address>[^<>]*)>")
# No quotes, comments, routes, % or !: forms that relays have read in their own ways.
_LOCAL: Final = re.compile(r"[A-Za-z0-9_#$&'*+/=?^`{|}~-]+(?:\.[A-Za-z0-9_#$&'*+/=?^`{|}~-]+)*")
_DOMAIN: Final = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
)

_OF_THE_BODY: Final = frozenset({"mime-version", "content-type", "content-transfer-encoding"})

address_chars_max: Final = 600  # a name, a local part and a domain, each as long as it may be

AddressText = Annotated[str, Meta(max_length=address_chars_max)]
Addresses = AddressText | Annotated[list[AddressText], Meta(max_length=recipients_max)]
Line = Annotated[str, Meta(max_length=500)]


class Mail(Struct, forbid_unknown_fields=True, rename={"from_": "from"}):
    """An address is `ann@example.org` or `Ann Lee <ann@example.org>`. `if_unknown`: what to do if the server may have taken it."""

    to: Addresses
    subject: Line
    body: str = ""
    html: str | None = None
    from_: AddressText | None = None
    cc: Addresses = []
    reply_to: AddressText | None = None
    if_unknown: IfUnknown | None = None


@dataclass(frozen=True, slots=True)
class Letter:
    """What goes to the server: who it is from, who gets it, and its text."""

    message_id: str
    sender: str
    recipients: list[str]
    text: bytes


def written(mail: Mail, default_from: str | None, job_id: object, moment: datetime) -> Letter:
    """The letter, or Fail with the field that is wrong. Its Message-ID is the same for every attempt at the job."""
    said_from = mail.from_ or default_from
    if said_from is None:
        raise Fail("from: is missing, and WINDLASS_MAIL_FROM is not set")
    sender = address("from", said_from)
    to, cc = _all("to", mail.to), _all("cc", mail.cc)
    recipients = list(dict.fromkeys(each.addr_spec for each in (*to, *cc)))
    if not to or len(recipients) > recipients_max:
        raise Fail(f"to: must name 1 to {recipients_max} recipients, cc included; there are {len(recipients)}")
    meant: dict[str, str | tuple[Address, ...]] = {
        "Subject": line("subject", mail.subject).strip(),
        "From": (sender,),
        "To": to,
        **({"Cc": cc} if cc else {}),
        **({"Reply-To": (address("reply_to", mail.reply_to),)} if mail.reply_to is not None else {}),
        "Date": format_datetime(moment),
        "Message-ID": f"<{job_id}@{sender.domain}>",
        "Auto-Submitted": "auto-generated",
    }
    text = _flat(meant, mail)
    _refuse_if_other(text, meant)
    return Letter(str(meant["Message-ID"]), sender.addr_spec, recipients, text)


def line(field: str, text: str) -> str:
    """A text that may stand in a header."""
    if any(unicodedata.category(each) in _UNFIT for each in text):
        raise Fail(f"{field}: holds a line break or another control character")
    if "=?" in text:
        raise Fail(f"{field}: holds =?, which mail programs would decode")
    return text


def address(field: str, text: str) -> Address:
    if len(text) > address_chars_max:  # before the pattern: a megabyte of blanks would keep it busy for minutes
        raise Fail(f"{field}: has {len(text):,} characters; the most is {address_chars_max}")
    line(field, text)
    text = text.strip(" ")
    named = _NAMED.fullmatch(text)
    name, spec = (named["name"].strip(' "'), named["address"]) if named else ("", text)
    local, _, domain = spec.rpartition("@")
    if not _LOCAL.fullmatch(local) or len(local) > 64 or not _DOMAIN.fullmatch(domain) or len(domain) > 253:
        raise Fail(f"{field}: {text[:100]!a} is no address; write ann@example.org or Ann Lee <ann@example.org>")
    if len(name) > 200 or set(name) & set('"\\'):
        raise Fail(f"{field}: the name before the address is too long, or holds a quote or backslash")
    return Address(name, local, domain)


def _all(field: str, said: Addresses) -> tuple[Address, ...]:
    texts = [said] if isinstance(said, str) else said
    if len(texts) > recipients_max:
        raise Fail(f"{field}: has {len(texts):,} addresses; the most is {recipients_max}")
    return tuple(address(field if isinstance(said, str) else f"{field}[{n}]", text) for n, text in enumerate(texts))


def _flat(meant: dict[str, str | tuple[Address, ...]], mail: Mail) -> bytes:
    message = EmailMessage(policy=policy.SMTP)
    for name, value in meant.items():
        if name != "Subject":
            message[name] = value
    message.set_content(mail.body, charset="utf-8", cte="quoted-printable")
    if mail.html is not None:
        message.add_alternative(mail.html, subtype="html", charset="utf-8", cte="quoted-printable")
    return _subject(str(meant["Subject"])) + message.as_bytes()


def _subject(text: str) -> bytes:
    """Encoded as a whole or not at all: the library that mixes both in one line loses blanks between them."""
    shown = text if text.isascii() else Header(text, "utf-8", header_name="Subject").encode(linesep="\r\n")
    return f"Subject: {shown}\r\n".encode("ascii")


def _refuse_if_other(text: bytes, meant: dict[str, str | tuple[Address, ...]]) -> None:
    """Read it as a receiver does: the same headers, each once, with the same contents."""
    read = message_from_bytes(text, policy=policy.SMTP)
    names = [name for name, _ in read.items() if name.lower() not in _OF_THE_BODY]
    same = names == list(meant) and str(read["Subject"]) == meant["Subject"]
    for field in ("From", "To", "Cc", "Reply-To"):
        same = same and _specs(read, field) == [
            each.addr_spec for each in meant.get(field, ()) if isinstance(each, Address)
        ]
    if not same:
        raise Fail("the mail's head would not say what the job says: one of its texts cannot be written safely")


def _specs(read: EmailMessage, field: str) -> Iterable[str]:
    header = read[field]
    return [] if header is None else [each.addr_spec for each in header.addresses]

"""Mail that `windlass up` has caught: a list, one mail, and both as a page. Not there where no mail is caught.

What is in a mail is a stranger's text. The page shows it as text, loads nothing and runs nothing.
"""

import base64
import hashlib
import html
from pathlib import Path
from typing import Any, Final

from windlass.api.aside import shown_aside
from windlass.api.endpoint import Answer, Call, Endpoint
from windlass.errors import MailNotFound
from windlass.mail_catcher.mailbox import CaughtMail, Mailbox
from windlass.wire import CaughtMailLine, CaughtMails, CaughtMailShown, MailPage

_BESIDE_THE_LOOP: Final = 1 << 20  # characters: reading and parsing mails is not for the loop
_STYLE: Final = (
    "body{font:1rem/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color-scheme:light dark}"
    "table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #8885}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;border:1px solid #8885;padding:1rem}"
)
_DIGEST: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS: Final = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; sandbox",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


async def list_mail(call: Call) -> CaughtMails:
    return CaughtMails(mails=await _lines(call))


async def show_mail(call: Call) -> CaughtMailShown:
    mailbox, mail_id = _mailbox(call), call.path["id"]

    def shown() -> CaughtMailShown:
        mail = mailbox.get(mail_id)
        if mail is None:
            raise MailNotFound(mail_id)
        return CaughtMailShown(
            **_line(mail), headers=mail.headers, text=mail.body("plain"), html=mail.body("html"), source=mail.source
        )

    return await shown_aside(shown, _BESIDE_THE_LOOP)


async def list_page(call: Call) -> Answer:
    rows = "".join(
        f"<tr><td>{mail.received_at:%Y-%m-%d %H:%M:%S}</td><td>{_safe(mail.sender)}</td>"
        f"<td>{_safe(', '.join(mail.to))}</td>"
        f'<td><a href="/dev/mail/{mail.id}">{_safe(mail.subject) or "(no subject)"}</a></td></tr>'
        for mail in await _lines(call)
    )
    head = "<tr><th>received (UTC)</th><th>from</th><th>to</th><th>subject</th></tr>"
    return _page("Caught mail", f"<table>{head}{rows}</table>" if rows else "<p>No mail was caught yet.</p>")


async def show_page(call: Call) -> Answer:
    mail = await show_mail(call)
    facts = "".join(f"<tr><th>{_safe(name)}</th><td>{_safe(value)}</td></tr>" for name, value in mail.headers)
    bodies = "".join(
        f"<h2>{name}</h2><pre>{_safe(body)}</pre>"
        for name, body in (("Text", mail.text), ("HTML, as its source", mail.html), ("As it was sent", mail.source))
        if body is not None
    )
    back = '<p><a href="/dev/mail">All caught mail</a></p>'
    return _page(mail.subject or "(no subject)", f"{back}<table>{facts}</table>{bodies}")


def _mailbox(call: Call) -> Mailbox:
    folder = call.parts.config.api.mail_dir
    if folder is None:
        raise MailNotFound(None)
    return Mailbox(Path(folder))


async def _lines(call: Call) -> list[CaughtMailLine]:
    mailbox, limit = _mailbox(call), call.query.limit
    return await shown_aside(
        lambda: [CaughtMailLine(**_line(mail)) for mail in mailbox.newest(limit)], _BESIDE_THE_LOOP
    )


def _line(mail: CaughtMail) -> dict[str, Any]:
    return {
        "id": mail.id,
        "received_at": mail.received_at,
        "sender": mail.sender,
        "to": list(mail.recipients),
        "subject": mail.subject,
        "size": len(mail.message),
    }


def _safe(text: str) -> str:
    return html.escape(text)


def _page(title: str, content: str) -> Answer:
    body = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{_safe(title)}</title><style>{_STYLE}</style>'
        f"<h1>{_safe(title)}</h1>{content}</html>"
    )
    return Answer(body.encode(errors="replace"), 200, _HEADERS)


_TAG: Final = "development"

endpoints: Final = [
    Endpoint(
        *("GET", "/v1/dev/mail", "read", list_mail),
        summary="List caught mail",
        description="Mail that `windlass up` has caught instead of sending it, the newest first. 404 where no mail is caught.",
        tag=_TAG,
        answers={200: CaughtMails},
        query=MailPage,
        problems=(404,),
    ),
    Endpoint(
        *("GET", "/v1/dev/mail/{id}", "read", show_mail),
        summary="Show a caught mail",
        tag=_TAG,
        answers={200: CaughtMailShown},
        problems=(404,),
    ),
    Endpoint(
        *("GET", "/dev/mail", "read", list_page),
        summary="Caught mail, as a page",
        tag=_TAG,
        answers={200: str},
        query=MailPage,
        media="text/html; charset=utf-8",
        listed=False,
    ),
    Endpoint(
        *("GET", "/dev/mail/{id}", "read", show_page),
        summary="A caught mail, as a page",
        tag=_TAG,
        answers={200: str},
        media="text/html; charset=utf-8",
        listed=False,
    ),
]

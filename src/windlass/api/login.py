"""The login of a person: a page with a form, a cookie, and the link that is good once.

The link opens a page whose button spends it: programs that look at links on their way, for previews or for malware,
only look. The page runs no script.
"""

import base64
import hashlib
import html
import re
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Annotated, Final
from urllib.parse import parse_qsl

from msgspec import Meta
from starlette.responses import HTMLResponse, RedirectResponse, Response

from windlass.api.bodies import read_body
from windlass.api.endpoint import Call, Endpoint
from windlass.api.gate import COOKIE
from windlass.api.logins import Identity
from windlass.errors import InvalidField, TooManyRequests, Unauthorized, WrongMedia
from windlass.wire import Asked

_FORM: Final = "application/x-www-form-urlencoded"
_form_bytes_max: Final = 16 * 1024
_DASHBOARD: Final = "/ui/"
# Where a login may lead: to a screen of ours, with its filters. Never to `//elsewhere`, which is another host, nor out
# of /ui by `..`.
_NOT_UP: Final = r"(?!.*/(?:\.|%2[eE]){1,2}(?:[/?]|$))"
_SCREEN: Final = re.compile(_NOT_UP + r"/ui(?:/[A-Za-z0-9_.~%:-]+)*/?(?:\?[A-Za-z0-9_.~%:&=+,@/!*'()-]*)?")
_PAGE: Final = Template((Path(__file__).parent / "static" / "login.html").read_text(encoding="utf-8"))
_STYLE: Final = _PAGE.template.split("<style>")[1].split("</style>")[0]
_DIGEST: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS: Final = {
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_DIGEST}'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    # The address holds the code. Not no-referrer: with that the browser would not say whose page the form is, either.
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
    "x-frame-options": "DENY",
}
_NAME_FIELDS: Final = (
    '<label>Name <input name="username" autocomplete="username" autofocus></label>'
    '<label>Password <input name="password" type="password" autocomplete="current-password"></label>'
    "<details><summary>Use an API key instead</summary>"
    '<label>API key <input name="api_key" type="password" autocomplete="off"></label></details>'
    "<p>Or open the link that <code>windlass login</code> prints.</p>"
)


class LoginQuery(Asked):
    """`code`: of a login link. `next`: the screen that was asked for."""

    code: Annotated[str, Meta(max_length=4096)] | None = None
    next: Annotated[str, Meta(max_length=2048)] | None = None


async def page(call: Call) -> Response:
    if call.parts.gate.is_open:
        return RedirectResponse(_screen(call, call.query.next), 303)
    return _page(call, call.query.code, call.query.next)


async def enter(call: Call) -> Response:
    """Spend a code, or check a password; then a cookie. What is wrong is told on the page, and always the same."""
    gate = call.parts.gate
    if gate.is_open:
        return RedirectResponse(_screen(call, None), 303)
    gate.check_signs()
    gate.check_own_page(call.request)
    headers = dict(call.request.scope["headers"])
    form = await _form(call, headers)
    following = form.get("next")
    try:
        who = await _identified(call, form)
    except Unauthorized:
        return _page(call, None, following, "That did not work. A link is good once, and not for long.", 401)
    except TooManyRequests as error:
        wait = {"retry-after": str(int(error.retry_after_s) + 1)}
        return _page(call, None, following, "Too many tries. Wait a minute.", 429, wait)
    answer = RedirectResponse(_screen(call, following), 303)
    answer.set_cookie(
        COOKIE,
        gate.logins.cookie(who),
        max_age=gate.logins.session_s(who),
        path="/",
        secure=_is_https(call, headers),
        httponly=True,
        samesite="strict",
    )
    return answer


def cleared() -> str:
    """The header that makes a browser forget the session."""
    return f"{COOKIE}=; Max-Age=0; Path=/; HttpOnly; SameSite=strict"


async def _form(call: Call, headers: Mapping[bytes, bytes]) -> dict[str, str]:
    media = headers.get(b"content-type", b"").split(b";")[0].strip().lower().decode("latin-1")
    if media != _FORM:
        raise WrongMedia(media[:100] or None, [_FORM])
    body = await read_body(call.request.receive, headers, most=_form_bytes_max)
    try:
        return dict(parse_qsl(body.decode("ascii"), errors="strict", max_num_fields=10))
    except ValueError:  # UnicodeDecodeError is one
        raise InvalidField("body", "must be a form in UTF-8, with at most 10 fields") from None


async def _identified(call: Call, form: Mapping[str, str]) -> Identity:
    logins = call.parts.gate.logins
    if "code" in form:
        return await logins.by_link(form["code"])
    address = call.request.client.host if call.request.client else None
    if key := form.get("api_key"):
        return await logins.by_key(key[:200].strip(), address)
    return await logins.by_password(form.get("username", "")[:200], form.get("password", "")[:1000], address)


def _screen(call: Call, following: str | None) -> str:
    """Where the browser goes after the login."""
    path = following if following and _SCREEN.fullmatch(following) else _DASHBOARD
    return call.parts.config.api.base_path + path


def _page(
    call: Call,
    code: str | None,
    following: str | None,
    message: str = "",
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> HTMLResponse:
    fields = _hidden("code", code) if code else _NAME_FIELDS
    fields += _hidden("next", following) if following else ""
    said = f'<p role="alert">{html.escape(message)}</p>' if message else ""
    text = _PAGE.substitute(fields=fields, message=said, base=call.parts.config.api.base_path)
    return HTMLResponse(text, status, {**_HEADERS, **(headers or {})})


def _hidden(name: str, value: str) -> str:
    return f'<input type="hidden" name="{name}" value="{html.escape(value)}">'


def _is_https(call: Call, headers: Mapping[bytes, bytes]) -> bool:
    """What a proxy says is believed here, whoever says it: who lies only keeps his own cookie from being sent."""
    return call.request.url.scheme == "https" or headers.get(b"x-forwarded-proto", b"").lower() == b"https"


endpoints: Final = [
    Endpoint(
        *("GET", "/login", None, page),
        summary="The login page",
        tag="auth",
        answers={200: str},
        query=LoginQuery,
        listed=False,
    ),
    Endpoint(
        *("POST", "/login", None, enter),
        summary="Log a browser in",
        tag="auth",
        answers={303: None},
        problems=(401, 403, 415, 429),
        listed=False,
    ),
]

"""webhook: tell another system over HTTP that something happened.

The receiver can know a repetition by `webhook-id` and `Idempotency-Key`, which are the job's id in every attempt, and
the sender by the signature. Where it may go is egress.py's business. What its headers hold is a secret: it is in no
result, error or log of ours, not even when the receiver sends it back.
"""

import re
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import parse_qsl, urlsplit

from msgspec import Meta

from windlass import AsyncContext, Fail, Retry
from windlass.jobs.home import app, means
from windlass.jobs.signing import keys, signature
from windlass.masking import header_secrets, masked_text, without
from windlass.payload import encode
from windlass.secret_names import is_secret

if TYPE_CHECKING:
    from windlass.jobs.egress import Answer

Method = Literal["POST", "PUT", "PATCH", "DELETE", "GET", "HEAD"]

_answer_bytes_max: Final = 65_536
_headers_max: Final = 50
_header_chars_max: Final = 8_192
_headers_chars_max: Final = 65_536  # together; most servers take less, and each is looked for in the answer
_wait_s_max: Final = 86_400.0
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
# Visible ASCII, blanks and tabs inside: a line break would begin a header, or a request, of the sender's choice.
_VALUE: Final = re.compile(r"(?:[!-~](?:[ -~\t]*[!-~])?)?")
# What frames the message, names its receiver, or is ours to say.
_OURS: Final = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade"),
        *("expect", "proxy-authorization", "proxy-connection", "http2-settings", "accept-encoding", "idempotency-key"),
        *("webhook-id", "webhook-timestamp", "webhook-signature", "windlass-attempt"),
    }
)


@app.job(timeout=90)
async def webhook(
    ctx: AsyncContext,
    url: Annotated[str, Meta(min_length=1, max_length=2048)],
    method: Method = "POST",
    headers: dict[str, str] | None = None,
    body: Any = None,
    secret_name: Annotated[str, Meta(min_length=1, max_length=100)] | None = None,
) -> dict[str, Any]:
    """Call a URL: `body` is sent as JSON, a text as it is; signed (Standard Webhooks) if there is a key for it.

    408, 429, 5xx and a receiver that is away are tried again, after Retry-After if it says so; any other answer but 2xx
    is final. Private addresses are not reached.
    """
    have = means()
    content, kind = _content(body)
    given = _checked(headers or {})
    sent = [*given, *_own_headers(ctx, content, kind, {name.lower() for name, _ in given})]
    signing = keys(have.config.webhook_secret, secret_name)
    if secret_name is not None and not signing:
        raise Fail(f"WINDLASS_WEBHOOK_SECRET has no key of the name {secret_name!r}")
    if signing:
        stamp = int(dict(sent)["webhook-timestamp"])
        sent.append(("webhook-signature", signature(signing, str(ctx.id), stamp, content)))
    began_s = time.monotonic()
    answer = await have.egress.request(method, url, headers=sent, body=content, keep_bytes=_answer_bytes_max)
    text = _text(answer, [*header_secrets(given), *_query_secrets(url)])
    ctx.log.info("answered", status=answer.status, took_s=round(time.monotonic() - began_s, 3))
    _judge(answer, text)
    return {"status": answer.status, "body": text, "cut": answer.cut}


def _checked(headers: dict[str, str]) -> list[tuple[str, str]]:
    """Names are shown in what we raise, values never."""
    if len(headers) > _headers_max:
        raise Fail(f"there are {len(headers)} headers; the most is {_headers_max}")
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise Fail(f"headers: {name[:100]!a} is no name of a header")
        if name.lower() in _OURS:
            raise Fail(f"headers: {name} is set by Windlass")
        if len(value) > _header_chars_max or not _VALUE.fullmatch(value):
            raise Fail(f"headers: the value of {name} is too long, or holds more than visible ASCII and blanks")
    if (size := sum(map(len, headers.values()))) > _headers_chars_max:
        raise Fail(f"the headers have {size:,} characters; the most is {_headers_chars_max:,}")
    return list(headers.items())


def _content(body: Any) -> tuple[bytes, str | None]:
    if body is None:
        return b"", None
    if isinstance(body, str):
        return body.encode(), "text/plain; charset=utf-8"
    return encode(body, "body").encode(), "application/json"


def _own_headers(ctx: AsyncContext, content: bytes, kind: str | None, given: set[str]) -> list[tuple[str, str]]:
    own = [
        ("webhook-id", str(ctx.id)),
        ("webhook-timestamp", str(int(time.time()))),
        ("Idempotency-Key", str(ctx.id)),
        ("Windlass-Attempt", str(ctx.attempt)),
    ]
    if "user-agent" not in given:
        own.append(("User-Agent", "windlass"))
    if "accept" not in given:
        own.append(("Accept", "*/*"))
    if kind is not None and content and "content-type" not in given:
        own.append(("Content-Type", kind))
    return own


def _judge(answer: "Answer", text: str) -> None:
    status = answer.status
    if 200 <= status < 300:
        return
    said = f"the receiver answered {status}" + (f": {masked_text(text[:500])}" if text else "")
    if status in {408, 429} or status >= 500:
        raise Retry(_wait_s(answer.header("retry-after")), said)
    if 300 <= status < 400:
        raise Fail(f"the receiver answered {status}; redirects are not followed")
    raise Fail(said)


def _wait_s(said: str | None) -> float | None:
    """Retry-After in seconds: a number of them, or a moment. Nonsense counts as not said."""
    if said is None:
        return None
    said = said.strip()
    if re.fullmatch(r"[0-9]{1,9}", said):
        return min(float(said), _wait_s_max)
    try:
        moment = parsedate_to_datetime(said)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return min(max((moment - datetime.now(UTC)).total_seconds(), 0.0), _wait_s_max)


def _text(answer: "Answer", secrets: list[str]) -> str:
    """What the receiver said, as it may be kept: storable, and without what we told it in confidence."""
    if answer.header("content-encoding") not in {None, "identity"}:
        return ""
    return without(answer.body.decode(errors="replace").replace("\0", "\ufffd"), secrets)


def _query_secrets(url: str) -> list[str]:
    return [value for name, value in parse_qsl(urlsplit(url).query) if is_secret(name)]

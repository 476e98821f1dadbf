"""email: one mail to a few people, by the SMTP server of the settings.

What the server refuses for good (5xx) is final; what it refuses for now (4xx), and a server that is away, is tried
again, for those recipients only that have not got it. A worker that dies between the server's yes and our note of it
sends again: the Message-ID is the job's, so that mailboxes can tell. The password is in no error or log.
"""

import base64
import socket
from datetime import UTC, datetime
from typing import Any, Final

from windlass import AsyncContext, Fail, Retry
from windlass.config import JobsConfig
from windlass.jobs.home import app, means
from windlass.jobs.letters import Letter, Mail, written
from windlass.masking import without

_answer_s: Final = 30.0  # for each answer of the server
_said_chars_max: Final = 300


@app.job(timeout=180)
async def email(ctx: AsyncContext, payload: Mail) -> dict[str, Any]:
    """Send a mail: `to`, `subject`, `body`, and optionally `html`, `from`, `cc`, `reply_to`; up to 50 recipients."""
    config = means().config
    if config.smtp_host is None:
        raise Fail("WINDLASS_SMTP_HOST is not set: there is no server to send mail by")
    letter = written(payload, config.mail_from, ctx.id, datetime.now(UTC))
    accepted: list[str] = []
    refused: dict[str, str] = {}
    left, turn = letter.recipients, 0
    while left:
        sent_now = False

        async def send(to: list[str]) -> dict[str, Any]:
            nonlocal sent_now
            sent_now = True
            return await _delivered(config, letter, to)

        told = await ctx.once(f"sent {turn}", send, left)
        accepted += told["accepted"]
        refused |= told["refused"]
        left, turn = told["later"], turn + 1
        if left and sent_now:
            raise Retry(None, f"the server does not take the mail for {len(left)} of its recipients yet")
    ctx.log.info("sent", message_id=letter.message_id, recipients=len(accepted), refused=len(refused))
    return {"message_id": letter.message_id, "accepted": accepted, "refused": refused}


async def _delivered(config: JobsConfig, letter: Letter, recipients: list[str]) -> dict[str, Any]:
    """Who got it, who never will, and who may later. Raises if nobody got it."""
    import aiosmtplib  # noqa: PLC0415

    try:
        server = _server(config)
        async with server:
            problems, _ = await server.sendmail(letter.sender, recipients, letter.text)
    except aiosmtplib.SMTPRecipientsRefused as error:
        codes = [each.code for each in error.recipients]
        said = _said(config, error.recipients[0].code, error.recipients[0].message)
        raise _outcome(f"no recipient was taken: {said}", final=all(code >= 500 for code in codes)) from None
    except aiosmtplib.SMTPAuthenticationError as error:
        # The operator's mistake, not the mail's: it must not cost every mail that is sent meanwhile.
        raise Retry(None, f"the mail server refuses our login: {_said(config, error.code, error.message)}") from None
    except aiosmtplib.SMTPResponseException as error:
        said = _said(config, error.code, error.message)
        raise _outcome(f"the mail server says {said}", final=500 <= error.code < 600) from None
    except (aiosmtplib.SMTPException, OSError) as error:
        raise Retry(
            None, f"the mail server cannot be used: {_clean(config, f'{type(error).__name__}: {error}')}"
        ) from None
    taken = [each for each in recipients if each not in problems]
    later = [each for each, (code, _) in problems.items() if code < 500]
    never = {each: _said(config, code, text) for each, (code, text) in problems.items() if code >= 500}
    return {"accepted": taken, "later": later, "refused": never}


def _server(config: JobsConfig) -> Any:
    import aiosmtplib  # noqa: PLC0415

    if config.smtp_password is not None and config.smtp_security == "none" and not _is_here(config.smtp_host or ""):
        raise Fail("WINDLASS_SMTP_SECURITY is none: the password is not sent to another machine unprotected")
    return aiosmtplib.SMTP(
        hostname=config.smtp_host,
        port=config.smtp_port,
        username=config.smtp_user,
        password=config.smtp_password,
        local_hostname=socket.gethostname(),
        timeout=_answer_s,
        use_tls=config.smtp_security == "tls",
        start_tls=config.smtp_security == "starttls",  # insisted on: a server without it gets nothing
    )


def _is_here(host: str) -> bool:
    return host in {"localhost", "::1"} or host.startswith("127.")


def _outcome(text: str, *, final: bool) -> Fail | Retry:
    return Fail(text) if final else Retry(None, text)


def _said(config: JobsConfig, code: int, text: str) -> str:
    return f"{code} {_clean(config, text)}"


def _clean(config: JobsConfig, text: str) -> str:
    """What a server says may quote our login: in clear, or as it went over the wire."""
    user, password = config.smtp_user or "", config.smtp_password or ""
    wire = [base64.b64encode(each.encode()).decode() for each in (password, f"\0{user}\0{password}") if password]
    return without(text, [password, *wire])[:_said_chars_max] if password else text[:_said_chars_max]

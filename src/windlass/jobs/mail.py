"""email: one mail to a few people, by the SMTP server of the settings.

What the server refuses for good (5xx) is final; what it refuses for now (4xx), and a server that is away, is tried
again, for those recipients only that have not got it. Between the end of the mail and the server's answer nobody can know
whether it was taken: a worker that dies there, or an answer that is lost, leaves an effect that is unknown, and by default
the job waits for a person instead of sending a second mail. The Message-ID is the job's in every attempt. The password is in
no error or log.
"""

import asyncio
import base64
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, cast

from windlass import AsyncContext, Effect, Fail, Retry
from windlass.config import JobsConfig
from windlass.jobs.home import app, means
from windlass.jobs.letters import Letter, Mail, written
from windlass.masking import without
from windlass.model import IfUnknown

_answer_s: Final = 30.0  # for each answer of the server
_said_chars_max: Final = 300
_at_once_max: Final = 10_000  # characters of a mail that the loop may spend some milliseconds on

Report = dict[str, Any]  # who has it (accepted), who never will (refused), and who may later (later)
Problems = dict[str, tuple[int, str]]


@app.job(timeout=180)
async def email(ctx: AsyncContext, payload: Mail) -> dict[str, Any]:
    """Send a mail: `to`, `subject`, `body`, and optionally `html`, `from`, `cc`, `reply_to`; up to 50 recipients.

    If the server may have taken it and nobody can know, the job waits for a person; `if_unknown` may say `repeat` or `skip`.
    """
    config = means().config
    if config.smtp_host is None:
        raise Fail("WINDLASS_SMTP_HOST is not set: there is no server to send mail by")
    if_unknown = payload.if_unknown or cast("IfUnknown", config.mail_if_unknown)
    letter = await _composed(payload, config.mail_from, ctx.id)
    accepted: list[str] = []
    refused: dict[str, str] = {}
    left, turn = letter.recipients, 1
    while left:
        key = "mail" if turn == 1 else f"mail {turn}"
        report, sent_now = await _sent_once(ctx, key, if_unknown, config, letter, left)
        accepted += report["accepted"]
        refused |= report["refused"]
        left, turn = report["later"], turn + 1
        if left and sent_now:
            raise Retry(None, f"the server does not take the mail for {len(left)} of its recipients yet")
    ctx.log.info("sent", message_id=letter.message_id, recipients=len(accepted), refused=len(refused))
    return {"message_id": letter.message_id, "accepted": accepted, "refused": refused}


async def _composed(mail: Mail, default_from: str | None, job_id: object) -> Letter:
    """A megabyte of short lines takes the mail library 0.8 s: in a thread, so that the loop goes on."""
    compose = partial(written, mail, default_from, job_id, datetime.now(UTC))
    long = len(mail.body) + len(mail.html or "") > _at_once_max
    return await asyncio.to_thread(compose) if long else compose()


async def _sent_once(
    ctx: AsyncContext, key: str, if_unknown: IfUnknown, config: JobsConfig, letter: Letter, to: list[str]
) -> tuple[Report, bool]:
    """What became of the mail for these recipients, and whether it was sent by this attempt."""
    async with AsyncExitStack() as stack:
        envelope = None
        if await ctx.effect_state(key) == "new":
            # Before the effect begins: a worker that dies while it connects has sent nothing, and nobody need be asked.
            envelope = await stack.enter_async_context(_opened(config, letter, to))
        effect = await stack.enter_async_context(ctx.effect(key, if_unknown=if_unknown))
        if effect.needed:
            if envelope is None:
                envelope = await stack.enter_async_context(_opened(config, letter, to))
            effect.result = await _delivered(config, letter, to, envelope, effect)
    # Without a result a person has said that it was sent, or it is skipped.
    return effect.result or {"accepted": to, "refused": {}, "later": []}, effect.needed


@asynccontextmanager
async def _opened(config: JobsConfig, letter: Letter, recipients: list[str]) -> AsyncIterator[tuple[Any, Problems]]:
    """A server that waits for the mail, and the recipients it does not take. Raises if it takes nobody."""
    import aiosmtplib  # noqa: PLC0415

    server = _server(config)
    problems: Problems = {}
    refusals = []
    async with AsyncExitStack() as stack:
        with _translated(config):
            await stack.enter_async_context(server)
            if server.is_ehlo_or_helo_needed:
                with suppress(aiosmtplib.SMTPHeloError):  # one of the very old, to which MAIL says HELO first
                    await server.ehlo()
            sized = [f"size={len(letter.text)}"] if server.supports_extension("size") else []
            await server.mail(letter.sender, options=sized)
            for each in recipients:
                try:
                    await server.rcpt(each)
                except aiosmtplib.SMTPRecipientRefused as refusal:
                    problems[each] = (refusal.code, refusal.message)
                    refusals.append(refusal)
            if len(problems) == len(recipients):
                raise aiosmtplib.SMTPRecipientsRefused(refusals)
        yield server, problems


async def _delivered(
    config: JobsConfig, letter: Letter, recipients: list[str], envelope: tuple[Any, Problems], effect: Effect
) -> Report:
    import aiosmtplib  # noqa: PLC0415

    server, problems = envelope
    effect.may_have_happened()
    with _translated(config):
        try:
            await server.data(letter.text)
        except aiosmtplib.SMTPResponseException as error:
            if 400 <= error.code < 600:  # a refusal; anything else is no answer
                effect.has_not_happened()
            raise
    return {
        "accepted": [each for each in recipients if each not in problems],
        "later": [each for each, (code, _) in problems.items() if code < 500],
        "refused": {each: _said(config, code, text) for each, (code, text) in problems.items() if code >= 500},
    }


@contextmanager
def _translated(config: JobsConfig) -> Iterator[None]:
    """What went wrong at the server, as what shall become of the job."""
    import aiosmtplib  # noqa: PLC0415

    try:
        yield
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

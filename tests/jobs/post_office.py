"""A real SMTP server that keeps what it is given, line by line, and refuses what it is told to."""

import asyncio
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword


@dataclass(slots=True)
class Taken:
    """One mail as the server took it: its envelope, and the bytes between DATA and the dot."""

    sender: str
    recipients: list[str]
    text: bytes


@dataclass(slots=True)
class PostOffice:
    """`refusals` are the answers to recipients, by address; `after_data` is the answer to the mail itself. `hangs_up`:
    it takes the mail, and the connection is gone before its answer."""

    port: int = 0
    connections: int = 0
    taken: list[Taken] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)
    after_data: str = "250 taken"
    hangs_up: bool = False
    password: str | None = None
    logins: list[tuple[str, str]] = field(default_factory=list)
    login_answer: str | None = None

    async def handle_RCPT(  # noqa: N802 - the library's name
        self, server: Any, session: Any, envelope: Any, address: str, rcpt_options: list[str]
    ) -> str:
        if address in self.refusals:
            return self.refusals[address]
        envelope.rcpt_tos.append(address)
        return "250 yes"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        if self.after_data.startswith("2"):
            self.taken.append(Taken(envelope.mail_from, list(envelope.rcpt_tos), envelope.content))
        if self.hangs_up:
            server.transport.abort()
        return self.after_data

    def login(self, server: Any, session: Any, envelope: Any, mechanism: str, data: LoginPassword) -> AuthResult:
        user, password = data.login.decode(), data.password.decode()
        self.logins.append((user, password))
        if password == self.password:
            return AuthResult(success=True)
        return AuthResult(success=False, handled=False, message=self.login_answer)


@asynccontextmanager
async def post_office(
    *, password: str | None = None, tls: ssl.SSLContext | None = None, starttls: ssl.SSLContext | None = None
) -> AsyncIterator[PostOffice]:
    office = PostOffice(password=password)
    loop = asyncio.get_running_loop()

    def connected() -> SMTP:
        office.connections += 1
        with warnings.catch_warnings():  # of passwords without TLS: that is what we are here to see
            warnings.simplefilter("ignore", UserWarning)
            return SMTP(
                office,
                hostname="mx.test",
                enable_SMTPUTF8=False,
                tls_context=starttls,
                require_starttls=starttls is not None,
                authenticator=office.login if password else None,
                auth_required=password is not None,
                auth_require_tls=starttls is not None,
                loop=loop,
            )

    server = await loop.create_server(connected, "127.0.0.1", 0, ssl=tls)
    office.port = server.sockets[0].getsockname()[1]
    try:
        yield office
    finally:
        server.close()
        await server.wait_closed()

"""A minimal SMTP server for development, on loopback: takes every mail for anyone, keeps it, sends nothing on.

What a stranger on this machine can make it hold or do is bounded: connections, line length, size of a mail, recipients and
time. A mail ends with CR LF . CR LF and nothing else, so that no line of its text can pass for a command.
"""

import asyncio
import contextlib
import logging
import re
import socket
from typing import Final, Self

from windlass.mail_catcher.mailbox import Mailbox

connections_max: Final = 50
message_bytes_max: Final = 10 * 1_048_576
_LINE_MAX: Final = 65_536  # some senders do not break lines; the standard says 1,000
_RECIPIENTS_MAX: Final = 100
_ERRORS_MAX: Final = 20
_ANSWER_S: Final = 60.0
_SESSION_S: Final = 600.0
_PATH: Final = re.compile(r"(?:FROM|TO):[ ]*<([^<>\x00-\x1f\x7f]{0,320})>(?: .*)?", re.IGNORECASE)
_log: Final = logging.getLogger(__name__)


class MailReceiver:
    """`async with MailReceiver(listening_socket, mailbox)`: takes mail while the block lasts."""

    def __init__(self, door: socket.socket, mailbox: Mailbox) -> None:
        self._door = door
        self._mailbox = mailbox
        self._sessions: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, sock=self._door, limit=_LINE_MAX)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for session in self._sessions:
            session.cancel()
        if self._sessions:
            await asyncio.wait(self._sessions, timeout=1.0)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._sessions) >= connections_max:
            writer.write(b"421 too many connections\r\n")
            writer.close()
            return
        self._sessions.add(task)
        try:
            async with asyncio.timeout(_SESSION_S):
                await _Session(reader, writer, self._mailbox).serve()
        except (TimeoutError, OSError, EOFError):
            pass  # it hung up, or took too long
        except Exception:  # noqa: BLE001 - whatever one sender does, the next is served
            _log.exception("a mail could not be caught")
        finally:
            self._sessions.discard(task)
            writer.close()


class _Session:
    """One connection: commands, answers, and the mail that is being sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, mailbox: Mailbox) -> None:
        self._reader = reader
        self._writer = writer
        self._mailbox = mailbox
        self._sender: str | None = None
        self._recipients: list[str] = []
        self._errors = 0

    async def serve(self) -> None:
        await self._say("220 windlass catches mail for development")
        while self._errors < _ERRORS_MAX:
            try:
                line = await self._line()
            except asyncio.LimitOverrunError:
                await self._say("500 the line is too long")
                return  # what follows is the rest of that line, and no command
            verb, _, rest = line.rstrip(b"\r\n").decode("latin-1").partition(" ")
            if verb.upper() == "QUIT":
                await self._say("221 bye")
                return
            await self._heed(verb.upper(), rest.strip())
        with contextlib.suppress(OSError):
            await self._say("421 too many errors")

    async def _heed(self, verb: str, rest: str) -> None:
        match verb:
            case "EHLO":
                self._reset()
                await self._say("250-windlass", f"250-SIZE {message_bytes_max}", "250 8BITMIME")
            case "HELO":
                self._reset()
                await self._say("250 windlass")
            case "MAIL":
                await self._mail(rest)
            case "RCPT":
                await self._rcpt(rest)
            case "DATA":
                await self._data()
            case "RSET":
                self._reset()
                await self._say("250 begun anew")
            case "NOOP":
                await self._say("250 yes")
            case "VRFY":
                await self._say("252 everybody gets mail here")
            case _:
                await self._refuse("502 not a command that is known here")

    async def _mail(self, rest: str) -> None:
        path = _PATH.fullmatch(rest)
        if path is None:
            await self._refuse("501 write MAIL FROM:<address>")
        elif self._sender is not None:
            await self._refuse("503 one mail after the other")
        else:
            self._sender = path[1]
            await self._say("250 yes")

    async def _rcpt(self, rest: str) -> None:
        path = _PATH.fullmatch(rest)
        if self._sender is None:
            await self._refuse("503 MAIL comes first")
        elif path is None or not path[1]:
            await self._refuse("501 write RCPT TO:<address>")
        elif len(self._recipients) >= _RECIPIENTS_MAX:
            await self._refuse("452 too many recipients")
        else:
            self._recipients.append(path[1])
            await self._say("250 yes")

    async def _data(self) -> None:
        if not self._recipients or self._sender is None:
            await self._refuse("503 MAIL and RCPT come first")
            return
        await self._say("354 go on, and end with a dot on a line of its own")
        message = await self._message()
        if message is None:
            await self._refuse("552 the mail is too large")
        else:
            await asyncio.to_thread(self._mailbox.add, self._sender, self._recipients, message)
            await self._say("250 caught")
        self._reset()

    async def _message(self) -> bytes | None:
        """The mail, without its end and with its dots as they were; None if it is too large, read to its end all the same."""
        parts: list[bytes] = []
        size, in_a_line = 0, False
        while True:
            try:
                part = await self._line()
            except asyncio.LimitOverrunError as error:  # a line longer than what is read at once
                part = await self._reader.readexactly(error.consumed)
            if not in_a_line:
                if part == b".\r\n":
                    return b"".join(parts) if size <= message_bytes_max else None
                part = part.removeprefix(b".")
            in_a_line = not part.endswith(b"\r\n")
            size += len(part)
            if size <= message_bytes_max:
                parts.append(part)

    async def _line(self) -> bytes:
        async with asyncio.timeout(_ANSWER_S):
            return await self._reader.readuntil(b"\r\n")

    async def _say(self, *lines: str) -> None:
        self._writer.write("".join(f"{line}\r\n" for line in lines).encode())
        async with asyncio.timeout(_ANSWER_S):
            await self._writer.drain()

    async def _refuse(self, line: str) -> None:
        self._errors += 1
        await self._say(line)

    def _reset(self) -> None:
        self._sender, self._recipients = None, []

"""What `windlass up` brings for development beside PostgreSQL: a mail catcher, and a Valkey where it is asked for."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from windlass.cli.listening import port_of
from windlass.cli.notices import say
from windlass.config import Config
from windlass.embedded.valkey import EmbeddedValkey
from windlass.errors import WindlassError
from windlass.mail_catcher.mailbox import Mailbox
from windlass.mail_catcher.receiver import MailReceiver
from windlass.worker.loops import BackOff, cancelled

_LOOK_S: Final = 0.2
_SENDER: Final = "windlass@localhost"


@dataclass(frozen=True, slots=True)
class DevelopmentServers:
    """What was started. `mail_socket` listens for mail, `mailbox` is where it is kept."""

    mail_socket: socket.socket | None = None
    mailbox: Mailbox | None = None
    valkey: EmbeddedValkey | None = None

    def report(self, url: str) -> dict[str, Any]:
        found: dict[str, Any] = {"mail": None, "smtp": None, "redis": None}
        if self.mail_socket is not None:
            found |= {"mail": f"{url}/dev/mail", "smtp": f"127.0.0.1:{port_of(self.mail_socket)}"}
        if self.valkey is not None:
            found |= {"redis": urlsplit(self.valkey.url).netloc.rpartition("@")[2]}  # without its password
        return found

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Take mail, and start Valkey again should it die, while the block lasts."""
        async with AsyncExitStack() as stack:
            if self.mail_socket is not None and self.mailbox is not None:
                await stack.enter_async_context(MailReceiver(self.mail_socket, self.mailbox))
            if self.valkey is not None:
                keeping = asyncio.create_task(_keep_alive(self.valkey), name="windlass valkey")
                stack.push_async_callback(cancelled, keeping)
            yield


@contextmanager
def development_servers(
    config: Config, folder: Path, *, mail: bool | None, redis: bool
) -> Iterator[tuple[Config, DevelopmentServers]]:
    """What was asked for, and the configuration that leads to it. `mail` None: caught if it could not be sent."""
    made = DevelopmentServers()
    if config.jobs.smtp_host is None if mail is None else mail:
        door = socket.create_server(("127.0.0.1", 0))
        made = replace(made, mail_socket=door, mailbox=Mailbox(folder / "mail"))
        config = _with_mail_caught(config, folder / "mail", port_of(door))
    try:
        if not redis:
            yield config, made
            return
        say("starting Valkey …")
        with EmbeddedValkey(folder / "valkey", listen="tcp") as valkey:
            config = replace(config, redis=replace(config.redis, redis_url=valkey.url))
            yield config, replace(made, valkey=valkey)
    finally:
        if made.mail_socket is not None:
            made.mail_socket.close()


def _with_mail_caught(config: Config, folder: Path, port: int) -> Config:
    jobs = replace(
        config.jobs,
        smtp_host="127.0.0.1",
        smtp_port=port,
        smtp_security="none",
        smtp_user=None,
        smtp_password=None,
        mail_from=config.jobs.mail_from or _SENDER,
    )
    return replace(config, jobs=jobs, api=replace(config.api, mail_dir=str(folder)))


async def _keep_alive(valkey: EmbeddedValkey) -> None:
    """Start it again, at the same address, whenever it has ended. Everything works without it meanwhile."""
    back_off = BackOff()
    back_off.began()
    while True:
        await asyncio.sleep(_LOOK_S)
        if valkey.alive:
            continue
        pause_s = back_off.ended()
        say(f"Valkey has ended; it is started again {f'in {pause_s:.1f} s' if pause_s else 'at once'}")
        await asyncio.sleep(pause_s)
        back_off.began()
        starting = asyncio.create_task(asyncio.to_thread(valkey.start))
        try:
            await asyncio.shield(starting)
        except WindlassError as error:
            say(f"Valkey could not be started: {str(error).splitlines()[0]}")
        except asyncio.CancelledError:
            await asyncio.wait([starting])  # it must not be stopped while a thread starts it
            raise

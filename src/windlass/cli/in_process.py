"""The API inside the command itself, straight on the database: for clusters that have no API, or none that answers.

Every command asks the API and nothing else, so this one seam gives all of them: the same checks, the same answers, the same audit.
Nothing listens. The caller is an admin, named in the audit as with an API on this machine: whoever has the database's
password may do everything anyway.
"""

import asyncio
import secrets
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

import httpx2

from windlass.config import ApiConfig, AuthConfig, Config
from windlass.errors import Unavailable

URL: Final = "http://localhost"  # a name that the API answers to; nobody is called there
_POOL: Final = 4


def in_process(config: Config) -> Config:
    """The settings of an API that serves one command: a secret that nobody else has, few connections, no access log, and no
    grace for unknown types: that it has just started says nothing about the workers."""
    return replace(
        config,
        store=replace(config.store, pool_min=1, pool_max=_POOL),
        api=ApiConfig(access_log="off", unknown_type_grace_s=0),
        auth=AuthConfig(auth_secret=secrets.token_hex(32)),
    )


class InProcessTransport(httpx2.AsyncBaseTransport):
    """Requests go to an API that is opened with the first of them, on the loop of the client that sends it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._app: httpx2.ASGITransport | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        async with self._opening:
            if self._app is None:
                self._app = await self._opened()
        return await self._app.handle_async_request(request)

    async def aclose(self) -> None:
        await self._stack.aclose()

    async def _opened(self) -> httpx2.ASGITransport:
        from windlass.api.app import build, opened  # noqa: PLC0415 - with an API that answers there is no need for one here
        from windlass.cli.api import built_in_types, open_intake  # noqa: PLC0415
        from windlass.store.store import open_store  # noqa: PLC0415

        try:
            store = await self._stack.enter_async_context(open_store(self._config.store.for_callers()))
        except Unavailable as error:
            error.__dict__["sent"] = False  # nothing was asked yet: tried again for as long as the command is patient
            raise
        intake, shortcuts = await open_intake(self._config, store, self._stack)
        parts = await self._stack.enter_async_context(
            opened(intake, store.views, store.accounts, self._config, shortcuts, built_in=built_in_types())
        )
        return httpx2.ASGITransport(app=build(parts), raise_app_exceptions=True)

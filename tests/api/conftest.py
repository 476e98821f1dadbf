"""The real app over a real store: called in this process, or served by a real server on a free port."""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from argon2 import PasswordHasher
from starlette.types import ASGIApp

from tests.factory import TYPES
from windlass.api.app import build, opened
from windlass.api.parts import Parts
from windlass.api.server import Server
from windlass.auth import passwords
from windlass.auth.tokens import Signer
from windlass.bus.postgres import PostgresWaker
from windlass.bus.waking import Waking
from windlass.config import ApiConfig, AuthConfig, Config, StoreConfig
from windlass.model import Declared
from windlass.store.store import Store

SECRET = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="package", autouse=True)
def quick_passwords() -> Iterator[None]:
    """Argon2 as it is, but with less work in it: what it costs is measured elsewhere (tests/unit/test_credentials.py)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "_HASHER", PasswordHasher(time_cost=1, memory_cost=1024, parallelism=1))
        passwords._nobodys.cache_clear()
        yield
    passwords._nobodys.cache_clear()


@pytest.fixture
def settings(config: StoreConfig) -> Config:
    """Of the API under test; a test module may override it."""
    return Config(
        store=config, auth=AuthConfig(auth_secret=SECRET), api=ApiConfig(port=0, unknown_type_grace_s=0, unready_s=0)
    )


@pytest.fixture
async def parts(store: Store, settings: Config) -> AsyncIterator[Parts]:
    """What handlers reach. The types of tests/factory.py are declared, as by a worker that has started. The clock of allowances
    stands still: on a busy machine a hundred guesses take long enough for one more to be allowed."""
    await store.upkeep.declare([Declared(name) for name in TYPES])
    waker = PostgresWaker(store.hints)
    async with opened(Waking(store.intake, waker, store.hints), store.views, store.accounts, settings) as parts:
        if settings.auth.auth == "on":
            parts.gate.logins.clock = lambda: 0.0
        yield parts
    await waker.aclose()


@pytest.fixture
def app(parts: Parts) -> ASGIApp:
    return build(parts)


@dataclass(frozen=True, slots=True)
class Tokens:
    """A token for each scope: `tokens("read")`, `tokens("submit", "read")`."""

    signer: Signer

    def __call__(self, *scopes: Any, subject: str = "tester", ttl_s: float = 600) -> str:
        return self.signer.sign(subject, scopes, ttl_s)

    def headers(self, *scopes: Any) -> dict[str, str]:
        return {"authorization": f"Bearer {self(*scopes)}"}


@pytest.fixture
def tokens(settings: Config) -> Tokens:
    return Tokens(Signer.of(settings.auth))


@pytest.fixture
async def http(app: ASGIApp) -> AsyncIterator[httpx2.AsyncClient]:
    """Calls the app in this process, with no token."""
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=True)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@pytest.fixture
async def api(app: ASGIApp, tokens: Tokens) -> AsyncIterator[httpx2.AsyncClient]:
    """Calls the app in this process, as an admin, who may do everything."""
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=True)
    headers = tokens.headers("admin")
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
        yield client


@pytest.fixture
def as_scope(app: ASGIApp, tokens: Tokens) -> Callable[..., httpx2.AsyncClient]:
    """A client with these scopes alone: `async with as_scope("read") as client`."""

    def client(*scopes: Any) -> httpx2.AsyncClient:
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=True)
        return httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=tokens.headers(*scopes))

    return client


@pytest.fixture
async def server(parts: Parts, app: ASGIApp) -> AsyncIterator[Server]:
    """A real server on a free port: `server.url`."""
    server = Server(app, parts)
    async with server:
        yield server


@pytest.fixture
async def served(server: Server, tokens: Tokens) -> AsyncIterator[httpx2.AsyncClient]:
    """Calls the real server as an admin."""
    async with httpx2.AsyncClient(base_url=server.url, headers=tokens.headers("admin"), trust_env=False) as client:
        yield client

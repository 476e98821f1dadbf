"""Values that can be left with strangers: sealed under the store's own key, for the store as it is now.

A Redis may be shared, stale, restored, wiped or lying. What it returns is believed only if this very store, in its present
incarnation, has sealed it under that very name; all else is as if it had returned nothing.
"""

import asyncio
import contextlib
import hmac
import logging
from hashlib import blake2b
from typing import Final, Protocol, Self
from uuid import UUID

from windlass.clock import steady_s
from windlass.errors import Unavailable
from windlass.store.identity import Identity

_MAC_BYTES: Final = 32
_EVERY_S: Final = 2.0
_GOOD_FOR_S: Final = 5.0
_log: Final = logging.getLogger(__name__)


class Seal:
    """Of one store, in one incarnation."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.prefix = f"windlass:{identity.name[:16]}"

    def name(self, kind: str, text: str) -> str:
        """What a value is kept under. Says nothing of the text, which may be anybody's order number."""
        digest = blake2b(
            text.encode("utf-8", "surrogatepass"), key=self.identity.key, digest_size=16, person=kind.encode()
        )
        return f"{self.prefix}:{kind}:{digest.hexdigest()}"

    def job_name(self, job_id: UUID) -> str:
        """What a job is kept under. Its id is no secret, and so scripts at the server can make the names of many."""
        return f"{self.prefix}:job:{job_id.hex}"

    def sealed(self, name: str, body: bytes) -> bytes:
        return self._mac(name, body) + body

    def opened(self, name: str, value: object) -> bytes | None:
        """The body, if it was sealed here under this name; else None."""
        if not isinstance(value, bytes) or len(value) < _MAC_BYTES:
            return None
        mac, body = value[:_MAC_BYTES], value[_MAC_BYTES:]
        return body if hmac.compare_digest(mac, self._mac(name, body)) else None

    def _mac(self, name: str, body: bytes) -> bytes:
        return hmac.digest(self.identity.key, f"{self.identity.name}\0{name}\0".encode() + body, "sha256")


class Store(Protocol):
    @property
    def losses(self) -> int: ...

    async def read(self) -> Identity: ...


class Seals:
    """The seal of the store as it is now; None while that is not known for certain. `async with Seals(identities) as seals`.

    Read again every two seconds, and whenever a connection to PostgreSQL was lost: behind the next one there may be a
    standby that lacks the last jobs. What was read is good for five seconds: a database that cannot be reached might be
    any other by now.
    """

    def __init__(self, store: Store, *, every_s: float = _EVERY_S) -> None:
        self._store = store
        self._every_s = every_s
        self._seal: Seal | None = None
        self._read_at_s = 0.0
        self._losses = 0
        self._told = False
        self._look = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    @property
    def current(self) -> Seal | None:
        if self._seal is None or steady_s() - self._read_at_s > _GOOD_FOR_S:
            return None
        if self._store.losses != self._losses:
            self._look.set()
            return None
        return self._seal

    async def __aenter__(self) -> Self:
        await self._read()
        self._looking = asyncio.create_task(self._keep_looking(), name="windlass identity")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._seal = None
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    async def _keep_looking(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._look.wait()
            self._look.clear()
            await self._read()

    async def _read(self) -> None:
        began_s, losses = steady_s(), self._store.losses
        try:
            identity = await self._store.read()
        except Unavailable:
            self._seal = None  # those who need the database say so
            return
        except Exception as problem:  # noqa: BLE001 - without it PostgreSQL is asked about everything, which is always right
            if not self._told:
                _log.warning("Redis is not used: the identity of the store cannot be read: %s", problem)
            self._seal, self._told = None, True
            return
        self._told = False
        if self._seal is None or self._seal.identity != identity:
            self._seal = Seal(identity)
        self._read_at_s, self._losses = began_s, losses

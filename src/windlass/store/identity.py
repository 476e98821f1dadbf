"""Who the store is: another one after a restore, a failover or a restart, and with a secret that only its users can read."""

import hashlib
from typing import Final, NamedTuple

import asyncpg

from windlass.errors import Misconfigured
from windlass.store.postgres import Postgres

# No right to call it, no such function, not offered by this make of server.
_NOT_OURS: Final = (
    asyncpg.InsufficientPrivilegeError,
    asyncpg.UndefinedFunctionError,
    asyncpg.FeatureNotSupportedError,
)


class Identity(NamedTuple):
    """`name` is what makes it another; `key` the secret. Equal for all processes on one store."""

    name: str
    key: bytes


class Identities:
    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self._statement = "identity"

    @property
    def losses(self) -> int:
        """Grows whenever a connection ends: what was read before may be of another server than the one there now."""
        return self._postgres.losses

    async def read(self) -> Identity:
        """Raises Unavailable, or Misconfigured if there is none to be read."""
        try:
            row = await self._postgres.fetchrow(self._statement)
        except (Misconfigured, *_NOT_OURS) as error:
            if self._statement != "identity" or not isinstance(error.__cause__ or error, _NOT_OURS):
                raise
            self._statement = "identity_plain"
            row = await self._postgres.fetchrow(self._statement)
        if row is None:
            raise Misconfigured("the store has no identity: its row is gone")
        return Identity(hashlib.sha256(row["marks"].encode()).hexdigest()[:32], bytes(row["key"]))

"""The slices over one pool, and the way in: `open_store`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from windlass.config import StoreConfig
from windlass.store import migrate
from windlass.store.accounts import Accounts
from windlass.store.claims import Claims
from windlass.store.connections import open_postgres
from windlass.store.grants import Kind, check_rights
from windlass.store.hints import Hints
from windlass.store.identity import Identities
from windlass.store.intake import Intake
from windlass.store.postgres import Postgres
from windlass.store.upkeep import Upkeep
from windlass.store.views import Views


@dataclass(frozen=True, slots=True)
class Store:
    """The slices over one pool."""

    postgres: Postgres
    intake: Intake
    upkeep: Upkeep
    views: Views
    hints: Hints
    accounts: Accounts
    identities: Identities

    def claims(self) -> Claims:
        """A worker's own slice: it remembers where that worker looks."""
        return Claims(self.postgres)


@asynccontextmanager
async def open_store(
    config: StoreConfig, *, beside: Store | None = None, needs: Kind | None = None
) -> AsyncIterator[Store]:
    """Connect, refuse a schema that does not fit this code, and offer the slices. `beside`: a store of this process that is
    open on the same database. Then nothing is asked again, and with `pool_min` 0 no connection is made until one is needed:
    the one it took to ask stayed open for five minutes, in each pool of each process. `needs`: a role without the rights of
    that kind is refused; its processes would start, and fail at the first statement that lacks one."""
    async with open_postgres(config, beside=None if beside is None else beside.postgres) as postgres:
        if beside is None:
            async with postgres.connection() as connection:
                await migrate.check(connection, config.schema)
                if needs is not None:
                    await check_rights(connection, config.schema, needs)
        yield slices(postgres)


def slices(postgres: Postgres) -> Store:
    return Store(
        postgres,
        Intake(postgres),
        Upkeep(postgres),
        Views(postgres),
        Hints(postgres),
        Accounts(postgres),
        Identities(postgres),
    )

"""The store on one connection whose every plan is seen, in transactions that are rolled back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import asyncpg

from tests.plans.plan import MOST, Plan, faults
from tests.pressure import waited_for_processors_s
from windlass.config import StoreConfig
from windlass.store.postgres import Connection, Postgres
from windlass.store.store import Store, slices

if TYPE_CHECKING:
    Bare = asyncpg.Connection[asyncpg.Record]

Act = Callable[[Store], Awaitable[object]]

_WATCH: Final = """
load 'auto_explain';
set auto_explain.log_min_duration = 0;
set auto_explain.log_analyze = on;
set auto_explain.log_buffers = on;
set auto_explain.log_timing = off;
set auto_explain.log_nested_statements = on;
set auto_explain.log_format = json;
set auto_explain.log_level = notice;
set auto_explain.log_parameter_max_length = 0;
set statement_timeout = '1s';
"""


class _Acquired:
    """To be awaited, or entered."""

    def __init__(self, connection: "Bare") -> None:
        self._connection = connection

    def __await__(self) -> Generator[Any, None, Connection]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Connection:
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        """It stays."""


class _OnePool:
    """A pool of one connection, so that all the store does happens in one transaction of ours."""

    def __init__(self, connection: "Bare") -> None:
        self._connection = connection

    def acquire(self, *, timeout: float) -> "_Acquired":
        return _Acquired(self._connection)

    async def release(self, connection: Connection) -> None:
        """It stays."""


class Seen(list[Plan]):
    """The plans of one act: of its statements, and of those inside functions."""

    @property
    def buffers(self) -> int:
        # What happened inside a function is told twice: by itself, and as the function's.
        return max((plan.buffers for plan in self), default=0)

    @property
    def visited(self) -> int:
        return sum(plan.visited for plan in self)

    @property
    def took_ms(self) -> float:
        # Of the statements, not of functions around them, whose time holds that of explaining what is inside.
        return max((plan.took_ms for plan in self if plan.tables()), default=0)

    def of(self, table: str) -> Plan:
        """The plan that reads or writes a table."""
        return next(plan for plan in self if any(name.startswith(table) for name in plan.tables()))

    def show(self) -> str:
        return "\n\n".join(f"{plan.took_ms} ms\n{plan.show()}" for plan in self)


class Probe:
    def __init__(self, connection: "Bare", store: Store) -> None:
        self.connection = connection
        self.store = store
        self._plans: list[Plan] = []

    async def see(self, act: Act) -> Seen:
        """Do it, undo it, and say how it was done."""
        transaction = self.connection.transaction(isolation="repeatable_read")  # as lists are looked at
        await transaction.start()
        try:
            self._plans.clear()
            await act(self.store)
            await self.connection.execute("select")  # ends the last statement: it is explained when it is closed
            await asyncio.sleep(0)  # what the server said is told in a turn of the loop of its own
            return Seen(plan for plan in self._plans if plan.root["Node Type"] != "Result")
        finally:
            await transaction.rollback()

    async def best(self, act: Act, runs: int = 7, *, most_sorted: int = MOST) -> Seen:
        """The cheapest of several runs, and nothing wrong with any: from the sixth on the server may choose another plan."""
        seen = []
        for run in range(runs):
            seen.append(await self.see(act))
            assert seen[-1], "no plan was seen"
            wrong = faults(seen[-1], most_sorted=most_sorted)
            assert not wrong, f"run {run + 1}: {wrong[0]}"
        return min(seen, key=lambda one: one.buffers)

    async def quickest_ms(self, act: Act, runs: int = 7) -> float:
        """Without the time in which processes of this machine waited for a processor: ours may have been among them."""
        took_ms = []
        for _ in range(runs):
            before_s = waited_for_processors_s()
            seen = await self.see(act)
            took_ms.append(seen.took_ms - 1000 * (waited_for_processors_s() - before_s))
        return max(0.0, min(took_ms))

    def listen(self, _connection: object, message: Any) -> None:
        if plan := Plan.parse(message.message):
            self._plans.append(plan)


@asynccontextmanager
async def probing(url: str) -> AsyncIterator[Probe]:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(_WATCH)
        pool = cast("asyncpg.Pool[asyncpg.Record]", _OnePool(connection))
        postgres = Postgres(pool, StoreConfig(database_url=url))
        await postgres.synchronise()
        probe = Probe(connection, slices(postgres))
        connection.add_log_listener(probe.listen)
        yield probe
        connection.remove_log_listener(probe.listen)
    finally:
        await connection.close()

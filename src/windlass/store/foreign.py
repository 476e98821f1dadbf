"""The caller's own connection, whatever drives it, as the store uses one: statements with $n, and a savepoint.

Jobs enqueued in a caller's transaction commit or roll back with it: nothing here begins, commits or ends one. psycopg, psycopg2
and SQLAlchemy are the caller's, never imported by us: connections are known by the classes they descend from.
"""

import inspect
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from windlass.errors import RequestError, Unavailable
from windlass.store.foreign_psycopg2 import SAVEPOINT, Psycopg2Connection, adapt_psycopg2
from windlass.store.postgres import ours, translated

_TAKEN: Final = "an asyncpg, psycopg (3), psycopg2 or SQLAlchemy (2) connection or session"


async def adapted(connection: Any) -> Any:
    """A connection the store can use, inside the transaction the caller has begun. Refused if there is none: a batch
    would not be stored as a whole, and what the caller rolls back would stay."""
    match _driver(connection):
        case "windlass":
            return connection
        case "sqlalchemy":
            return await _beneath(connection)
        case "asyncpg":
            return _asyncpg(connection)
        case "psycopg":
            return _psycopg(connection)
        case "psycopg2":
            return adapt_psycopg2(connection)
    raise RequestError(f"connection: must be {_TAKEN}, not a {_named(connection)}")


def is_blocking(connection: Any) -> bool:
    """Whether its calls would hold up the loop they are made on."""
    return _driver(connection) in {"psycopg", "psycopg2", "sqlalchemy"} and not is_async(connection)


def is_async(connection: Any) -> bool:
    """Whether it can be used only where its own event loop runs."""
    driver = _driver(connection)
    known = [each.__name__ for each in type(connection).__mro__ if each.__module__.partition(".")[0] == driver]
    return driver == "asyncpg" or any(name.startswith(("Async", "async_")) for name in known)


class PsycopgConnection:
    """A psycopg connection in use. The waits of an async one are its loop's; a sync one never waits for a loop."""

    def __init__(self, connection: Any) -> None:
        psycopg = sys.modules["psycopg"]
        self._is_async = isinstance(connection, psycopg.AsyncConnection)
        raw = psycopg.AsyncRawCursor if self._is_async else psycopg.RawCursor  # takes $1, as our statements are written
        self._cursor = raw(connection, row_factory=psycopg.rows.dict_row)

    async def fetch(self, sql: str, *args: Any) -> list[dict[str, Any]]:
        # To psycopg a tuple is a row, and a list is an array.
        values = [list(each) if isinstance(each, tuple) else each for each in args]
        with _psycopg_translated():
            try:
                if self._is_async:
                    await self._cursor.execute(sql, values)
                    return list(await self._cursor.fetchall())
                self._cursor.execute(sql, values)
                return list(self._cursor.fetchall())
            except sys.modules["psycopg"].ProgrammingError as error:
                if error.sqlstate:
                    raise
                return []  # a statement without rows: in a pipeline that is known only once they are asked for

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A savepoint. Not psycopg's own block: at the very beginning of a transaction that one would commit it."""
        await self.fetch(f"savepoint {SAVEPOINT}")
        try:
            yield
        except BaseException:
            with _psycopg_translated():
                await self.fetch(f"rollback to savepoint {SAVEPOINT}")
                await self.fetch(f"release savepoint {SAVEPOINT}")
            raise
        await self.fetch(f"release savepoint {SAVEPOINT}")


def _asyncpg(connection: Any) -> Any:
    if not hasattr(connection, "is_in_transaction"):
        raise _no_connection(connection, "acquire one from the pool, and begin a transaction")
    with translated():
        if connection.is_in_transaction():
            return connection
    raise _no_transaction("begin one: async with connection.transaction()")


def _psycopg(connection: Any) -> PsycopgConnection:
    psycopg = sys.modules["psycopg"]
    if not hasattr(psycopg, "RawCursor"):
        raise RequestError("connection: psycopg is too old; 3.2 or later is needed")
    if not hasattr(connection, "autocommit"):
        raise _no_connection(connection, "give the connection itself, such as cursor.connection")
    # Without autocommit psycopg begins a transaction at the first statement, ours perhaps.
    idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    if idle and connection.autocommit:
        raise _no_transaction("it is in autocommit mode; begin one: with connection.transaction()")
    return PsycopgConnection(connection)


async def _beneath(connection: Any) -> Any:
    """The driver's connection under SQLAlchemy's. SQLAlchemy itself must begin the transaction: a commit of one that
    it has not begun does nothing, and the job would be gone without a word."""
    if not hasattr(connection, "exec_driver_sql"):
        connection = await _of_session(connection)
    if not is_async(connection):
        if not connection.in_transaction():
            connection.exec_driver_sql("select 1")
        driver = connection.connection.driver_connection
        if is_async(driver):  # inside run_sync; left half-way, it could not even roll back
            raise RequestError(
                "connection: its driver is async; await aenqueue(…) with the async connection or session"
            )
        if (kind := _driver(driver)) in {"psycopg", "psycopg2"}:
            return _psycopg(driver) if kind == "psycopg" else adapt_psycopg2(driver)
    else:
        driver = (await connection.get_raw_connection()).driver_connection
        # Its asyncpg dialect begins later than SQLAlchemy does: with the first statement.
        if not connection.in_transaction() or (_driver(driver) == "asyncpg" and not driver.is_in_transaction()):
            await connection.exec_driver_sql("select 1")
        if (kind := _driver(driver)) in {"asyncpg", "psycopg"}:
            return _asyncpg(driver) if kind == "asyncpg" else _psycopg(driver)
    raise RequestError(
        f"connection: SQLAlchemy must use psycopg (3) or psycopg2, or asyncpg with its async classes; not {_named(driver)}"
    )


async def _of_session(session: Any) -> Any:
    if not callable(getattr(type(session), "connection", None)):
        raise RequestError(f"connection: must be {_TAKEN}, not a {_named(session)}")
    connection = session.connection()
    return await connection if inspect.isawaitable(connection) else connection


def _driver(connection: Any) -> str:
    """The first package of those we know that a class of the connection comes from."""
    if isinstance(connection, (PsycopgConnection, Psycopg2Connection)):
        return "windlass"
    packages = [each.__module__.partition(".")[0] for each in type(connection).__mro__]
    return next((each for each in packages if each in {"asyncpg", "psycopg", "psycopg2", "sqlalchemy"}), "")


@contextmanager
def _psycopg_translated() -> Iterator[None]:
    psycopg = sys.modules["psycopg"]
    try:
        yield
    except psycopg.Error as error:
        if known := ours(error.sqlstate or "", str(error)):
            raise known from error
        if isinstance(error, psycopg.OperationalError) and not error.sqlstate:
            raise Unavailable(f"PostgreSQL cannot be reached: {error}") from error
        raise


def _no_connection(thing: Any, cure: str) -> RequestError:
    return RequestError(f"connection: must be {_TAKEN}, not a {_named(thing)}; {cure}")


def _no_transaction(cure: str) -> RequestError:
    return RequestError(f"connection: is in no transaction, so nothing would be all or none; {cure}")


def _named(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"

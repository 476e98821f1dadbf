"""A caller's psycopg2 connection, as the store uses one (foreign.py). Never imported by us: sys.modules has it if a caller does.

psycopg2 puts values into the text of a statement, and has its own marks for them. Lists are sent as array literals without a
type: PostgreSQL then takes them for what the statement expects, a uuid[] or a json[], where psycopg2's own ARRAY['…'] is a text[].
"""

import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from windlass.errors import RequestError, Unavailable
from windlass.store.postgres import ours

SAVEPOINT: Final = "windlass_enqueue"
_PARAMETER: Final = re.compile(r"\$(\d+)")
_UUID_OID: Final = 2950
_UUIDS_OID: Final = 2951


class Psycopg2Connection:
    """A psycopg2 connection in use. Its calls block: they are made where the caller waits anyway."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, sql: str, *args: Any) -> list[dict[str, Any]]:
        values = {f"p{n}": _sendable(value) for n, value in enumerate(args, start=1)}
        text = _PARAMETER.sub(r"%(p\1)s", sql.replace("%", "%%"))
        # A plain cursor, whatever the caller's connection makes of its own.
        plain = sys.modules["psycopg2"].extensions.cursor
        with _translated(), self._connection.cursor(cursor_factory=plain) as cursor:
            cursor.execute(text, values)
            if cursor.description is None:
                return []
            columns = [(column.name, column.type_code) for column in cursor.description]
            return [
                {name: _received(value, oid) for (name, oid), value in zip(columns, row, strict=True)}
                for row in cursor.fetchall()
            ]

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A savepoint."""
        await self.fetch(f"savepoint {SAVEPOINT}")
        try:
            yield
        except BaseException:
            await self.fetch(f"rollback to savepoint {SAVEPOINT}")
            await self.fetch(f"release savepoint {SAVEPOINT}")
            raise
        await self.fetch(f"release savepoint {SAVEPOINT}")


def adapt_psycopg2(connection: Any) -> Psycopg2Connection:
    """Refuses a connection without a transaction: what the caller rolls back would stay."""
    if not hasattr(connection, "get_transaction_status"):
        raise RequestError("connection: must be the psycopg2 connection itself, such as cursor.connection")
    if connection.async_:
        raise RequestError("connection: psycopg2's asynchronous connections are not supported; psycopg (3) has them")
    idle = connection.get_transaction_status() == 0  # psycopg2.extensions.TRANSACTION_STATUS_IDLE
    if idle and connection.autocommit:
        raise RequestError(
            "connection: is in no transaction, so nothing would be all or none; set connection.autocommit = False"
        )
    return Psycopg2Connection(connection)


def _sendable(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return "{" + ",".join(_element(each) for each in value) + "}"
    return str(value) if isinstance(value, UUID) else value


def _element(value: Any) -> str:
    """One element of an array literal; everything but null in quotes."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        text = f"\\x{value.hex()}"
    elif isinstance(value, datetime):
        text = value.isoformat()
    elif isinstance(value, float):
        text = repr(value)
    else:
        text = str(value)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _received(value: Any, oid: int) -> Any:
    """As asyncpg gives it. psycopg2 knows uuids only where a caller has registered them."""
    if isinstance(value, memoryview):
        return bytes(value)
    if oid == _UUID_OID and isinstance(value, str):
        return UUID(value)
    if oid == _UUIDS_OID and isinstance(value, str):
        return [UUID(each) for each in value.strip("{}").split(",") if each]
    return value


@contextmanager
def _translated() -> Iterator[None]:
    psycopg2 = sys.modules["psycopg2"]
    try:
        yield
    except psycopg2.Error as error:
        if known := ours(error.pgcode or "", str(error)):
            raise known from error
        if isinstance(error, (psycopg2.OperationalError, psycopg2.InterfaceError)) and not error.pgcode:
            raise Unavailable(f"PostgreSQL cannot be reached: {error}") from error
        raise

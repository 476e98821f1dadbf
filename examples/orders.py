"""Once only, by the database: an order and its job are stored together, and paid and finished together.

The job is enqueued in the transaction that inserts the order: no order without a job, no job without an order. The
handler finishes in the transaction that marks the order as paid: if its worker lost the lease meanwhile, both are undone.
"""

import asyncio
import os

import asyncpg

from windlass import App, AsyncContext, Cancel

app = App("orders")
URL = os.environ.get("WINDLASS_DATABASE_URL") or os.environ.get("DATABASE_URL")


@app.job(max_attempts=10)
async def charge(ctx: AsyncContext, order_id: int) -> dict[str, int]:
    async with ctx.transaction() as connection:
        cents = await connection.fetchval(
            "update example_order set paid_at = now() where id = $1 and paid_at is null returning cents", order_id
        )
        if cents is None:
            raise Cancel(f"order {order_id} is gone, or paid already")
        return ctx.finish({"charged": cents})


async def place(connection: "asyncpg.Connection[asyncpg.Record]", cents: int) -> int:
    """The caller's own transaction; psycopg and SQLAlchemy connections and sessions are taken in the same way."""
    async with connection.transaction():
        order_id: int = await connection.fetchval("insert into example_order (cents) values ($1) returning id", cents)
        handle = await charge.options(connection=connection).aenqueue(order_id)
    print(f"order {order_id} is job {handle.id}:", await handle.aresult(timeout_s=60))
    return order_id


async def main() -> None:
    connection = await asyncpg.connect(URL)
    await connection.execute(
        "create table if not exists example_order (id serial primary key, cents integer not null, paid_at timestamptz)"
    )
    async with app:
        order_id = await place(connection, 1_999)
    print("paid at", await connection.fetchval("select paid_at from example_order where id = $1", order_id))
    await connection.close()


if __name__ == "__main__":
    asyncio.run(main())

"""A program to be tested with the kit."""

import asyncio
import threading
from dataclasses import dataclass
from datetime import date
from typing import Any

from windlass import App, AsyncContext, Context, Retry, Snooze

app = App("shop")
ran: list[tuple[Any, ...]] = []
let_go = threading.Event()


@dataclass
class Receipt:
    number: int
    day: date


@app.job(queue="mail")
async def send(to: str, copies: int = 1, day: date | None = None) -> Receipt:
    ran.append(("send", to))
    return Receipt(copies, day or date(2026, 2, 3))


@app.job
def resize(ctx: Context, path: str) -> int:
    ctx.log.info("resizing", path=path)
    ran.append(("resize", path))
    send.enqueue(path)
    return ctx.attempt


@app.job(max_attempts=3)
def flaky(failures: int) -> str:
    ran.append(("flaky",))
    if len(ran) <= failures:
        raise ValueError(f"no {len(ran)}")
    return "at last"


@app.job
async def poll(ctx: AsyncContext, times: int, every_s: float = 3600) -> int:
    ran.append(("poll", every_s))
    if ctx.attempt < times:
        raise Snooze(every_s)
    return ctx.attempt


@app.job
async def again(n: int) -> None:
    await again.options(delay_s=60).aenqueue(n + 1)


@app.job(isolation="process", threads=4)
def isolated(ctx: Context) -> int:
    return ctx.threads


@app.job(timeout=0.2, max_attempts=1)
async def slow() -> None:
    await asyncio.Event().wait()


@app.job(timeout=0.1)
def stuck() -> None:
    let_go.wait()  # hears nothing of exceptions that are thrown into its thread


@app.job
async def settles(ctx: AsyncContext) -> int:
    async with ctx.transaction() as connection:
        return ctx.finish(int(await connection.fetchval("select 41 + 1")))


@app.job
async def charge(ctx: AsyncContext, cents: int) -> str:
    if ctx.cancelled:
        raise Retry(5)
    ctx.progress(0.5, "asked")
    return await ctx.once("charge", _charge, cents)


async def _charge(cents: int) -> str:
    ran.append(("charge", cents))
    return f"charge-{cents}"

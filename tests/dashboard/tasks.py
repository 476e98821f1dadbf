"""Job types for the tests of the dashboard, beside the built-in ones."""

import asyncio

from windlass import App, AsyncContext, Context

app = App("dashboard")


@app.job(max_attempts=1)
async def run_until_cancelled(ctx: AsyncContext) -> None:
    """Log a line, say how far it is, and wait for ever."""
    ctx.log.info("waiting to be cancelled")
    ctx.progress(0.5, "half of it")
    await asyncio.Event().wait()


@app.job(max_attempts=1)
def repeat_text(ctx: Context, text: str, fail: bool = False) -> dict[str, str]:
    """Log the text, then give it back, or fail with it."""
    ctx.log.info(text)
    if fail:
        raise ValueError(text)
    return {"text": text}

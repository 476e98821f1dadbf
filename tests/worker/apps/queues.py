"""Types that name queues of their own."""

from windlass import App, Context

app = App("queues")


@app.job(queue="mail")
def send_letter(ctx: Context) -> str:
    return ctx.queue


@app.job(queue="reports")
def write_report(ctx: Context) -> str:
    return ctx.queue


@app.job(queue="reports")
def print_report(ctx: Context) -> str:
    return ctx.queue

"""The same app after it: each handler has one more parameter, with a default."""

from windlass import App

app = App("shop")


@app.job
async def send(to: str, note: str = "none") -> str:
    return f"v2: {to}, {note}"


@app.job(isolation="process")
def send_apart(to: str, note: str = "none") -> str:
    return f"v2: {to}, {note}"

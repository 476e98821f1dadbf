"""An app before a deploy."""

from windlass import App

app = App("shop")


@app.job
async def send(to: str) -> str:
    return f"v1: {to}"


@app.job(isolation="process")
def send_apart(to: str) -> str:
    return f"v1: {to}"

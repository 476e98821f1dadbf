"""An app made for another database than its worker's: one that is not there."""

import asyncio

from windlass import App
from windlass.config import StoreConfig

app = App(config=StoreConfig(database_url="postgresql://nobody@127.0.0.1:1/none"))


@app.job
def leaf() -> None: ...


@app.job
def threaded() -> str:
    return str(leaf.enqueue().id)


@app.job
async def on_the_loop() -> str:
    return str((await leaf.aenqueue()).id)


@app.job
def on_a_loop_of_its_own() -> str:
    async def ask() -> str:
        return str((await leaf.aenqueue()).id)

    return asyncio.run(ask())


@app.job(isolation="process")
def isolated() -> str:
    return str(leaf.enqueue().id)

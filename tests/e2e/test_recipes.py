"""The programs of docs/recipes, as they stand there."""

import asyncio
import importlib
import re
import signal
import subprocess
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from tests.e2e.household import CLEAN, ROOT, WINDLASS
from tests.eventually import aeventually


async def test_the_shop_stores_an_order_and_its_job_together(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fastapi", reason="FastAPI is not installed: the recipe is not run")
    page = (ROOT / "docs" / "recipes" / "fastapi.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "shop.py").write_text(program, encoding="utf-8")
    monkeypatch.setenv("WINDLASS_DATABASE_URL", url)
    monkeypatch.syspath_prepend(tmp_path)
    shop = importlib.import_module("shop")
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(  # noqa: ASYNC220
            [WINDLASS, "worker", "--app", "shop:jobs"],
            env={**CLEAN, "WINDLASS_DATABASE_URL": url}, cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=log,
        )  # fmt: skip
    try:
        transport = httpx2.ASGITransport(app=shop.api)
        async with shop.lifespan(shop.api), httpx2.AsyncClient(transport=transport, base_url="http://shop") as client:
            placed = (await client.post("/orders?email=ann@example.com")).json()

            async def done() -> bool:
                found = (await client.get(f"/jobs/{placed['job']}")).json()
                return bool(found == {"status": "completed", "result": "confirmed to ann@example.com"})

            await aeventually(done, timeout_s=60)
            assert (await client.get(f"/jobs/{uuid4()}")).status_code == 404
    finally:
        worker.send_signal(signal.SIGTERM)
        await asyncio.to_thread(worker.wait, 60)

"""The built-in types in real worker processes, with their settings from the environment."""

import json
from typing import Any
from uuid import UUID

import pytest

from tests.jobs.post_office import post_office
from tests.jobs.receiver import receiving
from tests.jobs.test_images import picture, text
from tests.worker.supervised import supervised
from windlass.config import StoreConfig
from windlass.model import Status


async def test_a_worker_process_serves_them_all_with_the_settings_of_its_environment(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with post_office() as office, receiving() as receiver:
        monkeypatch.setenv("WINDLASS_SMTP_HOST", "127.0.0.1")
        monkeypatch.setenv("WINDLASS_SMTP_PORT", str(office.port))
        monkeypatch.setenv("WINDLASS_SMTP_SECURITY", "none")
        monkeypatch.setenv("WINDLASS_MAIL_FROM", "Shop <shop@example.com>")
        monkeypatch.setenv("WINDLASS_EGRESS_ALLOW", "127.0.0.1/32")
        monkeypatch.setenv("WINDLASS_EGRESS_PORTS", str(receiver.port))
        jobs: dict[str, dict[str, Any]] = {
            "add_numbers": {"a": 2, "b": 3},
            "reverse_string": {"text": "abc"},
            "large_array_sum": {"count": 1000},
            "resize_image": {"source": text(picture()), "width": 50},
            "email": {"to": "ann@example.org", "subject": "Hello"},
            "webhook": {"url": receiver.url, "body": {"a": 1}},
            "cpu_intensive": {"duration_s": 0.01},
            "io_intensive": {"duration_s": 0.01},
            "mixed_workload": {"duration_s": 0.01},
            "network_task": {"duration_s": 0.01},
            "default": {"duration_s": 0.01},
        }
        async with supervised(config, app="windlass.jobs:app") as one:
            ids: dict[str, UUID] = {name: await one.enqueue(name, **payload) for name, payload in jobs.items()}
            done = {name: await one.until(job_id, Status.COMPLETED, Status.FAILED) for name, job_id in ids.items()}
        assert {name: job.error for name, job in done.items() if job.status is not Status.COMPLETED} == {}
        assert json.loads(done["large_array_sum"].result or "")["sum"] == 499_500
        assert (len(office.taken), len(receiver.heard)) == (1, 1)
        assert office.taken[0].sender == "shop@example.com"

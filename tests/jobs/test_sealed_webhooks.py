"""The headers of a webhook are in the database only as what nobody can read, and reach their receiver as they were."""

from dataclasses import replace
from typing import Any

import pytest

from tests.jobs.receiver import receiving
from tests.worker.supervised import supervised
from windlass.config import StoreConfig
from windlass.errors import IdTaken, InvalidPayload, KeyReused
from windlass.model import NewJob, Status
from windlass.store.ids import Ids
from windlass.store.store import open_store

KEY, NEW = "a-key-that-only-this-test-uses-0001", "a-key-that-only-this-test-uses-0002"
SECRET = "Bearer s3cr3t-v4lue"
_STORED = "select payload::text from windlass.job where id = $1"


def hook(url: str, **options: Any) -> NewJob:
    return NewJob("webhook", {"url": url, "headers": {"Authorization": SECRET, "Content-Type": "a/b"}}, **options)


async def test_headers_are_encrypted_at_rest_and_arrive_as_they_were(
    config: StoreConfig, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with receiving() as receiver:
        monkeypatch.setenv("WINDLASS_EGRESS_ALLOW", "127.0.0.1/32")
        monkeypatch.setenv("WINDLASS_EGRESS_PORTS", str(receiver.port))
        with_key = replace(config, payload_keys=KEY)
        async with open_store(config) as plain, open_store(with_key) as sealing:
            (old,) = await plain.intake.enqueue([hook(receiver.url)])
            many = await sealing.intake.enqueue([hook(receiver.url), NewJob("add_numbers", {"a": 1, "b": 2})])
            (single,) = await sealing.intake.enqueue([hook(receiver.url)])
            for job in (single, many[0]):
                stored = await sql.fetchval(_STORED, job.id)
                assert "s3cr3t" not in stored
                assert '"Authorization":"sealed:v1:' in stored.replace(" ", "")
                assert '"a/b"' in stored
            rotated = replace(config, payload_keys=f"{NEW} {KEY}")
            async with supervised(rotated, app="windlass.jobs:app") as one:
                for job in (old, single, many[0]):
                    await one.until(job.id, Status.COMPLETED)
        assert [heard.headers["authorization"] for heard in receiver.heard] == [SECRET] * 3


async def test_a_worker_without_the_key_says_so_and_sends_nothing(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with receiving() as receiver:
        monkeypatch.setenv("WINDLASS_EGRESS_ALLOW", "127.0.0.1/32")
        monkeypatch.setenv("WINDLASS_EGRESS_PORTS", str(receiver.port))
        async with open_store(replace(config, payload_keys=KEY)) as store:
            (job,) = await store.intake.enqueue([hook(receiver.url, max_attempts=1)])
        async with supervised(config, app="windlass.jobs:app") as one:
            failed = await one.until(job.id, Status.FAILED)
        assert failed.error is not None
        assert "WINDLASS_PAYLOAD_KEYS" in failed.error.message
        assert "s3cr3t" not in failed.error.message
        assert not receiver.heard


async def test_a_repeated_submission_is_known_by_what_was_submitted(config: StoreConfig) -> None:
    async with open_store(replace(config, payload_keys=KEY)) as store:
        job_id = Ids(store.postgres.now_ms).make(1)[0]
        for options in ({"idempotency_key": "k"}, {"id": job_id}):
            first, again = [(await store.intake.enqueue([hook("https://a.example/", **options)]))[0] for _ in range(2)]
            assert (first.id, again.duplicate) == (again.id, True)
            with pytest.raises((IdTaken, KeyReused)):
                await store.intake.enqueue([hook("https://b.example/", **options)])


async def test_what_looks_encrypted_is_refused_where_nothing_encrypts(
    config: StoreConfig, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_store(config) as store:
        with pytest.raises(InvalidPayload, match=r"payload\.headers"):
            await store.intake.enqueue([NewJob("webhook", {"url": "https://a", "headers": {"A": "sealed:v1:x:y"}})])
        await store.intake.enqueue([hook("https://a.example/")] * 2)
    assert caplog.text.count("WINDLASS_PAYLOAD_KEYS is not set") <= 1

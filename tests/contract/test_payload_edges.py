"""What goes in comes out exactly, through every table, or is refused with nothing stored; results never stop a job."""

import json
import math
from typing import Any

import asyncpg
import pytest

from tests.factory import Rig
from windlass.errors import InvalidPayload
from windlass.lifecycle import Completed, Failed, settle
from windlass.model import Error, NewJob, Status
from windlass.payload import decode
from windlass.store.store import Store

Sql = asyncpg.Connection

MEBIBYTE = 1_048_576


def nested(depth: int, kind: type) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind is list else {"a": value}
    return value


GOOD: dict[str, Any] = {
    "null": None,
    "empty object": {},
    "empty list": [],
    "empty text": "",
    "zero": 0,
    "false": False,
    "minus zero": -0.0,
    "a text": "not an object",
    "2^53 + 1": 2**53 + 1,
    "2^63": 2**63,
    "-2^63 - 1": -(2**63) - 1,
    "2^200": 2**200,
    "longest number": 10**4299,
    "tiny": 5e-324,
    "huge": 1.7976931348623157e308,
    "0.1 + 0.2": 0.1 + 0.2,
    "whole float": 1.0,
    "unicode": {"schlüssel 🔑": "värde\u200d👩🏽‍🚀", "\u2028": "\u2029\x7f\x01\t\r\n", "ß": "\ufeff\uffff"},
    "combining": ["é", "é"],
    "order of keys": {"z": 1, "a": 2, "m": {"y": 1, "b": 2}, "": 0},
    "keys that look special": {"__proto__": 1, "null": None, "0": [], "a.b": {}, "$ref": "#"},
    "backslash u0000 as text": {"a": "\\u0000 as text with a backslash", "\\u0000": "\\\\u0000", "b": "\\\\\\u0000"},
    "surrogate as text": ["\\ud800", '"\\"', "'; drop table windlass.job; --"],
    "pair": "\U0001f600\U0010ffff",
    "depth 100": nested(100, list),
    "depth 100 of objects": nested(100, dict),
    "1 MiB exactly": "x" * (MEBIBYTE - 2),
    "1 MiB exactly of wide characters": "ü" * (MEBIBYTE // 2 - 1),
}

CYCLE: list[Any] = []
CYCLE.append(CYCLE)

BAD: dict[str, Any] = {
    "NUL": "a\0b",
    "NUL deep": {"a": [{"b": "\0"}]},
    "NUL in a key": {"a\0": 1},
    "NUL behind a backslash": "\\\0",
    "lone surrogate": "\ud800",
    "lone low surrogate": {"a": "x\udfff"},
    "lone surrogate in a key": {"\udc00": 1},
    "NaN": math.nan,
    "infinity": [math.inf],
    "-infinity": {"a": -math.inf},
    "depth 101": nested(101, list),
    "depth 1,000": nested(1_000, list),
    "depth 1,000 of objects": nested(1_000, dict),
    "depth 100,000": nested(100_000, list),
    "cycle": CYCLE,
    "above 1 MiB": "x" * (MEBIBYTE - 1),
    "above 1 MiB in bytes, not in characters": "ü" * (MEBIBYTE // 2),
    "a number too long": 10**4300,
    "a number as a key": {1: 2},
    "bytes": b"x",
    "set": {1, 2},
    "object": object(),
    "json text subclass": type("Text", (str,), {})("x"),
}


def same(a: Any, b: Any) -> bool:
    """Equal in value, kind, order of keys and sign of zero."""
    return type(a) is type(b) and json.dumps(a) == json.dumps(b) and repr(a) == repr(b)


async def test_every_payload_that_is_taken_comes_back_exactly(rig: Rig, store: Store) -> None:
    answers = await store.intake.enqueue([NewJob("echo", value) for value in GOOD.values()])
    worker = await rig.worker(threads=len(GOOD))
    leases = {lease.job_id: lease for lease in await worker.claim()}
    assert len(leases) == len(GOOD)
    for answer, (case, value) in zip(answers, GOOD.items(), strict=True):
        assert same(decode(leases[answer.id].payload), value), case
        shown = (await store.views.job(answer.id)).payload
        assert shown is not None
        assert same(decode(shown), value), case


async def test_a_tuple_comes_back_as_a_list(rig: Rig, store: Store) -> None:
    await rig.enqueue(payload={"a": (1, (2, ()))})
    (lease,) = await (await rig.worker()).claim()
    assert decode(lease.payload) == {"a": [1, [2, []]]}


async def test_every_other_payload_is_refused_by_name_and_nothing_is_stored(store: Store, sql: Sql) -> None:
    for case, value in BAD.items():
        with pytest.raises(InvalidPayload) as caught:
            await store.intake.enqueue([NewJob("echo", "good"), NewJob("echo", value)])
        assert caught.value.field.startswith("payload"), case
        assert len(str(caught.value)) < 500, case
        str(caught.value).encode()
    assert await sql.fetchval("select count(*) from windlass.job") == 0
    assert await store.views.counts() == {}


async def test_every_payload_comes_back_through_a_key_and_its_repetition(store: Store) -> None:
    small = {case: value for case, value in GOOD.items() if "MiB" not in case}
    for _ in range(2):
        answers = await store.intake.enqueue([NewJob("echo", v, idempotency_key=case) for case, v in small.items()])
    assert all(answer.duplicate for answer in answers)


async def test_every_result_that_can_be_stored_comes_back_exactly(rig: Rig, store: Store) -> None:
    await rig.enqueue(len(GOOD))
    worker = await rig.worker(threads=len(GOOD))
    leases = await worker.claim()
    receipt = await worker.claims.settle(
        [settle(lease, Completed(value), jitter=0) for lease, value in zip(leases, GOOD.values(), strict=True)]
    )
    assert len(receipt.moved) == len(GOOD)
    for lease, (case, value) in zip(leases, GOOD.items(), strict=True):
        job = await store.views.job(lease.job_id)
        assert (job.status, job.error) == (Status.COMPLETED, None)
        assert same(None if job.result is None else decode(job.result), value), case


async def test_a_result_that_cannot_be_stored_finishes_its_job_and_says_why(rig: Rig, store: Store) -> None:
    await rig.enqueue(len(BAD))
    worker = await rig.worker(threads=len(BAD))
    leases = await worker.claim()
    await worker.claims.settle(
        [settle(lease, Completed(value), jitter=0) for lease, value in zip(leases, BAD.values(), strict=True)]
    )
    for lease, case in zip(leases, BAD, strict=True):
        job = await store.views.job(lease.job_id)
        assert (job.status, job.result) == (Status.COMPLETED, None), case
        assert job.error, case
        assert job.error.type == "ResultNotStored", case
        assert job.error.message.startswith("result"), case


async def test_any_error_and_log_can_be_kept(rig: Rig, store: Store) -> None:
    texts = ["\0", "\ud800", "x" * 100_000, "\\u0000", "", "{}", "🔑\n"]
    await rig.enqueue(len(texts))
    worker = await rig.worker(threads=len(texts))
    leases = await worker.claim()
    await worker.claims.settle(
        [
            settle(lease, Failed(Error(text, text, text), final=True), jitter=0, log=text)
            for lease, text in zip(leases, texts, strict=True)
        ]
    )
    for lease, text in zip(leases, texts, strict=True):
        job = await store.views.job(lease.job_id)
        assert job.status is Status.FAILED
        assert job.error is not None
        clean = text.replace("\0", "\ufffd").replace("\ud800", "\ufffd")
        assert job.error.message == clean or (len(text) > 8_192 and len(job.error.message) == 8_192)

"""The channel between a supervisor and a worker: whole messages, in order, and an end that is noticed."""

import json
import socket
from dataclasses import replace
from uuid import uuid4

import pytest

from windlass.config import Config, LeaseConfig, RedisConfig, StoreConfig, WorkerConfig
from windlass.worker.control import Control, config_heard, config_said


async def pair() -> tuple[Control, Control]:
    ours, theirs = socket.socketpair()
    return await Control.open(ours), await Control.open(theirs)


async def test_messages_arrive_whole_and_in_order() -> None:
    supervisor, worker = await pair()
    job_id = uuid4()
    supervisor.say("start", config={"payload": "x" * 1_000_000})
    supervisor.say("cancel", job_id=job_id)
    start = await worker.hear()
    assert start is not None
    assert len(start["config"]["payload"]) == 1_000_000
    assert await worker.hear() == {"say": "cancel", "job_id": str(job_id)}
    supervisor.close()
    worker.close()


async def test_the_end_of_the_other_is_heard_after_what_it_said() -> None:
    supervisor, worker = await pair()
    worker.say("bye")
    worker.close()
    assert await supervisor.hear() == {"say": "bye"}
    assert await supervisor.hear() is None
    supervisor.close()
    assert not supervisor.say("go")


@pytest.mark.parametrize("nonsense", [b"hello\n", b"[1]\n", b'{"no": "say"}\n', b'{"say": "torn'])
async def test_nonsense_counts_as_the_end(nonsense: bytes) -> None:
    ours, theirs = socket.socketpair()
    supervisor = await Control.open(ours)
    theirs.sendall(nonsense)
    theirs.close()
    assert await supervisor.hear() is None
    supervisor.close()


async def test_what_is_not_read_does_not_pile_up_for_ever() -> None:
    supervisor, worker = await pair()
    said = 0
    while supervisor.say("cancel", padding="x" * 100_000):
        said += 1
        assert said < 1_000
    worker.close()
    supervisor.close()


def test_a_configuration_travels_unchanged() -> None:
    config = Config(
        store=StoreConfig(database_url="postgresql://u:secret@/d"),
        redis=RedisConfig(redis_url="redis://:secret@r"),
        lease=LeaseConfig(lease_ttl_s=6),
        worker=replace(WorkerConfig(), queues="a,b=3"),
    )
    assert config_heard(json.loads(json.dumps(config_said(config)))) == config

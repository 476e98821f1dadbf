"""The channel between a supervisor and one of its processes: one JSON object a line, over a pair of sockets.

Both ends use the same class. What is said (`say`), by the supervisor:
  start    worker_id, supervisor_id, app, name, threads, queues, config, reload: who you are; whether to tell of source files
  go       you are registered: claim
  cancel   job_id, token: stop that attempt
  drain    claim no more, give back what has not begun, finish what runs, say bye and exit
  release  give back what runs as well, within a second, and exit
by the worker:
  hello    types, digests: the app is imported, and declares these; queues: what it serves; unserved: by queue, the types
           whose queue it does not serve; sources: its source files, if it was told to say
  refuse   problem: the app cannot be imported; one line
  stuck    threads: so many are held by handlers that cannot be stopped; it should make way for another
  spent    only stuck jobs are left: kill and replace me
  leave    problem: it ends itself on purpose; its jobs are not to blame; drains: it finishes them first
  bye      everything is settled or given back
The end of the stream means that the other is gone: a worker exits at once. One that is broken may not be able to say anything,
and exits with EXIT_FAULT.
"""

import asyncio
import json
import logging
import socket
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final
from uuid import UUID

from windlass.config import Config, LeaseConfig, PlacementConfig, RedisConfig, StoreConfig, WorkerConfig

# A part of the worker has ended or failed that never should: by a fault of Windlass, or by what a handler did to it.
EXIT_FAULT: Final = 70
# Neither side may make the other hold more than this: a line with thousands of types fits many times over.
_LINE_BYTES_MAX: Final = 4 * 1_048_576
_log: Final = logging.getLogger(__name__)

Message = dict[str, Any]


class Control:
    """One end of the channel. Open it with `await Control.open(socket)`, which takes the socket over."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, end: socket.socket) -> "Control":
        end.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=end, limit=_LINE_BYTES_MAX))

    def say(self, say: str, **fields: Any) -> bool:
        """Send at once, without waiting for the other to read. False: it is gone, or has not read for too long."""
        transport = self._writer.transport
        if transport.is_closing() or transport.get_write_buffer_size() > _LINE_BYTES_MAX:
            return False
        self._writer.write(encoded({"say": say, **fields}))
        return True

    async def hear(self) -> Message | None:
        """The next message; None once the other is gone or talks nonsense."""
        try:
            line = await self._reader.readline()
            return decoded(line) if line.endswith(b"\n") else None
        except OSError:
            return None
        except ValueError as error:  # too long a line, or no JSON
            _log.error("the control channel carries nonsense: %s", error)
            return None

    def close(self) -> None:
        self._writer.close()


def encoded(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, default=_plain).encode() + b"\n"


def decoded(line: bytes) -> Message:
    message = json.loads(line)
    if not isinstance(message, dict) or not isinstance(message.get("say"), str):
        raise ValueError(f"{line[:80]!r} says nothing")  # noqa: TRY004 - a fault of the other side
    return message


def config_said(config: Config) -> Message:
    """A configuration as it travels: its secrets in no argument and no environment that others can read."""
    return {
        "store": asdict(config.store),
        "redis": asdict(config.redis),
        "lease": asdict(config.lease),
        "placement": asdict(config.placement),
        "worker": asdict(config.worker),
    }


def config_heard(said: Mapping[str, Mapping[str, Any]]) -> Config:
    return Config(
        store=StoreConfig(**said["store"]),
        redis=RedisConfig(**said.get("redis", {})),  # a supervisor of before does not say
        lease=LeaseConfig(**said["lease"]),
        placement=PlacementConfig(**said["placement"]),
        worker=WorkerConfig(**said["worker"]),
    )


def _plain(value: object) -> str:
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be said")

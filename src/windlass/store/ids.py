"""UUIDv7 ids: 48 bits of milliseconds, then bits that only grow within a millisecond.

Ids of one process sort in the order they were made, so a batch keeps its order wherever it is listed by id.
"""

import os
import threading
from collections.abc import Callable
from typing import Final
from uuid import UUID

# A uuid.UUID made from bytes in a seventh of the time.
from asyncpg.pgproto.pgproto import UUID as FastUUID  # noqa: N811

_VERSION: Final = 0x7 << 76
_VARIANT: Final = 0b10 << 62
_LOW_62: Final = (1 << 62) - 1


class Ids:
    """Makes ids from a clock in milliseconds: the database's, so that an id says when the database had it."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._last_ms = 0
        self._tail = 0
        self._lock = threading.Lock()  # callers' own connections are used from callers' own threads

    def make(self, count: int) -> list[UUID]:
        with self._lock:
            return self._make(count)

    def _make(self, count: int) -> list[UUID]:
        now_ms = self._now_ms()
        # Never back, so that ids sort as they were made; unless the clock was wrong by more than a minute.
        if now_ms > self._last_ms or now_ms < self._last_ms - 60_000:
            self._last_ms = now_ms
            # The top bits start low, so that adding to the tail never carries into the time.
            self._tail = int.from_bytes(os.urandom(9), "big")
        head = self._last_ms << 80 | _VERSION | _VARIANT
        steps = os.urandom(4 * count)
        tail = self._tail
        made: list[UUID] = []
        for n in range(0, 4 * count, 4):
            tail += 1 + int.from_bytes(steps[n : n + 4], "big")
            made.append(FastUUID((head | tail >> 62 << 64 | tail & _LOW_62).to_bytes(16, "big")))
        self._tail = tail
        return made


def unix_ms(value: UUID) -> int:
    """When a UUIDv7 says it was made."""
    return value.int >> 80


def least_at(unix_s: float) -> UUID:
    """The least id of a moment: a partition's bound."""
    return UUID(int=int(unix_s * 1000) << 80)

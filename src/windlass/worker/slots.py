"""What a worker is doing at this moment, in memory that it shares with its supervisor.

The worker writes what each of its threads has begun; the supervisor reads it while the worker lives (is a deadline past?)
and after it has died (who was at work?). Memory rather than messages: it is there after a SIGKILL, and it can be read
while a handler holds the interpreter. The other way the supervisor writes until when the lease holds.

A slot is free again when its handler has ended, and the end is written to the database a little later. So the last starts are kept
besides: what is among them and in no slot had ended when the worker died, and what is in neither had not begun.

One writer for each field. The state of a slot is written last when it fills and first when it empties, so that a slot
that says it is in use holds a whole entry. Nothing read here is trusted beyond that: user code shares the process.
"""

import fcntl
import mmap
import os
import struct
import tempfile
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from windlass.worker.groups import Head

_DOUBLES: Final = 3  # pulse, lease, claimed
_LOST: Final = 24
_HEADER: Final = 64
_ENTRY: Final = struct.Struct("@16si4xddqi4x")  # job, attempt, (state, padding), began, deadline, child
_STATE: Final = 20
_CHILD: Final = struct.Struct("@qi")  # when it started, pid
_CHILD_AT: Final = 40
_NUMBER: Final = struct.Struct("@I")
_READS_MAX: Final = 5
_START: Final = struct.Struct("@16si4x")  # job, attempt
_STARTS: Final = 4_096  # more than ends that may wait to be written (claimer.py)


class State(IntEnum):
    """What a slot holds."""

    FREE = 0
    BEGUN = 1
    ISOLATED = 2  # runs in a child: never a suspect when the worker dies
    STUCK_BY_TIMEOUT = 3
    STUCK_BY_CANCEL = 4


STUCK: Final = frozenset({State.STUCK_BY_TIMEOUT, State.STUCK_BY_CANCEL})


class Begun(NamedTuple):
    """One slot in use."""

    slot: int
    job_id: UUID
    attempt: int
    began_s: float
    deadline_s: float
    state: State


class Slots:
    """The shared memory of one worker. `fd` is inherited by the worker, which attaches to it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, os.fstat(fd).st_size)
        # A cast view stores eight aligned bytes at once: the other process never reads half a number.
        self._times = memoryview(self._map)[: _DOUBLES * 8].cast("d")
        self._starts_at = len(self._map) - _STARTS * _START.size
        self._next_start = self._starts_at
        self.count = (self._starts_at - _HEADER) // _ENTRY.size

    @classmethod
    def create(cls, threads: int) -> "Slots":
        size = _HEADER + threads * _ENTRY.size + _STARTS * _START.size
        if not hasattr(os, "memfd_create"):
            with tempfile.TemporaryFile() as file:
                file.truncate(size)
                return cls(os.dup(file.fileno()))
        fd = os.memfd_create("windlass-slots", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        # Were it cut short by anyone, the next look at it would end the supervisor with SIGBUS.
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return cls(fd)

    def close(self) -> None:
        self._times.release()
        self._map.close()
        os.close(self.fd)

    # The worker's side: hot, once for each job. ---------------------------------------------------------------------

    def begin(
        self, n: int, job_id: UUID, attempt: int, began_s: float, deadline_s: float, state: State = State.BEGUN
    ) -> None:
        at, job = _HEADER + n * _ENTRY.size, job_id.bytes
        start = self._next_start
        _START.pack_into(self._map, start, job, attempt)
        start += _START.size
        self._next_start = start if start < len(self._map) else self._starts_at
        _ENTRY.pack_into(self._map, at, job, attempt, began_s, deadline_s, 0, 0)
        self._map[at + _STATE] = state

    def end(self, n: int) -> None:
        self._map[_HEADER + n * _ENTRY.size + _STATE] = 0

    def mark(self, n: int, state: State) -> None:
        self._map[_HEADER + n * _ENTRY.size + _STATE] = state

    def set_child(self, n: int, child: Head) -> None:
        """The job in this slot is about to be given to that process: should we die, its group has to end with us."""
        _CHILD.pack_into(self._map, _HEADER + n * _ENTRY.size + _CHILD_AT, child.started, child.pid)

    # The supervisor's side. -----------------------------------------------------------------------------------------

    def begun(self) -> list[Begun]:
        """The slots in use."""
        return [entry for n in range(self.count) if (entry := self._read(n)) is not None]

    def _read(self, n: int) -> Begun | None:
        at = _HEADER + n * _ENTRY.size
        if not self._map[at + _STATE]:
            return None
        raw = self._map[at : at + _ENTRY.size]
        for _ in range(_READS_MAX):
            again = self._map[at : at + _ENTRY.size]
            if raw == again:
                break
            raw = again  # it changed meanwhile: perhaps the id of one job with the deadline of the next
        else:
            return None  # changes faster than it can be read: nothing in it lasts
        try:
            state = State(raw[_STATE])
        except ValueError:
            state = State.BEGUN  # overwritten by user code: what ran there is at least a suspect
        if state is State.FREE:
            return None
        job, attempt, began_s, deadline_s, _, _ = _ENTRY.unpack(raw)
        return Begun(n, UUID(bytes=job), attempt, began_s, deadline_s, state)

    def started(self) -> frozenset[tuple[UUID, int]]:
        """The last jobs that a worker which has ended had begun, with their attempts, whether or not they had ended."""
        entries = _START.iter_unpack(memoryview(self._map)[self._starts_at :])
        return frozenset((UUID(bytes=job), attempt) for job, attempt in entries if attempt)

    def children(self) -> list[Head]:
        """The processes that jobs of a worker that has ended ran in, besides its own."""
        used = (_HEADER + n * _ENTRY.size for n in range(self.count))
        found = [_CHILD.unpack_from(self._map, at + _CHILD_AT) for at in used if self._map[at + _STATE]]
        return [Head(pid, started) for started, pid in found if pid]

    # The header. ----------------------------------------------------------------------------------------------------

    @property
    def pulse_s(self) -> float:
        """When the worker's loop last ticked; 0 before its first."""
        return self._times[0]

    @pulse_s.setter
    def pulse_s(self, moment_s: float) -> None:
        self._times[0] = moment_s

    @property
    def lease_until_s(self) -> float:
        """Until when the worker's jobs are its own; 0 before it was registered. Written by the supervisor."""
        return self._times[1]

    @lease_until_s.setter
    def lease_until_s(self, moment_s: float) -> None:
        self._times[1] = moment_s

    @property
    def claimed_s(self) -> float:
        """When a claim last got an answer, even an empty one."""
        return self._times[2]

    @claimed_s.setter
    def claimed_s(self, moment_s: float) -> None:
        self._times[2] = moment_s

    @property
    def lost_threads(self) -> int:
        """Threads held by handlers that cannot be stopped."""
        return int(_NUMBER.unpack_from(self._map, _LOST)[0])

    @lost_threads.setter
    def lost_threads(self, count: int) -> None:
        _NUMBER.pack_into(self._map, _LOST, count)

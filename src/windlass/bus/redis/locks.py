"""A lock in Redis on each execution, as defence in depth: PostgreSQL decides who runs a job, and this shows where it may be wrong.

A lock that is held already means that an earlier execution of the job was not seen to end: its worker was killed, or cannot
reach Redis, or, against everything that PostgreSQL knows, still runs it. Whoever holds the lease goes on all the same, takes the lock
over and says so in the log. To wait, or to give the job back, would make the recovery from every crash as slow as the expiry of a
lock, and would make something depend on Redis.

Nobody waits for a lock. Ten times a second the worker locks what it has had for longer than that and unlocks what has ended, all of it by
one script, which makes the names of the keys: to pack them would take the driver longer than everything else. An execution that is over
within a tenth of a second gets no lock: with one for each, a drain of no-op jobs costs a worker 23 µs of its processor a job instead of 17,
and Redis 8.

Sooner, and by another script, it voids what the API keeps of jobs that were submitted a moment ago: they have begun.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from windlass.bus.redis.cache import MARKER
from windlass.bus.redis.link import Client, Link
from windlass.bus.redis.seals import Seals
from windlass.model import Lease

_LOCK_S: Final = 0.1
_VOID_S: Final = 0.01
_WAITING: Final = 20_000  # jobs
_TOGETHER: Final = 2_000
_SLACK_S: Final = 60.0  # to stop a job that is past its time takes a while
# KEYS: the prefix of all names. Ids and tokens are in hex, one after the other. ARGV: ids and tokens to unlock; ids and tokens to
# lock, and for how long each (ms, separated by blanks). Returns the places of those to lock that somebody else had locked.
_LOCK: Final = """
local function part(text, n) return string.sub(text, n * 32 + 1, n * 32 + 32) end
for n = 0, #ARGV[1] / 32 - 1 do
  local name = KEYS[1] .. ':lock:' .. part(ARGV[1], n)
  if redis.call('GET', name) == part(ARGV[2], n) then redis.call('DEL', name) end
end
local held, n = {}, 0
for life in string.gmatch(ARGV[5], '%d+') do
  local name, token = KEYS[1] .. ':lock:' .. part(ARGV[3], n), part(ARGV[4], n)
  if not redis.call('SET', name, token, 'NX', 'PX', life) then
    if redis.call('GET', name) ~= token then held[#held + 1] = n end
    redis.call('SET', name, token, 'PX', life)
  end
  n = n + 1
end
return held
"""
# ARGV: ids to void, by what, and for how long (ms).
_VOID: Final = """
for n = 0, #ARGV[1] / 32 - 1 do
  redis.call('SET', KEYS[1] .. ':job:' .. string.sub(ARGV[1], n * 32 + 1, n * 32 + 32), ARGV[2], 'PX', ARGV[3])
end
"""
_log: Final = logging.getLogger(__name__)


class RedisExecutionLocks:
    """`locks`: whether there are any; else what is kept of jobs is voided, and that is all. `cache_s`: how long the API keeps a job; 0:
    never. Not for a cluster, where a script reaches the keys of one server only."""

    def __init__(self, link: Link, seals: Seals, *, locks: bool, cache_s: float) -> None:
        self._link = link
        self._seals = seals
        self._locks = locks
        self._cache_s = cache_s
        self._to_lock: dict[UUID, Lease] = {}  # claimed before the last turn, and still there
        self._young: dict[UUID, Lease] = {}  # claimed since
        self._to_unlock: list[Lease] = []
        self._to_void: list[UUID] = []
        self._locking: asyncio.Task[None] | None = None
        self._voiding: asyncio.Task[None] | None = None

    def acquire(self, leases: Sequence[Lease]) -> None:
        if not self._link.well or len(self._young) + len(self._to_void) >= _WAITING:
            return
        if self._cache_s:
            # Only what was submitted a moment ago is kept without anyone having looked at it.
            self._to_void += [lease.job_id for lease in leases if lease.waited_s < self._cache_s]
            if self._to_void and _is_over(self._voiding):
                self._voiding = asyncio.create_task(self._void(), name="windlass redis voids")
        if self._locks:
            self._young.update([(lease.job_id, lease) for lease in leases])
            self._lock_soon()

    def release(self, leases: Sequence[Lease]) -> None:
        if not self._locks:
            return
        for lease in leases:
            if not (_taken_out(self._young, lease) or _taken_out(self._to_lock, lease)):
                self._to_unlock.append(lease)
        if not self._link.well or len(self._to_unlock) >= _WAITING:
            self._to_unlock.clear()  # what is not unlocked expires
        elif self._to_unlock:
            self._lock_soon()

    def _lock_soon(self) -> None:
        if _is_over(self._locking):
            self._locking = asyncio.create_task(self._lock(), name="windlass redis locks")

    async def _lock(self) -> None:
        while self._young or self._to_lock or self._to_unlock:
            await asyncio.sleep(_LOCK_S)
            unlock, self._to_unlock = self._to_unlock[:_TOGETHER], self._to_unlock[_TOGETHER:]
            lock = [self._to_lock.pop(job_id) for job_id in list(self._to_lock)[:_TOGETHER]]
            self._to_lock.update(self._young)
            self._young.clear()
            if lock or unlock:
                held = await self._run("lock executions", _LOCK, *_packed(unlock), *_packed(lock), _lives(lock))
                if isinstance(held, list) and held:
                    _report([lock[n] for n in held if isinstance(n, int) and 0 <= n < len(lock)])

    async def _void(self) -> None:
        while self._to_void:
            await asyncio.sleep(_VOID_S)
            void, self._to_void = self._to_void[:_TOGETHER], self._to_void[_TOGETHER:]
            names = "".join([job_id.hex for job_id in void])
            await self._run("void jobs", _VOID, names, MARKER, int(self._cache_s * 1000))

    async def _run(self, what: str, script: str, *arguments: str | bytes | int) -> Any:
        seal = self._seals.current
        if seal is None:
            return None
        prefix = seal.prefix

        def call(redis: Client) -> Any:
            return redis.eval(script, 1, prefix, *arguments)

        return await self._link.ask(what, call)

    async def aclose(self) -> None:
        """Let what is waiting be sent, which takes no longer than Redis may take."""
        tasks = [task for task in (self._locking, self._voiding) if task is not None and not task.done()]
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)
            for task in tasks:
                task.cancel()


def _taken_out(waiting: dict[UUID, Lease], lease: Lease) -> bool:
    """Whether this very claim was among those that wait for a lock, and no longer is."""
    claimed = waiting.get(lease.job_id)
    if claimed is None or claimed.token != lease.token:  # or it was claimed again since
        return False
    del waiting[lease.job_id]
    return True


def _is_over(task: asyncio.Task[None] | None) -> bool:
    return task is None or task.done()


def _packed(leases: Sequence[Lease]) -> tuple[str, str]:
    return "".join([lease.job_id.hex for lease in leases]), "".join([lease.token.hex for lease in leases])


def _lives(leases: Sequence[Lease]) -> str:
    return " ".join([str(int((lease.timeout_s + _SLACK_S) * 1000)) for lease in leases])


def _report(leases: Sequence[Lease]) -> None:
    """One line for all of them: after a crash the jobs of a worker come together."""
    if leases:
        first = leases[0]
        _log.warning(
            "%d jobs run that an earlier execution had locked and was not seen to end; the first is %s, attempt %d",
            len(leases), first.job_id, first.attempt,
            extra={"job_id": str(first.job_id), "jobs": len(leases)},
        )  # fmt: skip

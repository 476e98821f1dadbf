"""The supervisor: the parent of the workers on a host. It never runs user code, so nothing a handler does can stop it.

It keeps `processes` workers running, each from its start to its burial (one after the other in the same place):

    start ─▶ hello ─▶ registered ─▶ go ─▶ … ─▶ end ─▶ jobs settled ─▶ buried
                                           │    └▶ the next one starts, without waiting for that
                                           └▶ it makes way (replacements.py): the next one starts beside it

renews their leases (oversight.py), has a guard that outlives it (guarded.py), and runs the leader's loop, which it
is given. A signal drains, a second gives running jobs back, a third ends at once. What a dead worker held is never
forgotten while this process lives; after that it is the guard's, and after that the leader's.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Final
from uuid import UUID

from windlass.bus.protocol import Waker
from windlass.clock import steady_s
from windlass.errors import Unavailable, WindlassError
from windlass.model import NewWorker
from windlass.pauses import Pauses
from windlass.redaction import redact
from windlass.store.protocol import Claims, Upkeep
from windlass.versions import installed_version
from windlass.worker.aftermath import End, see_off
from windlass.worker.berth import RELEASE_S, Berth, Crew
from windlass.worker.guarded import Guarded
from windlass.worker.loops import BackOff, again, cancelled, done, every, first
from windlass.worker.oversight import Oversight
from windlass.worker.processes import reap_orphans
from windlass.worker.replacements import Replacements
from windlass.worker.signals import Signals
from windlass.worker.sources import SourceWatch

_SCAN_S: Final = 0.1
_CANCELS_S: Final = 1.0
_ORPHANS_S: Final = 1.0
_PATIENCE_S: Final = (0.1, 2.0)
_RAN_JOBS_S: Final = 1.0
_SOURCES_S: Final = 0.5
_SOURCES_STILL_S: Final = 0.1
_NAMED: Final = 3
REFUSED: Final = 2
_log: Final = logging.getLogger(__name__)

# Given a function to call when this supervisor should look now for what people have asked of its jobs and workers.
Listen = Callable[[Callable[[], None]], AbstractAsyncContextManager[Any]]
Lead = Callable[[], Awaitable[None]]


async def supervise(
    crew: Crew,
    upkeep: Upkeep,
    claims: Claims,
    waker: Waker,
    signals: Signals,
    *,
    listen: Listen | None = None,
    lead: Lead | None = None,
) -> int:
    """Run workers until a signal; returns the exit code."""
    supervisor = Supervisor(crew, upkeep, claims, waker, signals)
    async with AsyncExitStack() as stack:
        if listen is not None:
            await stack.enter_async_context(listen(supervisor.look_for_requests))
        return await supervisor.run(lead)


class Supervisor:
    def __init__(self, crew: Crew, upkeep: Upkeep, claims: Claims, waker: Waker, signals: Signals) -> None:
        self._crew = crew
        self._upkeep = upkeep
        self._claims = claims
        self._waker = waker
        self._signals = signals
        self._berths: dict[UUID, Berth] = {}
        self._oversight = Oversight(crew, upkeep, self._berths)
        self._replacements = Replacements(self._berths, crew.config.worker.replacing_max)
        self._guarded = Guarded(crew.config)
        self._ever_started = False
        self._refused: str | None = None
        self._lives: set[asyncio.Task[None]] = set()
        self._partings: set[asyncio.Task[None]] = set()
        self._requests = asyncio.Event()
        self._sources = SourceWatch()
        self._sources_changed = asyncio.Event()  # the next change; with it there is another
        self._hurrying: set[asyncio.Task[None]] = set()

    def look_for_requests(self) -> None:
        self._requests.set()

    async def run(self, lead: Lead | None) -> int:
        config = self._crew.config
        heartbeat_s = config.lease.heartbeat_s
        loops = [
            every(heartbeat_s, self._oversight.renew, "renewing leases", again_s=min(heartbeat_s / 5, 0.5)),
            every(heartbeat_s, self._oversight.recycle, "looking for workers that have grown"),
            every(0.02, self._pass_requests_on, "looking for requests", again_s=_CANCELS_S),
            every(_SCAN_S, self._enforce, "enforcing deadlines"),
            again(self._guarded.keep, "keeping a guard"),
        ]
        if self._crew.reload:
            loops.append(every(_SOURCES_S, self._look_at_sources, "looking at source files"))
        if os.getpid() == 1:
            loops.append(every(_ORPHANS_S, self._reap_orphans, "reaping orphans"))
        tasks = [asyncio.create_task(loop) for loop in loops]
        leading = asyncio.create_task(again(lead, "the leader's loop")) if lead is not None else None
        places = [asyncio.create_task(self._keep(n)) for n in range(1, len(config.worker.widths) + 1)]
        try:
            await self._until_stopped(places)
            if leading is not None:
                leading.cancel()  # another may lead while we drain
            await self._shut_down(places)
            _raise_faults(places)
            await cancelled(*tasks)
            if not self._partings:  # else the guard goes on with them
                await self._guarded.dismiss()
        finally:
            # With an error on its way up: the process ends, its workers with it, and the guard does the rest.
            await cancelled(leading, *tasks, *places, *self._lives, *self._hurrying)
        return REFUSED if self._refused is not None else int(bool(self._partings))

    # One place after the other filled again. ------------------------------------------------------------------------

    async def _keep(self, n: int) -> None:
        """Have a worker in this place until the shutdown."""
        back_off = BackOff()
        while not self._signals.stage:
            back_off.began()
            changes = self._sources_changed
            berth = await self._life(n)
            if (
                berth is not None and berth.retires.is_set()
            ):  # at once, but for one that was worn as soon as it had started
                await first(self._signals.reached(1), timeout_s=back_off.ended())
                continue
            if berth is not None and not berth.replace:
                return
            if berth is not None and berth.refused is not None:
                if not self._ever_started:
                    self._refuse(berth.refused)
                    return
                _log.error("%s cannot run: %s", berth.name, berth.refused)
                if self._crew.reload and not berth.hello.is_set():
                    _log.warning("place %d: the next worker follows when a source file has changed", n)
                    await first(self._signals.reached(1), changes.wait())
                    continue
            pause_s = _pause_s(berth, back_off)
            if pause_s and not self._signals.stage:
                _log.warning("place %d: the next worker follows in %.1f s", n, pause_s)
            await first(self._signals.reached(1), timeout_s=pause_s)

    def _refuse(self, problem: str) -> None:
        """No worker ever ran, and none will: say why, once, and end."""
        if self._refused is None:
            self._refused = problem
            if self._crew.config.worker.log_format == "json":
                _log.error("%s", problem)
            else:
                sys.stderr.write(f"windlass: {redact(problem)}\n")
            self._signals.raise_to(1)

    async def _life(self, n: int) -> Berth | None:
        """One worker process from its start until it has ended or makes way; None: it could not be started."""
        try:
            berth = await Berth.open(self._crew.of_place(n), n)
        except OSError as error:  # no process, descriptor or memory left
            _log.error("place %d: no worker could be started: %s", n, error)
            return None
        self._berths[berth.id] = berth
        self._guarded.here(berth.id, berth.child, berth.slots)
        if self._signals.stage:  # it came while this one was started, which the drain knows nothing of
            berth.kill("it has not begun, and is not needed any more")
        life = asyncio.create_task(self._see_through(berth))
        self._lives.add(life)
        life.add_done_callback(self._lives.discard)
        await first(berth.retires.wait(), done([life]))
        if life.done():
            life.result()
        return berth

    async def _see_through(self, berth: Berth) -> None:
        """Wait for its end, whoever is in its place by then. Its jobs are settled by another task."""
        admission = asyncio.create_task(self._admit(berth))
        try:
            end = await berth.ended()
        finally:
            del self._berths[berth.id]
            await cancelled(admission)
        parting = asyncio.create_task(self._part(berth, end))
        self._partings.add(parting)
        parting.add_done_callback(self._partings.discard)

    async def _admit(self, berth: Berth) -> None:
        """Wait for its app, register it, and let it claim."""
        start_s = self._crew.config.worker.start_s
        berth.version = installed_version()  # now, not when it is ready: the first time takes 40 ms
        try:
            async with asyncio.timeout(start_s):  # not wait_for, which in Python 3.11 forgets some cancellations
                await berth.hello.wait()
        except TimeoutError:
            berth.kill(f"it has not started within {start_s:g} s")
            return
        self._sources.learn(berth.sources)
        if not self._ever_started:
            self._say_what_is_unserved(berth)
        self._ever_started = True
        try:
            before_s = await self._register(berth)
        except WindlassError as error:
            berth.refused = str(error)
            berth.kill(f"it cannot be registered: {error}")
            return
        if self._signals.stage:
            berth.kill("the supervisor is about to end")
            return
        berth.lend(before_s + self._crew.config.lease.lease_ttl_s)
        berth.go()
        _log.info(
            "%s is ready: %d types, %d threads, queues %s",
            berth.name, len(berth.types), berth.threads, ", ".join(berth.queues),
        )  # fmt: skip

    @staticmethod
    def _say_what_is_unserved(berth: Berth) -> None:
        """Once, not for each worker: all of them have the same app and the same queues."""
        for queue, types in berth.unserved.items():
            _log.warning(
                "queue %r is not served here, and jobs of type %s go to it: add it to --queues (or WINDLASS_QUEUES), leave that"
                " out to serve what the app declares, or serve it elsewhere", queue, ", ".join(types),
            )  # fmt: skip

    async def _register(self, berth: Berth) -> float:
        """Returns when the request was made, from which its lease counts."""
        config = self._crew.config
        worker = NewWorker(
            berth.id,
            berth.name,
            berth.threads,
            berth.queues,
            berth.types,
            self._crew.supervisor_id,
            berth.digests,
            berth.version,
        )
        berth.known = True  # whether or not the answer comes
        pauses = Pauses(*_PATIENCE_S)
        while True:
            before_s = steady_s()
            try:
                async with asyncio.timeout(config.lease.lease_ttl_s / 3):
                    await self._upkeep.register(worker, lease_ttl_s=config.lease.lease_ttl_s)
                    return before_s
            except (Unavailable, TimeoutError) as error:
                if pauses.is_first:
                    _log.warning("%s waits for the database: %s", berth.name, str(error) or "it does not answer")
            await pauses.wait()

    async def _part(self, berth: Berth, end: End) -> None:
        if berth.known:
            await see_off([end], self._upkeep, self._claims, self._waker)
        self._guarded.gone(berth.id)

    # What is done all the time. -------------------------------------------------------------------------------------

    async def _pass_requests_on(self) -> None:
        await first(self._requests.wait(), timeout_s=_CANCELS_S)
        notified = self._requests.is_set()
        self._requests.clear()
        if notified:  # else the heartbeat will tell: an idle supervisor should not ask once a second
            await self._oversight.let_leave()
        await self._oversight.pass_cancels_on()

    async def _look_at_sources(self) -> None:
        """With `--reload`: when a source file of the app has changed, let each worker finish what it runs and start anew."""
        changed = await asyncio.to_thread(self._sources.changed)
        if not changed or self._signals.stage:
            return
        while more := await asyncio.to_thread(self._sources.changed):  # an editor, or git, may be at it still
            changed += more
            await asyncio.sleep(_SOURCES_STILL_S)
        drain_s = self._crew.config.worker.drain_s
        _log.info(
            "%s changed: workers are restarted; running jobs may finish, for up to %g s", _named(changed), drain_s
        )
        self._sources_changed.set()
        self._sources_changed = asyncio.Event()
        for berth in list(self._berths.values()):
            berth.reload()
            hurry = asyncio.create_task(self._hurry(berth, drain_s))
            self._hurrying.add(hurry)
            hurry.add_done_callback(self._hurrying.discard)

    async def _hurry(self, berth: Berth, drain_s: float) -> None:
        """A job that runs for an hour must not keep the new source from being tried: it is given back, and begins anew."""
        await asyncio.sleep(drain_s)
        if berth.id in self._berths:
            berth.restart()

    async def _enforce(self) -> None:
        self._oversight.enforce()
        if not self._signals.stage:
            self._replacements.look()

    async def _reap_orphans(self) -> None:
        ours = {berth.child.pid for berth in self._berths.values()}
        ours |= {self._guarded.pid} if self._guarded.pid is not None else set()
        reap_orphans(ours)

    # The end. -------------------------------------------------------------------------------------------------------

    async def _until_stopped(self, places: list[asyncio.Task[None]]) -> None:
        await first(self._signals.reached(1), done(places))
        _raise_faults(places)

    async def _shut_down(self, places: list[asyncio.Task[None]]) -> None:
        config = self._crew.config
        living = list(self._berths.values())
        if living and self._refused is None:
            _log.info("draining: %d workers finish what they run, for up to %g s", len(living), config.worker.drain_s)
        self._drain(living)
        marking = asyncio.create_task(self._mark_draining([berth.id for berth in living if berth.known]))
        ends = [*places, *self._lives]  # some workers have made way, and are in no place any more
        await first(done(ends), self._signals.reached(2), timeout_s=config.worker.drain_s)
        if left := list(self._berths.values()):
            _log.warning("releasing: %d workers give back what they run", len(left))
            for berth in left:
                berth.release()
            await first(done(ends), timeout_s=RELEASE_S)
        for berth in list(self._berths.values()):
            berth.kill("it has not ended in time")
        await first(done(ends))
        await cancelled(marking)
        await self._last_partings()

    def _drain(self, living: list[Berth]) -> None:
        for berth in living:
            if berth.lease_until_s is None:
                berth.kill("it has not begun, and is not needed any more")
            else:
                berth.drain(replace=False)

    async def _mark_draining(self, ids: list[UUID]) -> None:
        """So that nothing is planned for them. They drain without it."""
        try:
            await self._upkeep.drain(ids)
        except WindlassError as error:
            _log.warning("the database does not know that %d workers drain: %s", len(ids), error)

    async def _last_partings(self) -> None:
        """Wait until the jobs of the last workers are settled, while that is of use: then their leases have ended."""
        if self._partings:
            await asyncio.wait(self._partings, timeout=self._crew.config.lease.lease_ttl_s)
        if self._partings:
            _log.error("the jobs of %d workers could not be settled; the guard tries on", len(self._partings))
            return
        if self._refused is None:  # else why it ends shall be the last line
            _log.info("stopped")


def _pause_s(berth: Berth | None, back_off: BackOff) -> float:
    """Back-off is for workers that cannot live, not for those whose jobs cannot: other jobs would wait for it."""
    if berth is None or (berth.lease_until_s is None and not berth.restarts):
        return back_off.ended()
    # What was under way when it crashed is a suspect now, and will not do that to a worker again.
    if berth.restarts or berth.killed or berth.crashed_by_job:
        return 0.0
    return min(back_off.ended(), _RAN_JOBS_S) if berth.had_begun else back_off.ended()


def _named(files: list[str]) -> str:
    """The first few of them, as they are written in the working folder."""
    names = [os.path.relpath(file) for file in dict.fromkeys(files)]
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _raise_faults(places: list[asyncio.Task[None]]) -> None:
    """A fault of ours ends the supervisor, loudly; the guard gives its jobs back."""
    for place in places:
        if place.done():
            place.result()

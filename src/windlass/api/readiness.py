"""Whether requests should be sent to this API: not while it leaves, and not before the workers it was told to await."""

import asyncio
from dataclasses import dataclass
from uuid import UUID

from windlass.store.protocol import Views


@dataclass(frozen=True, slots=True)
class AwaitedWorkers:
    """The workers of one supervisor, which was started together with this API."""

    supervisor_id: UUID
    count: int


class Readiness:
    """`leaving`: a shutdown has begun; the listener is still open, so that those who send requests here can notice."""

    def __init__(self, views: Views, awaited: AwaitedWorkers | None = None) -> None:
        self.leaving = False
        self._hurried = asyncio.Event()
        self._views = views
        self._awaited = awaited

    async def awaits_workers(self) -> bool:
        """Looks for them, if it must: `windlass up` asks for /readyz at its own start, and not after this process died
        and was started again."""
        return await self.missing_workers() is not None

    async def missing_workers(self) -> str | None:
        """What the awaited workers still lack; None: nothing. Once they were complete they are not looked at again: to
        take jobs no worker is needed."""
        if self._awaited is None:
            return None
        ours = [
            worker
            for worker in await self._views.workers()
            if worker.alive and worker.supervisor_id == self._awaited.supervisor_id
        ]
        if len(ours) < self._awaited.count:
            return f"starting, {len(ours)} of {self._awaited.count}"
        declared = {each.declared.name for each in await self._views.types()}
        if not all(declared.issuperset(worker.types) for worker in ours):
            return "declaring their types"
        self._awaited = None
        return None

    async def leave(self, unready_s: float) -> None:
        """Say that requests should go elsewhere, and give those who ask so long to notice; `hurry` cuts it short."""
        self.leaving = True
        try:
            async with asyncio.timeout(unready_s):
                await self._hurried.wait()
        except TimeoutError:
            pass

    def hurry(self) -> None:
        self._hurried.set()

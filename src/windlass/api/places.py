"""Where jobs are, for requests in flight together: the first looks at once, those that ask meanwhile look together next.

A look that began before a question was asked does not answer it.
"""

import asyncio
from types import TracebackType
from typing import NamedTuple, Self
from uuid import UUID

from windlass.model import Status
from windlass.store.protocol import Views


class _Asked(NamedTuple):
    job_id: UUID
    place: asyncio.Future[Status | None]


class Places:
    def __init__(self, views: Views) -> None:
        self._views = views
        self._asked: list[_Asked] = []
        self._looking: asyncio.Task[None] | None = None

    async def find(self, job_id: UUID) -> Status | None:
        """None: nowhere."""
        place: asyncio.Future[Status | None] = asyncio.get_running_loop().create_future()
        self._asked.append(_Asked(job_id, place))
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        return await place

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        for asked in self._asked:
            asked.place.cancel()

    async def _look(self) -> None:
        while asked := [each for each in self._asked if not each.place.done()]:
            self._asked = []
            try:
                places = await self._views.places([each.job_id for each in asked])
            except Exception as error:  # noqa: BLE001 - told to all who asked
                _answer(asked, error)
            else:
                _answer(asked, places)


def _answer(asked: list[_Asked], found: dict[UUID, Status] | Exception) -> None:
    for job_id, place in asked:
        if place.done():  # who asked has gone
            continue
        if isinstance(found, Exception):
            place.set_exception(found)
        else:
            place.set_result(found.get(job_id))

"""The job types there are, as workers have declared them, and how their payloads are checked.

What a submission leaves out is as its type says. A type that nobody has declared is refused, unless its workers may still
be starting: for a while after this API has started, and where no worker has ever declared anything. The built-in types are
known from the start.

A payload is checked while the living workers of its type agree on one schema. Where they do not, as during a deploy, or
where none lives, it is taken unchecked, and the answer says so.
"""

import asyncio
import difflib
import math
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, NamedTuple

from windlass.config import ApiConfig
from windlass.errors import UnknownType
from windlass.model import Declared, KnownType
from windlass.payload_check import Checker, compile_checker
from windlass.store.protocol import Views

_FRESH_S: Final = 2.0
_STALE_S: Final = 10.0  # until then an old answer is good enough for now, and a new one is fetched beside


class SubmittableType(NamedTuple):
    """A type as submissions need it. `check` refuses payloads; None: nothing is known that they could be held against."""

    declared: Declared
    check: Checker | None


class Catalogue:
    """The declared types as they were some seconds ago at most; looked up again for one that was not there then.
    `built_in`: what is known without any worker. `starting`: whether workers are starting, where this API was told which to
    await; where it was not, it takes types that nobody has declared for some time after its own start."""

    def __init__(
        self,
        views: Views,
        config: ApiConfig,
        built_in: Collection[Declared] = (),
        starting: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._views = views
        self._accepts_unknown = config.unknown_types == "accept"
        self._grace_s = config.unknown_type_grace_s
        self._starting = starting
        self._started_at = time.monotonic()
        self._built_in = {one.name: one for one in built_in}
        self._any_declared = False
        self._checkers: dict[str, Checker | None] = {}  # by schema: compiled once
        self._types: Mapping[str, SubmittableType] = {}
        self._looked_at = -math.inf
        self._looking: asyncio.Task[None] | None = None

    def known(self, name: str) -> SubmittableType | None:
        """A type, as far as it is known without waiting; None: ask `find`."""
        age_s = time.monotonic() - self._looked_at
        if age_s > _FRESH_S:
            if age_s > _STALE_S:
                return None
            self._look()
        return self._types.get(name)

    async def find(self, name: str, *, asked_at: float | None = None) -> SubmittableType | None:
        """A type. None: nobody has declared it, and it is taken as it is. Raises UnknownType. `asked_at`: who asks for
        many at once says since when, by time.monotonic, and one look will do for all of them."""
        found = self.known(name)
        if found is None:
            # Asked before the look, which then finds what these workers have declared by now.
            starting = None if self._starting is None else await self._starting()
            await self._look_since(time.monotonic() if asked_at is None else asked_at)
            found = self._types.get(name)
            if found is not None or self._accepts_unknown or self._may_be_starting(starting):
                return found
            raise UnknownType(name, difflib.get_close_matches(name, self._types, 2))
        return found

    async def afresh(self, name: str, *, asked_at: float | None = None) -> SubmittableType | None:
        """The same as of now: what is some seconds old may be accepted by, never refused by."""
        asked_at = time.monotonic() if asked_at is None else asked_at
        await self._look_since(asked_at)
        return await self.find(name, asked_at=asked_at)

    def _may_be_starting(self, starting: bool | None) -> bool:
        """Whether workers that know other types may be about to declare them. `starting`: whether those are that this API
        awaits; None: it awaits none."""
        if self._grace_s == 0:
            return False
        if starting is not None:
            return starting
        return not self._any_declared or time.monotonic() - self._started_at < self._grace_s

    async def _look_since(self, came_at: float) -> None:
        """What was declared before is then known: a look that had begun already may have missed it. There is one look at
        a time, however many strangers ask for types that do not exist."""
        while self._looked_at < came_at:
            await asyncio.shield(self._look())

    def _look(self) -> asyncio.Task[None]:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._read())
            self._looking.add_done_callback(_heard)
        return self._looking

    async def _read(self) -> None:
        began_at = time.monotonic()
        declared = await self._views.types()
        known = {each.declared.name: each for each in declared}
        for name, built_in in self._built_in.items():
            # Not checked before a worker has declared it: an app may have its own of that name.
            known.setdefault(name, KnownType(built_in, alive=False))
        self._any_declared = bool(declared)
        self._types = {name: SubmittableType(each.declared, self._checker(each)) for name, each in known.items()}
        schemas = {each.declared.schema for each in known.values()}
        self._checkers = {schema: check for schema, check in self._checkers.items() if schema in schemas}
        self._looked_at = began_at

    def _checker(self, known: KnownType) -> Checker | None:
        schema = known.declared.schema
        if not known.current or schema is None:
            return None
        if schema not in self._checkers:
            self._checkers[schema] = compile_checker(schema)
        return self._checkers[schema]


def _heard(task: asyncio.Task[None]) -> None:
    """A look beside the requests may fail: those who need the answer look for themselves, and are told."""
    if not task.cancelled():
        task.exception()

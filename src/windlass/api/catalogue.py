"""What types there are, as workers have declared them: a submission of an unknown type is refused, and what one leaves
out is as its type says.
"""

import asyncio
import difflib
import math
import time
from collections.abc import Mapping
from typing import Final

from windlass.config import ApiConfig
from windlass.errors import UnknownType
from windlass.model import Declared
from windlass.store.protocol import Views

_FRESH_S: Final = 2.0
_STALE_S: Final = 10.0  # until then an old answer is good enough for now, and a new one is fetched beside


class Catalogue:
    """The declared types as they were some seconds ago at most; looked up again for one that was not there then."""

    def __init__(self, views: Views, config: ApiConfig) -> None:
        self._views = views
        self._accepts_unknown = config.unknown_types == "accept"
        self._types: Mapping[str, Declared] = {}
        self._looked_at = -math.inf
        self._looking: asyncio.Task[None] | None = None

    def known(self, name: str) -> Declared | None:
        """What a type declares, as far as that is known without waiting; None: ask `find`."""
        age_s = time.monotonic() - self._looked_at
        if age_s > _FRESH_S:
            if age_s > _STALE_S:
                return None
            self._look()
        return self._types.get(name)

    async def find(self, name: str, *, asked_at: float | None = None) -> Declared | None:
        """What a type declares. None: nothing, and it is taken as it is. Raises UnknownType. `asked_at`: who asks for many
        at once says since when, by time.monotonic, and one look will do for all of them."""
        found = self.known(name)
        if found is None:
            await self._look_since(time.monotonic() if asked_at is None else asked_at)
            found = self._types.get(name)
        if found is None and not self._accepts_unknown:
            raise UnknownType(name, difflib.get_close_matches(name, self._types, 2))
        return found

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
        self._types = {each.declared.name: each.declared for each in await self._views.types()}
        self._looked_at = began_at


def _heard(task: asyncio.Task[None]) -> None:
    """A look beside the requests may fail: those who need the answer look for themselves, and are told."""
    if not task.cancelled():
        task.exception()

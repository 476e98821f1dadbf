"""Who rests, how to wake them, and the channels that wake-ups travel on."""

from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from typing import Any, Final, Protocol
from uuid import UUID

from windlass.model import Want


def channel(owner_id: UUID) -> str:
    """Where one worker or supervisor is woken."""
    return f"windlass_{owner_id.hex}"


def broadcast_channel(schema: str) -> str:
    """Where every worker is woken."""
    return f"{schema}_all"


LATE_S: Final = 0.5  # what was handed over that long ago should have been heard of


class Ear(Enum):
    """How a worker hears of work."""

    LISTENS = "listens"
    POPS = "pops"
    POLLS = "polls"


class Pusher(Protocol):
    """Tells workers that hear no notifications. Never raises, never waits long; a hint may be lost."""

    async def push(self, worker_ids: Sequence[UUID]) -> None:
        """There may be work for these."""


class Hints(Protocol):
    """Who rests, and how to wake them. Nothing is correct because of it: whatever is hinted is also polled."""

    async def rest(
        self,
        worker_id: UUID,
        *,
        queues: Sequence[str],
        types: Sequence[str],
        free: int,
        worked: bool = False,
        hand_key: UUID | None = None,
        hand_for_s: float = 0.0,
    ) -> int:
        """Stand in line to be woken, and claim once more before sleeping. A worker that is in line keeps its place, or
        goes to the end if it has had work since (`worked`). Within `hand_for_s` a job may be handed to it on the channel of
        `hand_key`. Returns how many jobs it has had for longer than LATE_S. Never waits for those who wake."""

    @property
    def outdated(self) -> bool:
        """Whether the worker that rests by these hints is to be told in another way than it said: it should rest anew."""

    async def leave(self, worker_id: UUID) -> None:
        """Leave the line: busy, or gone."""

    async def rouse(self, wants: Iterable[Want]) -> list[UUID]:
        """Wake the least recently used idle workers with room for these jobs; returns whom. Call after the commit."""

    async def wake_workers(self, worker_ids: Collection[UUID]) -> list[UUID]:
        """Wake those of these workers that are idle; returns which. Call after the commit."""

    async def call_all(self, *, connection: Any = None) -> None:
        """Wake every worker that listens; with `connection`, when the caller's transaction commits."""

    async def nudge(self, job_ids: Collection[UUID]) -> set[UUID]:
        """Tell the supervisors of those who run these jobs to look for cancel requests; returns which."""

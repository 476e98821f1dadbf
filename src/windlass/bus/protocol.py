"""What the bus offers: waking workers, and listening for it. Hints only; nothing is correct because of one."""

from collections.abc import Callable, Iterable
from typing import Final, Protocol
from uuid import UUID

from windlass.model import Want

# Called with a channel and what was said there: "", the id of a job, "cancel", or "reconnected" when hints may have
# been missed.
OnHint = Callable[[str, str], None]
_ID_CHARS: Final = 36


def named(said: str) -> UUID | None:
    """The one job that a hint is about, if it names one."""
    try:
        return UUID(said) if len(said) == _ID_CHARS else None
    except ValueError:  # whoever may notify may say anything
        return None


class Waker(Protocol):
    """Tells others to look now. Returns at once, never raises, and coalesces what comes close together."""

    def wake(self, wants: Iterable[Want]) -> None:
        """Wake, for each job, the least recently used idle worker with room for it. Call after the commit."""

    def wake_all(self) -> None:
        """Wake every worker: something is ready, and it is not known what."""

    def nudge(self, job_ids: Iterable[UUID]) -> None:
        """Tell those who run these jobs that a cancel was asked for."""


class NoWaker:
    """The twin that does nothing: workers find jobs by polling."""

    def wake(self, wants: Iterable[Want]) -> None:
        """Nothing."""

    def wake_all(self) -> None:
        """Nothing."""

    def nudge(self, job_ids: Iterable[UUID]) -> None:
        """Nothing."""

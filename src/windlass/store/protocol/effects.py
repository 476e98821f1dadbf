"""What handlers record of the effects of their jobs."""

from typing import Literal, NamedTuple, Protocol

from windlass.model import IfUnknown, Lease

EffectState = Literal["new", "done", "unknown"]


class Intention(NamedTuple):
    """What the ledger held when an effect was intended. `new`: nothing, or our own write whose answer was lost. `result`: of one
    that is done, as JSON text."""

    found: EffectState
    result: str | None = None


class EffectWriter(Protocol):
    """Every write is fenced by the lease and raises LeaseLost."""

    async def intend(self, lease: Lease, key: str, if_unknown: IfUnknown, *, unknown: bool = ...) -> Intention:
        """Record durably that an effect is about to happen. `unknown`: this attempt has left it unknown before."""

    async def effect_state(self, lease: Lease, key: str) -> Intention:
        """What is recorded of it; nothing is written."""

    async def finish_effect(self, lease: Lease, key: str, result: str | None) -> None:
        """Record that it has happened."""

    async def take_back_effect(self, lease: Lease, key: str) -> None:
        """Record that it has not happened."""

"""The ledger of effects: what a job does in the world outside, recorded as intended before and as done after.

Every write is fenced by the lease, as settlements are: of two attempts only the one that holds the job can change what is
recorded. What a person decides is written while nobody runs the job (intake.py).
"""

from windlass.errors import LeaseLost
from windlass.model import IfUnknown, Lease
from windlass.store.postgres import Postgres
from windlass.store.protocol import Intention


class EffectLedger:
    """The part of a worker's store that handlers reach through ctx.effect."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def intend(self, lease: Lease, key: str, if_unknown: IfUnknown, *, unknown: bool = False) -> Intention:
        """Record durably that an effect is about to happen. Raises LeaseLost."""
        rows = await self._postgres.pinned("intend", *lease[:4], key, if_unknown, unknown)
        if not rows:
            raise LeaseLost(lease.job_id)
        return Intention(rows[0]["found"], rows[0]["result"])

    async def effect_state(self, lease: Lease, key: str) -> Intention:
        """What is recorded of an effect; nothing is written."""
        row = await self._postgres.fetchrow("effect_state", lease.job_id, key)
        return Intention("new") if row is None else Intention(row["found"], row["result"])

    async def finish_effect(self, lease: Lease, key: str, result: str | None) -> None:
        """Record that it has happened, with a result as JSON text. Raises LeaseLost."""
        if not await self._postgres.pinned("finish_effect", *lease[:4], key, result):
            raise LeaseLost(lease.job_id)

    async def take_back_effect(self, lease: Lease, key: str) -> None:
        """Record that it has not happened. Raises LeaseLost."""
        if not await self._postgres.pinned("take_back_effect", *lease[:4], key):
            raise LeaseLost(lease.job_id)

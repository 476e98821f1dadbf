"""The leader's chores: plain functions over the store's upkeep, each safe to repeat and to run twice at once."""

from collections.abc import Callable

from windlass.lifecycle import Lost, settle
from windlass.store.protocol import Claims, Upkeep


async def reap(upkeep: Upkeep, claims: Claims, draw: Callable[[], float], *, expired: bool = True) -> int:
    """Give back or finish the jobs of dead workers, through the same `settle` as everything else.

    `expired=False` leaves alone workers whose lease merely ended: a leader that is new or was cut off must first give
    them one lease's time to renew, or a database outage would kill the cluster. `draw` gives a number in [0, 1).
    Returns how many jobs moved; those refused were settled by someone else meanwhile.
    """
    if expired:
        await upkeep.bury_expired()
    moved = 0
    while lost := await upkeep.lost():
        settlements = [settle(one.lease, Lost(crashed=one.crashed), jitter=draw()) for one in lost]
        receipt = await claims.settle(settlements)
        moved += len(receipt.moved)
        if not receipt.moved:  # another leader has them all in hand
            break
    return moved

"""What the store offers, as small protocols by consumer: callers, workers, upkeep, people, wake-ups; and their values.

They exist for typed slices, and for wrappers that fail on purpose in tests; not to make PostgreSQL replaceable.
"""

from windlass.store.protocol.accounts import KEY, USER, Accounts, ApiKey, AuditEntry, User
from windlass.store.protocol.callers import Intake
from windlass.store.protocol.effects import EffectState, EffectWriter, Intention
from windlass.store.protocol.hints import LATE_S, Ear, Hints, Pusher, broadcast_channel, channel
from windlass.store.protocol.upkeep import (
    Cause,
    Leaving,
    LostLease,
    Rolled,
    Upkeep,
    WaitingForNewer,
    WideJob,
    WideQueues,
)
from windlass.store.protocol.views import (
    Check,
    ClusterState,
    DeadLetterGroup,
    DeadLetterGroups,
    DeadLetterSize,
    Found,
    JobQuery,
    Page,
    Points,
    RunningLog,
    SeriesData,
    Summary,
    ThreadUse,
    Views,
    WorkerThreads,
)
from windlass.store.protocol.workers import Ask, Claims, Progress, Receipt, Settled, merged

__all__ = [
    "KEY",
    "LATE_S",
    "USER",
    "Accounts",
    "ApiKey",
    "Ask",
    "AuditEntry",
    "Cause",
    "Check",
    "Claims",
    "ClusterState",
    "DeadLetterGroup",
    "DeadLetterGroups",
    "DeadLetterSize",
    "Ear",
    "EffectState",
    "EffectWriter",
    "Found",
    "Hints",
    "Intake",
    "Intention",
    "JobQuery",
    "Leaving",
    "LostLease",
    "Page",
    "Points",
    "Progress",
    "Pusher",
    "Receipt",
    "Rolled",
    "RunningLog",
    "SeriesData",
    "Settled",
    "Summary",
    "ThreadUse",
    "Upkeep",
    "User",
    "Views",
    "WaitingForNewer",
    "WideJob",
    "WideQueues",
    "WorkerThreads",
    "broadcast_channel",
    "channel",
    "merged",
]

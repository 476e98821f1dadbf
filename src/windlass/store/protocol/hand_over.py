"""How a job is handed to a worker that rests: its submitter's own commit puts it into `running`, and a notification tells the
lease, on a channel that only those know who may read `idle`. One that is lost leaves a row that its worker does not know of.
"""

from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from windlass.model import Lease


class _Told(NamedTuple):
    """What a first attempt's lease does not have from its worker, nor from being a first one; as `enqueue_one` tells it."""

    job_id: UUID
    token: UUID
    type: str
    queue: str
    threads: int
    rank: int
    max_attempts: int
    timeout_s: float
    retry: msgspec.Raw
    payload: msgspec.Raw
    name: str | None
    priority: int
    trace: str | None


_decoder: Final = msgspec.json.Decoder(_Told)


def handed(said: str, worker_id: UUID) -> Lease:
    """The lease that a notification hands to this worker. JSON of users as it was stored, to the letter."""
    new = _decoder.decode(said)
    retry = bytes(new.retry).decode()
    return Lease(
        new.job_id, 1, new.token, worker_id, new.type, new.queue, new.threads, new.rank, 0, False, 0, new.max_attempts,
        new.timeout_s, None if retry == "null" else retry, bytes(new.payload).decode(), new.name, new.priority,
        new.threads, None, None, new.trace, 0.0,
    )  # fmt: skip

"""Values for tests of the pure core."""

from typing import Any
from uuid import UUID

from windlass.model import Lease

JOB = UUID(int=1)
TOKEN = UUID(int=2)
WORKER = UUID(int=3)


def lease(**over: Any) -> Lease:
    base = Lease(
        job_id=JOB,
        attempt=1,
        token=TOKEN,
        worker_id=WORKER,
        type="t",
        queue="default",
        threads=1,
        rank=0,
        failures=0,
        suspect=False,
        crashes=0,
        max_attempts=3,
        timeout_s=3600.0,
        retry=None,
        payload="null",
        name=None,
        priority=0,
        thread_demand=1,
        tags=None,
        idempotency_key=None,
        trace=None,
        waited_s=0.0,
    )
    return base._replace(**over)

"""Errors of jobs in Sentry, by hooks: every failed attempt is reported, with the job it belongs to.

SENTRY_DSN=https://… windlass worker --app examples.sentry:app     (pip install sentry-sdk)
python -m examples.sentry

Without sentry-sdk the jobs run all the same, and the worker says that nothing is reported.
"""

import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any

from windlass import App, AsyncContext, JobEvent, JobFailed

try:
    import sentry_sdk  # type: ignore[import-not-found, unused-ignore]
    from sentry_sdk.integrations.logging import ignore_logger  # type: ignore[import-not-found, unused-ignore]
except ImportError:
    sentry_sdk = None

app = App("sentry")
log = logging.getLogger("examples.sentry")


@app.on_worker_start
def connect() -> None:
    """In every process that runs jobs, those of isolated jobs too: a connection must not be shared across a fork."""
    if sentry_sdk is None:
        log.warning("sentry-sdk is not installed: errors of jobs are logged, and not reported")
        return
    sentry_sdk.init(dsn=os.environ.get("SENTRY_DSN"), traces_sample_rate=0.1)
    ignore_logger("windlass.attempts")  # else each dead letter's log line would be a second report


@app.on_worker_stop
def disconnect() -> None:
    if sentry_sdk is not None:
        sentry_sdk.flush(timeout=2)


@app.middleware
async def trace(ctx: AsyncContext, call: Callable[[], Awaitable[Any]]) -> Any:
    if sentry_sdk is None:
        return await call()
    with sentry_sdk.isolation_scope(), sentry_sdk.start_transaction(op="job", name=ctx.type):
        return await call()


@app.on_failure
def report(event: JobEvent) -> None:
    """A warning while the job is tried again, an error when it is not. What crashed or ran in a process of its own has no
    exception here, but the text of one."""
    error = event.error
    if sentry_sdk is None or error is None:
        return
    with sentry_sdk.new_scope() as scope:
        scope.set_level("error" if event.next_try_s is None else "warning")
        scope.set_tag("job.type", event.type)
        scope.set_tag("job.queue", event.queue)
        scope.set_context(
            "job",
            {
                "id": str(event.id),
                "attempt": event.attempt,
                "failures": f"{event.failures} of {event.max_attempts}",
                "next_try_s": event.next_try_s,
                "traceback": error.traceback,
            },
        )
        if event.exception is not None:
            sentry_sdk.capture_exception(event.exception)
        else:
            sentry_sdk.capture_message(f"{error.type}: {error.message}")


@app.job(max_attempts=1)
async def divide(a: int, b: int) -> float:
    return a / b


def main() -> None:
    with app:
        print(divide.enqueue(6, 3).result(timeout_s=30))
        try:
            divide.enqueue(1, 0).result(timeout_s=30)
        except JobFailed as problem:
            print(f"failed, and reported: {problem}")


if __name__ == "__main__":
    main()

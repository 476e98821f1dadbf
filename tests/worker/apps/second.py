"""A second app beside another: one type that only it has, and one that calls for the first app's."""

from tests.worker.apps.elsewhere import app as other
from windlass import App

app = App("second")


@app.job
def double(n: int) -> int:
    return 2 * n


@app.job(isolation="process")
def double_alone(n: int) -> str:
    return str(other.enqueue_named("threaded").id) if n < 0 else str(2 * n)

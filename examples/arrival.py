"""A job that waits without holding a thread: it looks, and snoozes until the next look. Snoozing burns no attempt."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import mkdtemp

from windlass import App, Fail, Snooze

app = App("arrival")


@app.job
def size_on_arrival(path: Path, until: datetime, look_s: float = 1.0) -> int:
    if path.exists():
        return path.stat().st_size
    if datetime.now(UTC) > until:
        raise Fail(f"{path} did not arrive by {until:%H:%M:%S}")
    raise Snooze(look_s)


def main() -> None:
    path = Path(mkdtemp()) / "parcel"
    with app:
        handle = size_on_arrival.enqueue(path, datetime.now(UTC) + timedelta(minutes=1))
        time.sleep(3)
        path.write_text("hello", encoding="utf-8")
        print(handle.result(timeout_s=30), "bytes")


if __name__ == "__main__":
    main()

"""The examples run as they stand: a worker in one terminal, the program in another."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from windlass.store.store import Store

ROOT = Path(__file__).parents[2]

SAID = {
    "mail": "'to': 'guest2@example.org'",
    "hello": "Hello, Ada!",
    "primes": "{'primes': 17984, 'threads': 4}",
    "stretch": "was cancelled: the example is over",
    "orders": "{'charged': 1999}",
    "match": "failed: TimedOut: ran longer than its timeout of 3 s",
    "arrival": "5 bytes",
    "sentry": "failed, and reported: ",
}


def test_every_example_is_tried() -> None:
    programs = {path.stem for path in (ROOT / "examples").glob("[a-z]*.py") if not path.stem.startswith("test_")}
    assert programs == set(SAID)


@pytest.mark.parametrize(("example", "said"), SAID.items(), ids=SAID.keys())
def test_an_example_does_what_it_says(url: str, store: Store, tmp_path: Path, example: str, said: str) -> None:
    environ = {**os.environ, "WINDLASS_DATABASE_URL": url, "TMPDIR": str(tmp_path)}
    worker = subprocess.Popen(
        [Path(sys.executable).with_name("windlass"), "worker", "--app", f"examples.{example}:app", "--threads", "4"],
        cwd=ROOT,
        env=environ,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        done = subprocess.run(
            [sys.executable, "-m", f"examples.{example}"],
            cwd=ROOT,
            env=environ,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
    finally:
        worker.terminate()
        log = worker.communicate(timeout=40)[1]
    assert said in done.stdout, f"{done.stdout}\n{done.stderr}\n{log}"
    assert done.returncode == 0, done.stderr
    assert worker.returncode == 0, log

"""What `windlass up` prints: a link and a token on a terminal, and neither where the output is kept."""

import os
import pty
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.e2e.household import CLEAN, WINDLASS
from tests.eventually import eventually

_SECRET = "a-secret-that-only-this-test-uses-0123456789"


@contextmanager
def shown_on(output: int, folder: Path, read: Callable[[], str]) -> Iterator[str]:
    """All that it prints on this descriptor until it is up. Its secret is set, so that a line for curl needs a token."""
    process = subprocess.Popen(
        [WINDLASS, "up", "--port", "0", "--data-dir", str(folder)],
        env={**CLEAN, "WINDLASS_AUTH_SECRET": _SECRET},
        stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield eventually(lambda: said if "Ctrl-C stops it." in (said := read()) else None, 60) or ""
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def test_a_file_holds_neither_a_link_nor_a_token(data_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "output"
    with file.open("w") as output, shown_on(output.fileno(), data_dir, file.read_text) as said:
        assert "code=" not in said
        assert "eyJ" not in said
        assert f"WINDLASS_DATA_DIR={data_dir} {WINDLASS} login" in said
        assert 'Authorization: Bearer $TOKEN"' in said


def test_a_terminal_shows_both(data_dir: Path) -> None:
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    heard = bytearray()

    def read() -> str:
        with suppress(BlockingIOError):
            heard.extend(os.read(ours, 65_536))
        return heard.decode()

    try:
        with shown_on(theirs, data_dir, read) as said:
            assert "/login?code=eyJ" in said
            assert "Authorization: Bearer eyJ" in said
    finally:
        os.close(ours)
        os.close(theirs)

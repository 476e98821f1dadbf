"""`windlass up` with WINDLASS_LOG_FORMAT=json: whoever writes, every line of its output is a JSON object."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.e2e.household import CLEAN, WINDLASS, gone
from tests.eventually import eventually

APP = """
import subprocess, threading, warnings
from windlass import App

app = App("noisy")
print("printed at import")

@app.job(max_attempts=1)
def noisy() -> None:
    print("printed by a handler")
    warnings.warn("warned by a handler")
    subprocess.run("echo written by a program >&2", shell=True, check=True)
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    raise ValueError("several\\nlines")

@app.job(isolation="process", max_attempts=1)
def crashing() -> None:
    print("printed in a child")
    import ctypes
    ctypes.string_at(0)
"""


class Output:
    """What it has written so far to both streams."""

    def __init__(self, file: Path, process: "subprocess.Popen[bytes]") -> None:
        self._file = file
        self.process = process

    def lines(self) -> list[dict[str, Any]]:
        """Every whole line as an object; fails at the first that is none."""
        whole = self._file.read_text().rpartition("\n")[0].splitlines()
        found = [json.loads(line) for line in whole]
        assert all(isinstance(line, dict) for line in found)
        return found

    def one(self, event: str, **fields: Any) -> dict[str, Any]:
        """The first line with that event and these fields, once it is there."""

        def there() -> list[dict[str, Any]]:
            return [line for line in self.lines() if event in line["event"] and fields.items() <= line.items()]

        return eventually(there, 60)[0]


@contextmanager
def noisy(folder: Path, *args: str, **environ: str) -> Iterator[Output]:
    (folder / "noisy.py").write_text(APP)
    file = folder / "output"
    with file.open("wb") as output:
        process = subprocess.Popen(
            [WINDLASS, "up", "--port", "0", "--data-dir", str(folder / "data"), *args],
            env={**CLEAN, "WINDLASS_LOG_FORMAT": "json", **environ},
            cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield Output(file, process)
    finally:
        process.kill()
        process.wait()


def test_every_line_of_its_output_is_json_from_the_first_to_the_last(in_memory: Path) -> None:
    folder = in_memory / "json"
    folder.mkdir()
    with noisy(folder, "--app", "noisy:app", WINDLASS_NOT_A_SETTING="1") as output:
        assert output.one("WINDLASS_NOT_A_SETTING sets nothing")["level"] == "warning"
        report = output.one("Windlass is up")
        assert "login" not in report
        environ = {**CLEAN, "WINDLASS_DATA_DIR": str(folder / "data")}
        for type_ in ("noisy", "crashing"):
            subprocess.run([WINDLASS, "submit", type_], env=environ, check=True, capture_output=True)
        dead = output.one("job dead-lettered", type="noisy")
        assert dead["error"] == "ValueError: several\nlines"
        assert "in noisy" in dead["exception"]
        for said in ("at import", "by a handler", "in a child"):
            output.one(f"printed {said}", source="the worker")
        output.one("written by a program", source="the worker")
        assert output.one("ended by an error that nobody has caught")["exception"].endswith("division by zero")
        assert "warned by a handler" in output.one("UserWarning")["event"]
        output.one("job dead-lettered", type="crashing")
        everyone = psutil.Process(output.process.pid).children(recursive=True)
        (worker,) = [each for each in everyone if each.cmdline()[2:4] == ["windlass", "worker"]]
        family = [worker, *worker.children(recursive=True)]
        worker.kill()
        eventually(lambda: gone(family), 60)  # its guard, too, which needs the database
        assert output.one("the worker has ended by SIGKILL; it is started again")["level"] == "warning"
        output.process.send_signal(signal.SIGTERM)
        assert output.process.wait(60) == 0
        assert output.lines()[-1]["event"] == "Windlass is stopped"
        eventually(lambda: gone(everyone), 30)
        events = [line["event"] for line in output.lines()]
        assert "code=" not in (folder / "output").read_text(), "a link that logs its reader in is no log line"
    started, stopped = output.one("API started"), output.one("API stopped")
    assert started["address"] == report["url"] == stopped["address"]
    assert started["pid"]
    assert started["version"]
    assert events.index("API started") < events.index("API draining: requests in progress may finish")


def test_what_keeps_it_from_starting_is_json_too(tmp_path: Path) -> None:
    with noisy(tmp_path, "--app", "nowhere:app", WINDLASS_THREADS="none") as output:
        assert output.process.wait(60) == 3
        (line,) = output.lines()
    assert (line["level"], "WINDLASS_THREADS" in line["event"]) == ("error", True)

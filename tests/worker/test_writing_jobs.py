"""The manual for writers of jobs is run as it stands."""

import re
from pathlib import Path
from typing import Any

from windlass.app import App
from windlass.config import WorkerConfig
from windlass.worker.registry import Defaults

PAGE = Path(__file__).parents[2] / "docs" / "writing-jobs.md"


def _run() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "shop"}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile("\n".join(blocks), str(PAGE), "exec"), names)
    return names


def test_the_manuals_code_declares_its_jobs_and_passes_its_own_test() -> None:
    names = _run()
    app = names["app"]
    assert isinstance(app, App)
    assert {"greet", "shrink", "webhook.received", "checksums", "pay", "charge", "welcome", "launch"} <= set(app.types)
    names["test_greet"]()


def test_the_manual_explains_every_option() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert set(rows) == {*Defaults._fields, "name"}
    assert rows["max_attempts"] == str(App("x").job(_run).max_attempts)
    assert rows["queue"].strip("`") == Defaults().queue


def test_the_manual_names_settings_that_exist() -> None:
    named = set(re.findall(r"WINDLASS_(STOP\w+)", PAGE.read_text(encoding="utf-8")))
    assert named <= {field.upper() for field in WorkerConfig.__dataclass_fields__}

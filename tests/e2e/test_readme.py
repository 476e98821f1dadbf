"""What the README shows is run as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.faults.node import node

ROOT = Path(__file__).parents[2]


def test_the_readme_s_job_is_the_example_that_comes_with_it() -> None:
    (shown,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert shown in (ROOT / "examples" / "hello.py").read_text()


def test_the_readme_s_job_runs_on_a_worker(url: str, tmp_path: Path) -> None:
    with node(url, tmp_path / "ledger", app="examples.hello:app", threads=8) as worker:
        worker.ready()
        answer = subprocess.run(
            [sys.executable, "-m", "examples.hello"], env={**os.environ, "WINDLASS_DATABASE_URL": url},
            cwd=ROOT, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
    assert (answer.stdout, answer.returncode) == ("Hello, Ada!\n", 0), answer.stderr

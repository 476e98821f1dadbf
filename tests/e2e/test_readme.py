"""What the README and the manual show is run as it stands, on a `windlass up` of its own; only the address differs, and where
a job's id is noted."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import copied
from tests.e2e.household import CLEAN, ROOT, Up, up

ADDRESS = "http://127.0.0.1:8080"
NOTED = "/tmp/windlass-job.json"  # another run of the tests may be using it
# Every answer must be a good one.
STRICT = 'set -euo pipefail\ncurl() { command curl --fail-with-body "$@"; echo; }\n'


@pytest.fixture(scope="module")
def running(prepared: Path, in_memory: Path) -> Iterator[Up]:
    with copied(prepared, in_memory) as folder, up("--app", "examples.hello:app", folder=folder) as made:
        yield made


def blocks(page: str, language: str = "sh") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def pasted(made: Up, *lines: str, cwd: Path = ROOT, strict: str = STRICT) -> str:
    script = strict + "\n".join(lines).replace(ADDRESS, made.url).replace(NOTED, str(made.folder / "job.json"))
    done = subprocess.run(
        ["bash", "-c", script], env={**CLEAN, "WINDLASS_DATA_DIR": str(made.folder)},
        cwd=cwd, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_every_line_of_the_readme_works_pasted(running: Up) -> None:
    shown = blocks("README.md")
    assert [block for block in shown if block.startswith("make")] == [
        "make up\n",
        'make up ARGS="--app examples.hello:app"\n',
    ]
    said = pasted(running, *(block for block in shown if not block.startswith("make")))
    assert '"status":"ready","duplicate":false' in said
    assert '"statuses":' in said
    assert '"error_type":"windlass.jobs.load.AskedToFail"' in said
    assert said.rstrip().endswith('"Hello, Ada!"')


def test_the_readmes_job_is_the_example_that_comes_with_it() -> None:
    (shown,) = blocks("README.md", "python")
    assert shown in (ROOT / "examples" / "hello.py").read_text(encoding="utf-8")


def test_every_call_in_the_manual_of_the_api_works_pasted(running: Up) -> None:
    shown = blocks("docs/api.md")
    (wrong,) = [block for block in shown if '"add_number"' in block]
    said = pasted(running, *(block for block in shown if block != wrong))
    assert '"duplicate":true' in said
    assert "event: job" in said
    assert '"reason":"tidying up"' not in said
    assert '"code":"unknown_type"' in pasted(running, shown[0], wrong, strict="")


def test_the_first_five_minutes_lead_to_a_job_type_of_ones_own(data_dir: Path, tmp_path: Path) -> None:
    """In a folder with nothing in it but the .venv of this one."""
    folder = tmp_path / "clone"
    folder.mkdir()
    (folder / ".venv").symlink_to(ROOT / ".venv")
    start, first, look, commands, own, again, submit, wrong = blocks("docs/quick-start.md")
    assert (start, again) == ("make up\n", 'make up ARGS="--app tasks:app"\n')
    with up(folder=data_dir, cwd=folder) as made:
        stored = pasted(made, first, cwd=folder)
        assert '"status":"ready"' in stored
        made.until(json.loads(stored)["id"], "completed")
        exports = [line for line in first.splitlines() if line.startswith("export")]
        assert '"result":"olleh"' in pasted(made, *exports, look, cwd=folder)
        assert "reverse_string" in pasted(made, commands, cwd=folder)
    with_app = pasted(made, own, cwd=folder)
    assert not with_app
    with up("--app", "tasks:app", folder=data_dir, cwd=folder) as made:
        assert "count_words" in made.report["types"]
        said = pasted(made, submit, wrong, cwd=folder)
        assert '"words": 3' in said or '"words":3' in said
        assert "payload.text: expected str, got int" in said
        assert "AskedToFail" in said


@pytest.mark.parametrize(
    "page", sorted(path.relative_to(ROOT).as_posix() for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
)
def test_every_link_of_the_manual_leads_somewhere(page: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", (ROOT / page).read_text(encoding="utf-8")):
        assert (ROOT / page).parent.joinpath(target).exists(), target

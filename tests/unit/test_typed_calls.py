"""Type checkers know the arguments and the result of every call: typed_calls.txt says what they must report, and where.

mypy runs always. pyright runs where it is installed (`pip install basedpyright` brings it with the Node.js it needs):
at 280 MB it is too large to come with every checkout.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLE = Path(__file__).with_name("typed_calls.txt").read_text(encoding="utf-8")
_SAID = re.compile(r"^(?P<indent> *)(?P<call>.*?)  # (?:R: (?P<revealed>.*)|(?P<error>E))$")


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """The sample as a program, with a reveal_type around each call whose type is said."""
    lines = []
    for line in SAMPLE.splitlines():
        said = _SAID.match(line)
        lines.append(f"{said['indent']}reveal_type({said['call']})" if said and said["revealed"] else line)
    path = tmp_path / "sample.py"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _expected() -> dict[int, str]:
    said = ((n, _SAID.match(line)) for n, line in enumerate(SAMPLE.splitlines(), start=1))
    return {n: found["revealed"] or "error" for n, found in said if found}


def _short(type_: str) -> str:
    """Without the modules, and as one of the checkers would say it for both."""
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)", "", type_)


def test_mypy_knows_the_arguments_and_the_result_of_every_call(sample: Path) -> None:
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--config-file=",
            "--no-error-summary",
            "--follow-imports=silent",
            sample,
        ],
        cwd=ROOT,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    reported: dict[int, str] = {}
    for line, kind, words in re.findall(r"^[^:\n]+:(\d+): (error|note): (.*)$", ran.stdout, re.MULTILINE):
        if kind == "error":
            reported[int(line)] = "error"
        elif revealed := re.match(r'Revealed type is "(.*)"', words):
            reported.setdefault(int(line), _short(revealed[1]))
    assert reported == _expected(), ran.stdout + ran.stderr


PYRIGHT = shutil.which("basedpyright") or shutil.which("pyright")


@pytest.mark.skipif(PYRIGHT is None, reason="pyright is not installed")
def test_pyright_knows_the_arguments_and_the_result_of_every_call(sample: Path) -> None:
    settings = {
        "typeCheckingMode": "standard",
        "extraPaths": [str(ROOT / "src")],
        "venvPath": str(ROOT),
        "venv": ".venv",
        "pythonVersion": "3.11",
    }
    sample.with_name("pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [str(PYRIGHT), "-p", str(sample.parent), "--outputjson"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    reported: dict[int, str] = {}
    for found in json.loads(ran.stdout)["generalDiagnostics"]:
        line = found["range"]["start"]["line"] + 1
        if found["severity"] == "error":
            reported[line] = "error"
        elif revealed := re.match(r'Type of ".*" is "(.*)"', found["message"], re.DOTALL):
            reported.setdefault(line, _short(revealed[1]))
    assert reported == _expected(), ran.stdout + ran.stderr

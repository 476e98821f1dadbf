"""A command in this process: its words, its environment, its input and what it prints are its own, and the exit code is
what the program's would be. Most of what a command costs is the start of Python and the imports, which are paid once here.
What is about processes (signals, terminals, the program itself) starts one."""

import io
import os
import subprocess
import sys

import pytest

from tests.e2e.household import CLEAN
from windlass.cli import main

Done = subprocess.CompletedProcess[str]


def command(*words: str, given: str = "", **environ: str) -> Done:
    """Run `windlass` with these words."""
    said, complained = _stream(), _stream()
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ.keys() - CLEAN.keys():
            patch.delenv(name)
        for name, value in environ.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["windlass", *words])
        patch.setattr(sys, "stdin", _stream(given))
        patch.setattr(sys, "stdout", said)
        patch.setattr(sys, "stderr", complained)
        with pytest.raises(SystemExit) as ended:
            main()
    assert isinstance(ended.value.code, int)
    return Done(["windlass", *words], ended.value.code, _written(said), _written(complained))


def _stream(text: str = "") -> io.TextIOWrapper:
    """What a pipe is to a program."""
    return io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8", newline="\n", write_through=True)


def _written(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()

"""`windlass token create` prints a token, and nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.forgeries import SECRET
from tests.unit.test_tokens import PAIRS, pem
from windlass.auth.tokens import Verifier
from windlass.config import AuthConfig


def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")}
    return subprocess.run(
        [sys.executable, "-m", "windlass", "token", "create", *words],
        env=kept | environ, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_it_prints_a_token_and_nothing_else() -> None:
    done = run("--scope", "submit,read", "--ttl", "15m", "--subject", "ci", WINDLASS_AUTH_SECRET=SECRET)
    assert (done.returncode, done.stderr) == (0, "")
    actor = Verifier.of(AuthConfig(auth_secret=SECRET)).verify(done.stdout.removesuffix("\n"))
    assert actor.subject == "ci"
    assert actor.scopes == {"submit", "read"}
    assert actor.expires_s - actor.issued_s == 900


def test_it_finds_the_secret_in_the_data_folder(tmp_path: Path) -> None:
    assert run("--scope", "read", WINDLASS_DATA_DIR=str(tmp_path)).returncode == 3
    (tmp_path / "auth-secret").write_text(SECRET + "\n")
    told = json.loads(run("--scope", "read", "--json", WINDLASS_DATA_DIR=str(tmp_path)).stdout)
    assert Verifier.of(AuthConfig(auth_secret=SECRET)).verify(told["token"]).scopes == {"read"}
    assert told["expires_in"] == 3600


def test_it_signs_with_a_private_key() -> None:
    done = run("--scope", "admin", WINDLASS_AUTH_ALGORITHM="EdDSA", WINDLASS_AUTH_PRIVATE_KEY=pem(PAIRS["EdDSA"]))
    config = AuthConfig(auth_algorithm="EdDSA", auth_private_key=pem(PAIRS["EdDSA"]))
    assert Verifier.of(config).verify(done.stdout.strip()).scopes == {"admin"}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "--scope"),
        (("--scope", "root"), 2, "'root' is no scope"),
        (("--scope", "read", "--ttl", "2d"), 2, "WINDLASS_TOKEN_TTL_S"),
        (("--scope", "read", "--ttl", "0s"), 2, "WINDLASS_TOKEN_TTL_S"),
        (("--scope", "read", "--ttl", "soon"), 2, "no time"),
        (("--scope", "read", "--subject", "a\nb"), 2, "control character"),
    ],
)
def test_what_cannot_be_is_told_in_one_line_and_nothing_is_printed(
    words: tuple[str, ...], code: int, said: str
) -> None:
    done = run(*words, WINDLASS_AUTH_SECRET=SECRET)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert SECRET not in done.stderr


def test_without_authentication_there_is_nothing_to_make() -> None:
    done = run("--scope", "read", WINDLASS_AUTH="off")
    assert (done.returncode, done.stdout) == (3, "")

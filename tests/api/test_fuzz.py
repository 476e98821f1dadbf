"""The OpenAPI document is true: requests made from it, right and wrong ones, get no 5xx and no undocumented answer."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.served import Served, served, token
from tests.conftest import database
from windlass.embedded.postgres import EmbeddedPostgres

# Left out: whether all that is wrong is refused and all that is right accepted. What a schema cannot say (a cursor must come
# from a page, a key with another body is refused, a filter must not name both) would be reported as a fault.
ROOT = Path(__file__).parents[2]
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "ignored_auth",
)


@pytest.fixture(scope="module")
def api(postgres_server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with (
        database(postgres_server, "fuzzed") as url,
        served(url, tmp_path_factory.mktemp("api"), access_log="off", login_attempts=10_000) as api,
    ):
        yield api


# One worker: Python 3.11 cannot parse source in two threads at once ("AST constructor recursion depth mismatch").
@pytest.mark.timeout(240)
def test_whatever_the_document_allows_or_forbids_is_answered_as_it_says(api: Served, tmp_path: Path) -> None:
    run = subprocess.run(
        [
            Path(sys.executable).with_name("schemathesis"), "run", f"http://127.0.0.1:{api.port}/openapi.json",
            "--header", f"Authorization: Bearer {token('admin')}", "--checks", ",".join(CHECKS),
            "--phases", "examples,coverage,fuzzing,stateful", "--max-examples", "5", "--workers", "1", "--seed", "7",
            "--exclude-path", "/v1/events", "--continue-on-failure", "--warnings", "off", "--no-color",
        ],
        cwd=tmp_path, env={**os.environ, "SCHEMATHESIS_HOOKS": "tests.api.fuzz_hooks", "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr[-2_000:]
    assert api.process.poll() is None
    assert "Traceback" not in api.log.read_text()

"""The memory limit of isolated jobs: met inside the child, told as what it is, and of no concern to other jobs."""

import asyncio

import pytest

from tests.worker.isolating import a_run, isolated, ran, result
from windlass.errors import Misconfigured
from windlass.lifecycle import Failed
from windlass.worker.isolation import Isolation
from windlass.worker.registry import Defaults, JobType


@pytest.mark.parametrize("type_", ["limited", "alimited"])
async def test_a_job_beyond_its_limit_fails_with_the_limit_in_its_error(isolation: Isolation, type_: str) -> None:
    assert await result(isolation, type_, {"mib": 40}) == 40 << 20
    outcome = await ran(isolation, type_, {"mib": 200})
    assert isinstance(outcome, Failed)
    assert not outcome.final
    assert outcome.error.type == "MemoryError"
    assert "memory_limit_mb of 64 MiB" in outcome.error.message


async def test_jobs_without_a_limit_are_not_bound_by_that_of_a_job_before_them() -> None:
    isolation = isolated(threads=1)
    try:
        limited = a_run("limited", {"mib": 1})
        await isolation.run(limited)
        assert isinstance(await result(isolation, "hoard", {"mib": 200}), int)
    finally:
        await isolation.aclose()


async def test_a_child_that_ran_out_of_memory_gets_no_other_job() -> None:
    isolation = isolated(threads=1)
    try:
        before = await result(isolation, "pid")
        assert await result(isolation, "pid") == before
        assert isinstance(await ran(isolation, "limited", {"mib": 200}), Failed)
        assert await result(isolation, "pid") != before
    finally:
        await isolation.aclose()


async def test_what_a_job_leaves_behind_counts_against_the_next_limit_and_a_new_child_cures_it() -> None:
    isolation = isolated(threads=1)
    try:
        await result(isolation, "hoard", {"mib": 100})
        assert isinstance(await ran(isolation, "limited", {"mib": 1}), Failed)
        assert await result(isolation, "limited", {"mib": 1}) == 1 << 20
    finally:
        await isolation.aclose()


def test_a_limit_needs_a_process_of_its_own_and_a_size() -> None:
    async def handler() -> None:
        await asyncio.sleep(0)

    for wrong in (Defaults(memory_limit_mb=64), Defaults(memory_limit_mb=0, isolation="process")):
        with pytest.raises(Misconfigured, match="memory_limit_mb"):
            JobType(handler, "handler", wrong)
    assert JobType(handler, "handler", Defaults(memory_limit_mb=64, isolation="process")).memory_limit_mb == 64

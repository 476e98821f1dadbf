"""Chunks: every item once, in order, whatever the numbers; errors and requests to stop come through."""

import os
import threading
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.values import lease
from windlass.worker.chunks import over_processes, over_threads, split
from windlass.worker.context import AsyncContext, Context
from windlass.worker.registry import JobType
from windlass.worker.run import Run, Stopped


@given(st.lists(st.integers(), max_size=50), st.integers(1, 12))
def test_chunks_are_the_data_in_order_and_nearly_equal(data: list[int], parts: int) -> None:
    chunks = split(data, parts)
    assert [item for chunk in chunks for item in chunk] == data
    assert len(chunks) == min(len(data), parts)
    assert max(map(len, chunks), default=0) - min(map(len, chunks), default=0) <= 1


def test_the_first_error_of_a_chunk_is_raised_when_all_have_ended() -> None:
    ended: list[int] = []

    def part(chunk: list[int]) -> None:
        ended.append(chunk[0])
        if chunk[0] == 1:
            raise ValueError("one")

    with pytest.raises(ValueError, match="one"):
        over_threads(part, [[0], [1], [2]])
    assert sorted(ended) == [0, 1, 2]


def test_a_request_to_stop_overrules_what_the_chunks_made_of_it() -> None:
    def part(chunk: list[int]) -> None:
        raise ValueError("chunk") if threading.current_thread() is not threading.main_thread() else Stopped

    with pytest.raises(Stopped):
        over_threads(part, [[0], [1]])


def test_processes_work_on_chunks_beside_each_other() -> None:
    found = over_processes(_pid_and_sum, [[1, 2], [3, 4]])
    assert [total for _, total in found] == [3, 7]
    assert os.getpid() not in {pid for pid, _ in found}


def test_an_error_in_a_process_comes_back_whole() -> None:
    with pytest.raises(ZeroDivisionError):
        over_processes(_divides, [[1], [0]])


async def test_chunks_go_to_threads_or_to_processes_and_nowhere_else() -> None:
    run = Run(lease(), JobType(_divides), 0.0, 0)
    nowhere: Any = "bogus"
    with pytest.raises(ValueError, match="on= is threads or processes, not 'bogus'"):
        Context(run, cast("Any", None)).map_chunks(_divides, [1], on=nowhere)
    with pytest.raises(ValueError, match="on= is threads or processes"):
        await AsyncContext(run, cast("Any", None)).map_chunks(_divides, [1], on=nowhere)


def _pid_and_sum(chunk: list[int]) -> tuple[int, int]:
    return os.getpid(), sum(chunk)


def _divides(chunk: list[int]) -> Any:
    return 1 / chunk[0]

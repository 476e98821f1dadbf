"""Submissions in chunks that the API takes: bounded in number and in bytes, whatever iterable they come from."""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from typing import Any, Final, TypeAlias

from windlass import wire
from windlass.errors import InvalidJob, RequestError
from windlass.sdk import asks

One: TypeAlias = wire.Submission | Mapping[str, Any]
Submissions: TypeAlias = Iterable[One] | AsyncIterable[One]

chunk_max: Final = 10_000
_BYTES_MAX: Final = 16 * 1_048_576  # half of what the API takes unless told otherwise


async def chunks(jobs: Submissions, size: int) -> AsyncIterator[list[bytes]]:
    """Each job a line, with a key of its own, so that a chunk may be sent again."""
    if not 1 <= size <= chunk_max:
        raise RequestError(f"a chunk is 1 to {chunk_max:,} jobs, not {size:,}")
    lines: list[bytes] = []
    total = place = 0
    async for job in _each(jobs):
        line = asks.line(asks.keyed(_known(job, place))[0])
        if lines and (len(lines) >= size or total + len(line) > _BYTES_MAX):
            yield lines
            lines, total = [], 0
        lines.append(line)
        total += len(line) + 1
        place += 1
    if lines:
        yield lines


def _known(job: One, place: int) -> wire.Submission:
    """The job as a submission; one that is none is refused by its place."""
    if isinstance(job, wire.Submission):
        return job
    if not isinstance(job, Mapping):
        raise InvalidJob(f"jobs[{place}]", f"must be a mapping like {{'type': …}}, not {type(job).__qualname__}")
    said = dict(job)
    try:
        return asks.submission(said.pop("type", ""), said.pop("payload", None), **said)
    except TypeError as error:
        raise InvalidJob(f"jobs[{place}]", str(error)) from None
    except InvalidJob as error:
        raise type(error)(f"jobs[{place}].{error.field}", error.problem) from None


async def _each(jobs: Submissions) -> AsyncIterator[One]:
    if isinstance(jobs, AsyncIterable):
        async for job in jobs:
            yield job
    else:
        for job in jobs:
            yield job

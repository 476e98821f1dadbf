"""The ids of jobs as people write them: whole, or only their first characters.

An id begins with the time of its job, so its first eight characters are shared by all jobs of a minute, its first twelve (with a
dash) by those of a millisecond. What fits several jobs is refused, with the first of them named.
"""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

import typer

from windlass.errors import JobNotFound, RequestError

if TYPE_CHECKING:
    from windlass.sdk.asks import Job
    from windlass.sdk.http import Client

Id = Annotated[str, typer.Argument(help="The job; its first 8 characters or more will do.", metavar="ID")]
Ids = Annotated[list[str] | None, typer.Argument(help="The jobs; else say which by options.", metavar="[ID]...")]

_LEAST: Final = 8
_DIGITS: Final = 32
_SHOWN: Final = 5


def resolve(client: "Client", text: str) -> UUID:
    """The one job that is meant. Raises JobNotFound, or RequestError where several are."""
    digits = text.strip().replace("-", "").lower()
    if not re.fullmatch(rf"[0-9a-f]{{{_LEAST},{_DIGITS}}}", digits):
        raise typer.BadParameter(f"{text!r} is no job's id, nor the first {_LEAST} characters or more of one")
    if len(digits) == _DIGITS:
        return UUID(digits)
    found = list(_beginning_with(client, digits))
    if not found:
        raise JobNotFound(text)
    if len(found) > 1:
        named = ", ".join(f"{job.id} ({job.type}, {job.status})" for job in found[:_SHOWN])
        more = " and others" if len(found) > _SHOWN else ""
        raise RequestError(f"several jobs begin with {text}: {named}{more}")
    return found[0].id


def resolve_all(client: "Client", texts: Iterable[str] | None) -> list[UUID]:
    return [resolve(client, text) for text in texts or ()]


def _beginning_with(client: "Client", digits: str) -> "Iterator[Job]":
    """Jobs whose ids have these first digits, newest first, one more than are shown: one page of a list that begins there."""
    from windlass.sdk import asks  # noqa: PLC0415 - help and completion do without

    least, last = int(digits.ljust(_DIGITS, "0"), 16), int(digits.ljust(_DIGITS, "f"), 16)
    beyond = None if last == 2**128 - 1 else str(UUID(int=last + 1))
    for job in client.ask(asks.jobs({}, limit=_SHOWN + 1, cursor=beyond)).jobs:
        if job.id.int >= least:
            yield job

"""`windlass jobs logs --follow`: what a job writes, line by line, until it is finished.

Asked once a second. The log of a running attempt only grows at its end, so what was printed is not printed again.
"""

import time
from itertools import takewhile
from typing import TYPE_CHECKING, Final
from uuid import UUID

from windlass.cli.output import clean_lines, note, say, say_json
from windlass.model import FINISHED

if TYPE_CHECKING:
    from windlass.sdk.http import Client

_PAUSE_S: Final = 1.0
_ENDS: Final = frozenset(status.value for status in FINISHED)


def follow(client: "Client", job_id: UUID, *, as_json: bool) -> None:
    from windlass.sdk import asks  # noqa: PLC0415 - help and completion do without

    printed: dict[int, str] = {}
    while True:
        # The job first: what it wrote before it was finished is in the logs that are read after.
        job = client.ask(asks.job(job_id, fresh=True))
        for log in client.logs(job_id, follow=True):
            new = added(printed.get(log.attempt, ""), log.text)
            if new:
                _print(log.attempt, new, first=log.attempt not in printed, as_json=as_json)
                printed[log.attempt] = log.text
        if job.status in _ENDS:
            if not as_json:
                note(f"{job.id} is {job.status}")
            return
        time.sleep(_PAUSE_S)


def added(before: str, now: str) -> str:
    """The lines that have come since. The last line of before may have been a count of lines left out, which changes."""
    old, new = before.split("\n"), now.split("\n")
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
    return "\n".join(new[same:])


def _print(attempt: int, text: str, *, first: bool, as_json: bool) -> None:
    if as_json:
        say_json({"attempt": attempt, "text": text})
        return
    if first:
        say(f"attempt {attempt}")
    say(clean_lines(text).rstrip())

"""What a worker and the child of an isolated job say to each other: msgpack behind its length, over a pair of sockets.

The worker says Start once, then Work for one job after another; the child answers Ready or Refused, and for each job
Begun, any number of Line and Progress, and Done. Everything said by the child is bounded: its handler's results, errors
and logs are cut where they are made.

To a template (template.py) it says Start, then Fork and Reap, one message a packet, and waits for each answer: Ready,
Refused or Unfit; Forked or NotForked; Reaped. A child that was forked says Ready unasked.
"""

import asyncio
import socket
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from windlass.lifecycle import (
    Cancelled,
    Completed,
    Failed,
    Held,
    Lost,
    Outcome,
    Released,
    Snoozed,
    TimedOut,
    Written,
    error_chars_max,
    written,
)
from windlass.model import Error, Lease

_HEAD_BYTES: Final = 4
# More than the largest result, error and line; a child that says more is broken.
_HEARD_BYTES_MAX: Final = 16 * 1_048_576


class Start(msgspec.Struct, tag=True):
    """Who you are: import `app`."""

    app: str
    worker: str | None
    config: dict[str, dict[str, Any]]


class Work(msgspec.Struct, tag=True):
    """Run this attempt."""

    lease: Lease
    began_s: float


class Ready(msgspec.Struct, tag=True):
    """The app is imported."""


class Refused(msgspec.Struct, tag=True):
    """The app cannot be imported."""

    problem: str


class Begun(msgspec.Struct, tag=True):
    """From here on a crash is the job's."""


class Line(msgspec.Struct, tag=True):
    """One line of the attempt's log."""

    text: str


class Progress(msgspec.Struct, tag=True):
    fraction: float
    note: str | None


class Done(msgspec.Struct, tag=True):
    """The attempt has ended. `dropped` lines of its log were not sent; `settled`: it finished in a transaction."""

    kind: str
    fields: list[Any]
    dropped: int
    settled: bool


class Fork(msgspec.Struct, tag=True):
    """Make a child of yourself. With it come its end of the channel and the place for its last words."""


class Reap(msgspec.Struct, tag=True):
    """That child has ended: wait for it."""

    pid: int


class Unfit(msgspec.Struct, tag=True):
    """The app is imported, but left something behind that must not be forked."""

    problem: str


class Forked(msgspec.Struct, tag=True):
    """With it comes the pidfd of the child."""

    pid: int


class NotForked(msgspec.Struct, tag=True):
    problem: str


class Reaped(msgspec.Struct, tag=True):
    code: int


ToChild = Start | Work
FromChild = Ready | Refused | Begun | Line | Progress | Done
ToTemplate = Start | Fork | Reap
FromTemplate = Ready | Refused | Unfit | Forked | NotForked | Reaped
# More than any configuration; neither side says more at once.
packet_bytes_max: Final = 65_536

_encoder: Final = msgspec.msgpack.Encoder()
_to_child: Final = msgspec.msgpack.Decoder(ToChild)
_from_child: Final = msgspec.msgpack.Decoder(FromChild)
to_template: Final = msgspec.msgpack.Decoder(ToTemplate)
from_template: Final = msgspec.msgpack.Decoder(FromTemplate)
_KINDS: Final[Mapping[str, type[Any]]] = {
    each.__name__: each for each in (Completed, Failed, TimedOut, Snoozed, Cancelled, Lost, Released, Held)
}


def framed(message: ToChild | FromChild) -> bytes:
    body = _encoder.encode(message)
    return len(body).to_bytes(_HEAD_BYTES, "big") + body


def packet(message: ToTemplate | FromTemplate) -> bytes:
    return _encoder.encode(message)


# In the worker. -------------------------------------------------------------------------------------------------------


async def heard(reader: asyncio.StreamReader) -> FromChild | None:
    """The next message; None once the child is gone. Raises ValueError for what no child of ours says."""
    try:
        size = int.from_bytes(await reader.readexactly(_HEAD_BYTES), "big")
        if size > _HEARD_BYTES_MAX:
            raise ValueError(f"a message of {size:,} bytes")
        body = await reader.readexactly(size)
    except (OSError, EOFError):
        return None
    message: FromChild = _from_child.decode(body)
    return message


def outcome_heard(done: Done) -> Outcome:
    if done.kind == "Completed":
        return Completed(msgspec.convert(done.fields[0], Written | None))
    outcome: Outcome = msgspec.convert(done.fields, _KINDS[done.kind])
    return outcome


# In the child. --------------------------------------------------------------------------------------------------------


def receive(channel: socket.socket) -> ToChild | None:
    """The next message; None once the worker has let go of this child."""
    head = _exactly(channel, _HEAD_BYTES)
    body = head and _exactly(channel, int.from_bytes(head, "big"))
    return _to_child.decode(body) if body else None


def _exactly(channel: socket.socket, size: int) -> bytearray | None:
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        try:
            read = channel.recv_into(view[at:])
        except ConnectionResetError:  # the worker was killed before it had read what we said last
            return None
        if read == 0:
            return None
        at += read
    return data


def said(outcome: Outcome, *, dropped: int, settled: bool) -> Done:
    """An outcome as it travels. A handler can put anything into one: what cannot travel raises here, in its process."""
    if isinstance(outcome, Completed):
        known = outcome.result is None or isinstance(outcome.result, Written)
        fields: list[Any] = [outcome.result if known else written(outcome.result)]
    else:
        fields = list(msgspec.convert([_plain(value) for value in outcome], type(outcome)))
    return Done(type(outcome).__name__, fields, dropped, settled)


def _plain(value: Any) -> Any:
    if isinstance(value, Error):
        # The end of a traceback says what went wrong.
        return Error(plain_text(value.type), plain_text(value.message), plain_text(value.traceback[-error_chars_max:]))
    return plain_text(value) if isinstance(value, str) else value


def plain_text(text: str) -> str:
    """Cut, and without the lone surrogates that no frame can carry."""
    return text[:error_chars_max].encode(errors="replace").decode()

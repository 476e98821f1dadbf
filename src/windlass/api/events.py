"""What the event streams tell: the state of the cluster, whenever it has changed, to whoever listens.

Nothing is queued. One reader per process looks at the store while anyone listens; each stream remembers what its client
has and is told how the newest state differs from that. So a slow client skips what is past, and one that comes back
with the id of its last event, to any process, gets only what has changed meanwhile. Knows nothing of HTTP.
"""

import asyncio
import logging
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Literal, Self
from uuid import UUID

import msgspec

from windlass.api.cluster_shapes import FIRST, lines_max, queues_told, stats_told, workers_told
from windlass.config import Config
from windlass.errors import Unavailable
from windlass.model import FINISHED, Queue, Status, Worker
from windlass.store.protocol import Views
from windlass.wire import Place, Told

Topic = Literal["stats", "queues", "workers", "jobs"]
topics: Final[tuple[Topic, ...]] = ("stats", "queues", "workers", "jobs")
watched_max: Final = 100

_LEAST_S: Final = 0.25  # between two looks while things move
_MOST_S: Final = 1.0  # while nothing does
_NEWCOMER_S: Final = 0.05  # a stream that has just opened waits no longer for what it watches
_BACK_OFF_MOST_S: Final = 5.0
_GOODBYE_S: Final = 1.0
_log: Final = logging.getLogger(__name__)
_encode: Final = msgspec.json.Encoder().encode

# One letter for each place of a watched job, in the id of an event; "-": there is no such job; "?": not told yet.
_LETTERS: Final[Mapping[Status | None, str]] = {
    Status.SCHEDULED: "s",
    Status.HELD: "h",
    Status.READY: "q",
    Status.RUNNING: "r",
    Status.COMPLETED: "c",
    Status.FAILED: "f",
    Status.CANCELLED: "x",
    None: "-",
}
_UNTOLD: Final = "?"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing told. `id` names the whole state that its reader then has."""

    name: str
    id: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Fact:
    """A topic's state, encoded once for all streams; `mark` is a digest of what matters in it."""

    mark: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Picture:
    """What the reader saw last."""

    facts: Mapping[Topic, Fact] = field(default_factory=dict)
    places: Mapping[UUID, Status | None] = field(default_factory=dict)


class Stream:
    """What one client has been told. Made by Events.open; leave it by `close`."""

    def __init__(self, wanted: Collection[Topic], jobs: Iterable[UUID], last_id: str | None) -> None:
        self.topics = [topic for topic in topics[:3] if topic in wanted]
        self.jobs = sorted(set(jobs)) if "jobs" in wanted else []
        self._watched = _mark(b"".join(job.bytes for job in self.jobs)) if self.jobs else ""
        self._marks: dict[str, str] = dict.fromkeys(self.topics, "")
        self._letters = [_UNTOLD] * len(self.jobs)
        if last_id:
            self._take_up(last_id)

    def _take_up(self, last_id: str) -> None:
        """Begin where another stream ended. An id that says nothing of this stream is as good as none."""
        marks = last_id.split(".")
        if len(marks) != 5:
            return
        for topic, mark in zip(topics[:3], marks, strict=False):
            if topic in self._marks:
                self._marks[topic] = mark
        if marks[3] == self._watched and len(marks[4]) == len(self.jobs):
            self._letters = list(marks[4])

    @property
    def id(self) -> str:
        marks = (self._marks.get(topic, "") for topic in topics[:3])
        return ".".join((*marks, self._watched, "".join(self._letters)))

    def news(self, picture: Picture) -> list[Event]:
        """How this picture differs from what the client has, which then has it."""
        events = [
            self._told_job(n, job, picture.places[job])
            for n, job in enumerate(self.jobs)
            if job in picture.places and self._letters[n] != _LETTERS[picture.places[job]]
        ]
        for topic in self.topics:
            fact = picture.facts.get(topic)
            if fact is not None and fact.mark != self._marks[topic]:
                self._marks[topic] = fact.mark
                events.append(Event(topic, self.id, fact.data))
        return events

    def _told_job(self, n: int, job: UUID, status: Status | None) -> Event:
        self._letters[n] = _LETTERS[status]
        return Event("job", self.id, _encode(Place(id=job, status=None if status is None else status.value)))


class Events:
    """The streams of this process and their one reader."""

    def __init__(self, views: Views, config: Config, *, least_s: float = _LEAST_S, most_s: float = _MOST_S) -> None:
        self.closed = asyncio.Event()
        self._views = views
        self._streams_max = config.api.streams_max
        self._least_s = least_s
        self._most_s = most_s
        self._streams: set[Stream] = set()
        self._picture = Picture()
        self._turned = asyncio.Event()  # set, and replaced, with every new picture
        self._wanted = asyncio.Event()  # someone came, or the last one left
        self._reader: asyncio.Task[None] | None = None
        self.looks = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        if self._reader is not None:  # on a silent network it takes long to give up a look
            await asyncio.wait([self._reader], timeout=_GOODBYE_S)

    @property
    def closing(self) -> bool:
        return self.closed.is_set()

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    def open(self, wanted: Collection[Topic] = topics, jobs: Sequence[UUID] = (), last_id: str | None = None) -> Stream:
        """Begin to listen. Raises Unavailable if as many do already as may."""
        if self.closing:
            raise Unavailable("the server is shutting down")
        if len(self._streams) >= self._streams_max:
            raise Unavailable(f"{self._streams_max} event streams are open, and no more may be; ask again later")
        stream = Stream(wanted, jobs, last_id)
        self._streams.add(stream)
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read())
        self._wanted.set()
        return stream

    def leave(self, stream: Stream) -> None:
        """Stop listening."""
        self._streams.discard(stream)
        if not self._streams:
            self._wanted.set()

    async def next(self, stream: Stream) -> list[Event]:
        """All that is new to this stream, as soon as there is something; nothing when the server shuts down."""
        while not self.closing:
            turned = self._turned
            if events := stream.news(self._picture):
                return events
            await turned.wait()
        return []

    def close(self) -> None:
        """End every stream, for good."""
        self.closed.set()
        self._turned.set()
        if self._reader is not None:
            self._reader.cancel()

    # The reader. ---------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        """Look for as long as anyone listens; what was seen is forgotten with the last, for it ages."""
        pause_s = self._least_s
        troubled = False
        while self._streams:
            self._wanted.clear()
            try:
                moved = await self._look()
            except Exception as error:  # noqa: BLE001 - whatever it is, the streams live on and are told later
                if not troubled:
                    _log.warning("event streams stand still: %s", error, exc_info=not isinstance(error, Unavailable))
                troubled, pause_s = True, min(pause_s * 2, _BACK_OFF_MOST_S)
            else:
                troubled, pause_s = False, self._least_s if moved else min(pause_s * 1.5, self._most_s)
            await self._pause(pause_s)
        self._picture = Picture()

    async def _pause(self, pause_s: float) -> None:
        """Until it is time to look again: soon, if somebody comes meanwhile. Not at once: for a crowd that comes one by
        one we would look as often as it has heads."""
        newcomer_s = min(_NEWCOMER_S, pause_s)
        await asyncio.sleep(newcomer_s)
        try:
            async with asyncio.timeout(pause_s - newcomer_s):
                await self._wanted.wait()
        except TimeoutError:
            pass

    async def _look(self) -> bool:
        """Take a new picture of what anyone wants to know; says whether it, or a job someone waits for, is moving."""
        self.looks += 1
        wanted = {topic for stream in self._streams for topic in stream.topics}
        watched = {job for stream in self._streams for job in stream.jobs}
        places = await self._places(watched)
        picture = Picture({topic: await self._fact(topic) for topic in sorted(wanted)}, places)
        before, self._picture = self._picture, picture
        self._turned.set()
        self._turned = asyncio.Event()
        marks = {topic: fact.mark for topic, fact in picture.facts.items()}
        changed = marks != {topic: fact.mark for topic, fact in before.facts.items()}
        return changed or any(status is not None and status not in FINISHED for status in places.values())

    async def _places(self, watched: set[UUID]) -> dict[UUID, Status | None]:
        if not watched:
            return {}
        # A finished job may be retried, so it is looked at again like any other: it costs a probe of one index.
        found = await self._views.places(watched)
        return {job: found.get(job) for job in watched}

    async def _fact(self, topic: Topic) -> Fact:
        match topic:
            case "stats":
                return _fact(stats_told(await self._views.summary(lines=lines_max)))
            case "queues":
                return queues_fact(await self._views.queues(limit=FIRST.limit + 1))
            case _:
                return workers_fact(await self._views.workers())


def queues_fact(queues: Sequence[Queue]) -> Fact:
    """The age of the oldest grows by itself: alone it is no news, or an idle cluster would send four events a second."""
    told = queues_told(queues)
    ageless = [msgspec.structs.replace(queue, oldest_age_s=None) for queue in told.queues]
    return _fact(told, msgspec.structs.replace(told, queues=ageless))


def workers_fact(workers: Sequence[Worker]) -> Fact:
    """A renewed lease is no news, nor is the memory that comes with it; one that is no longer renewed shows in the status."""
    told = workers_told(workers)
    ageless = [
        msgspec.structs.replace(worker, renewed_at=worker.started_at, memory_bytes=None) for worker in told.workers
    ]
    return _fact(told, msgspec.structs.replace(told, workers=ageless))


def _fact(told: Told, judged: Told | None = None) -> Fact:
    data = _encode(told)
    return Fact(_mark(data if judged is None else _encode(judged)), data)


def _mark(data: bytes) -> str:
    """Eight characters: a client that has another state than it thinks would not be told, once in 10^14 times."""
    return urlsafe_b64encode(blake2b(data, digest_size=6).digest()).decode()

"""Which queues, undeclared types and tags submissions may name: those that are in use, and new ones while there
is room.

Without a bound anyone who may submit makes every list, count and fold longer for everybody. A name that this process
has seen before costs a look into a set; one that it has not, one statement. The queue that a type names as its own is
always good, and so is what programs with a database connection enqueue: they are trusted.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from windlass.clock import steady_s
from windlass.config import ApiConfig
from windlass.errors import InvalidJob, TooManyNames
from windlass.model import Declared, NameKind, NewJob, check_new_job
from windlass.store.protocol import Intake

_SEEN_MAX: Final = 100_000  # names of a kind that are remembered
# Names that nobody uses any more are forgotten by the leader: after so long this process asks for them again.
_SEEN_S: Final = 300.0
_FIELDS: Final[Mapping[NameKind, str]] = {"queue": "queue", "type": "type", "tag": "tags"}
_COMMON: Final = Declared("").queue


class Names:
    def __init__(self, intake: Intake, config: ApiConfig) -> None:
        self._intake = intake
        self._most: Mapping[NameKind, int] = {
            "queue": config.queues_max,
            "type": config.types_max,
            "tag": config.tags_max,
        }
        self._seen: Mapping[NameKind, set[str]] = {"queue": set(), "type": set(), "tag": set()}
        self._since_s = steady_s()

    def knows(self, job: NewJob, declared: Declared | None) -> bool:
        """Whether the job has no name that must be asked for. The hot path."""
        seen = self._seen
        return (
            (job.queue == (_COMMON if declared is None else declared.queue) or job.queue in seen["queue"])
            and (declared is not None or job.type in seen["type"])
            and (not job.tags or seen["tag"].issuperset(job.tags))
        )

    async def admit(self, jobs: Mapping[int, NewJob], undeclared: Collection[str]) -> tuple[int, InvalidJob] | None:
        """Note the new names of jobs, given by their places. Returns the first that cannot be taken, by its place,
        and why. `undeclared`: the types among theirs that no worker has declared."""
        self._forget()
        wanted: dict[NameKind, dict[str, int]] = {"queue": {}, "type": {}, "tag": {}}
        for place, job in jobs.items():
            try:
                check_new_job(job)
            except InvalidJob as error:
                return place, error
            for kind, name in self._unseen(job, undeclared):
                wanted[kind].setdefault(name, place)
        for kind, places in wanted.items():
            if not places:
                continue
            if refused := await self._intake.admit_names(kind, places, most=self._most[kind]):
                name = min(refused, key=places.__getitem__)
                return places[name], TooManyNames(_FIELDS[kind], kind, name, self._most[kind])
            self._seen[kind].update(places)
        return None

    def _unseen(self, job: NewJob, undeclared: Collection[str]) -> Iterator[tuple[NameKind, str]]:
        if job.queue not in self._seen["queue"]:
            yield "queue", job.queue
        if job.type in undeclared and job.type not in self._seen["type"]:
            yield "type", job.type
        for tag in job.tags:
            if tag not in self._seen["tag"]:
                yield "tag", tag

    def _forget(self) -> None:
        now_s = steady_s()
        if now_s - self._since_s >= _SEEN_S:
            self._since_s = now_s
            for seen in self._seen.values():
                seen.clear()
        for seen in self._seen.values():
            if len(seen) > _SEEN_MAX:
                seen.clear()

"""Lists of jobs: which ids belong on a page, found by SQL built from fixed pieces with every value bound.

Every list runs newest job first by id, so a job keeps its place while it moves between tables. One branch per table
the wanted jobs can sit in, each walking its own index downwards, merged at the top: no list sorts or counts a table.
A filter without an index of its own could walk for ever past jobs that do not match; such a page looks `SCAN` jobs
far and may come back short, with a cursor to go on from.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from windlass.errors import InvalidJob, InvalidQuery
from windlass.model import FINISHED, Status, check_text, type_name_max, unknown_type
from windlass.store.ids import least_at
from windlass.store.protocol import JobQuery

SCAN: Final = 20_000
page_max: Final = 200
ids_max: Final = 10_000
lines_max: Final = 32
_OUTCOMES: Final = ("outcome", "outcome_kept")
_TAGS: Final = ("tag", "tag_kept")
_FIRST: Final = UUID(int=0)
_LAST: Final = UUID(int=2**128 - 1)


def id_range(query: JobQuery, limit_max: int = page_max) -> tuple[UUID, UUID]:
    """The ids that can be on a page: from the first (included) to the second (not). Refuses what cannot be asked."""
    _check(query, limit_max)
    low = _FIRST if query.created_after is None else _moment("created_after", query.created_after)
    high = _LAST if query.created_before is None else _moment("created_before", query.created_before)
    if query.finished_before is not None:  # nothing finishes before it was created
        high = min(high, _moment("finished_before", query.finished_before))
    if query.text is not None and (prefix := _prefix_range(query.text)) is not None:
        low, high = max(low, prefix[0]), min(high, prefix[1])
    try:
        return low, high if query.cursor is None else min(high, UUID(query.cursor))
    except ValueError:
        raise InvalidQuery("cursor", "must be the next_cursor of an earlier page") from None


def _check(query: JobQuery, limit_max: int) -> None:
    if unknown := [status for status in query.statuses if status not in set(Status)]:
        raise InvalidQuery("statuses", f"there is no status {unknown[0]!r}")
    if not isinstance(query.limit, int) or not 1 <= query.limit <= limit_max:
        raise InvalidQuery("limit", f"must be from 1 to {limit_max:,}")
    if query.bodies_max is not None and not 0 <= query.bodies_max < 2**31:
        raise InvalidQuery("bodies_max", "must not be below zero")
    if query.fingerprint is not None and set(query.statuses) != {Status.FAILED}:
        raise InvalidQuery("fingerprint", "only failed jobs have one; ask for the status failed alone")
    if query.reason is not None and not set(query.statuses) <= {Status.HELD}:
        raise InvalidQuery("reason", "only held jobs have one; ask for the status held alone, or for none")
    if query.finished_after is not None:
        _moment("finished_after", query.finished_after)
    _check_texts(query)


def _check_texts(query: JobQuery) -> None:
    for field in ("type", "queue", "tag", "fingerprint", "reason", "worker", "text"):
        value = getattr(query, field)
        if value is not None:
            try:
                check_text(field, value, type_name_max)
            except InvalidJob as error:
                raise InvalidQuery(error.field, error.problem) from None


def _moment(field: str, moment: datetime) -> UUID:
    if moment.utcoffset() is None:
        raise InvalidQuery(field, "must be a moment with a time zone")
    return least_at(max(0.0, moment.timestamp()))


class Equals(NamedTuple):
    """A condition on a column; the value is bound where the condition is written down."""

    column: str
    value: str


class Matches(NamedTuple):
    """A condition written out, with one value in it. `{row}` and `{value}` are filled in where it is written down."""

    sql: str
    value: Any
    kind: str


Condition = Equals | Matches | str
Line = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Branch:
    """One table to look in, the conditions an index of it answers, and those it has to walk for."""

    table: str
    indexed: tuple[Condition, ...] = ()
    walked: tuple[Condition, ...] = ()


# As the statements of views.sql show it: `known` is theirs.
_PAUSED: Final = "exists (select from windlass.queue q where q.name = t.queue and q.paused)"
_STRANGE: Final = "coalesce(t.type <> all ((select k.types from known k)::text[]), false)"
_SHOWN_HELD: Final = f"({_PAUSED} or {_STRANGE})"
_SHOWN_FOR: Final = {"queue paused": _PAUSED, unknown_type: f"({_STRANGE} and not {_PAUSED})"}


# The name of a job is in its own row alone, wherever that is.
_NAMED: Final = (
    "(exists (select from windlass.job j where j.id = any (array[{row}.job_id]) and j.name ilike {value})"
    " or exists (select from windlass.job_kept j where j.id = any (array[{row}.job_id]) and j.name ilike {value}))"
)
_ERRED: Final = f"({{row}}.error ->> 'message' ilike {{value}} or {{row}}.error ->> 'type' ilike {{value}} or {_NAMED})"
_BY_WORKER: Final = "{row}.worker_id = any (array(select w.id from windlass.worker w where w.name = {value}))"
_ID_PREFIX: Final = re.compile(r"[0-9a-f]{8}(?:-?[0-9a-f]{0,4}){0,6}", re.IGNORECASE)


def branches(query: JobQuery, lines: Sequence[Line] | None) -> list[Branch]:
    """Where the wanted jobs can be, and what has to hold there."""
    return [
        replace(branch, walked=(*branch.walked, *searched(query, branch.table)))
        for branch in _branches(query, lines)
        if (branch.table in _OUTCOMES or not _is_finished_only(query))
        and (branch.table in (*_OUTCOMES, "running") or query.worker is None)
    ]


def _is_finished_only(query: JobQuery) -> bool:
    return query.finished_after is not None or query.finished_before is not None


def searched(query: JobQuery, table: str) -> list[Condition]:
    """The conditions that no index answers: every job on the way is looked at, `SCAN` of them for a page."""
    found: list[Condition] = []
    if query.worker is not None:
        found.append(Matches(_BY_WORKER, query.worker, "text"))
    if query.finished_after is not None:
        found.append(Matches("{row}.finished_at >= {value}", query.finished_after, "timestamptz"))
    if query.finished_before is not None:
        found.append(Matches("{row}.finished_at < {value}", query.finished_before, "timestamptz"))
    if query.text is not None and _prefix_range(query.text) is None:
        found.append(Matches(_ERRED if table in _OUTCOMES else _NAMED, f"%{_escaped(query.text)}%", "text"))
    return found


def _escaped(text: str) -> str:
    """A text as it is found literally by `ilike`."""
    return re.sub(r"([\\%_])", r"\\\1", text)


def _prefix_range(text: str) -> tuple[UUID, UUID] | None:
    """The ids that begin with this text; None if it is no beginning of an id."""
    digits = text.strip().replace("-", "")
    if not _ID_PREFIX.fullmatch(text.strip()) or len(digits) > 32:
        return None
    first = UUID(digits.ljust(32, "0"))
    last = int(digits.ljust(32, "f"), 16)
    return first, UUID(int=min(last + 1, 2**128 - 1))


def _branches(query: JobQuery, lines: Sequence[Line] | None) -> list[Branch]:
    """Where the wanted jobs can be. `lines`: the pairs of type and queue that finished jobs have, as far as the query
    asks for either; None if it asks for neither, or if there are too many to look at one by one."""
    statuses = frozenset(map(Status, query.statuses)) or frozenset(Status)
    given = (("type", query.type), ("queue", query.queue))
    filters = tuple(Equals(column, value) for column, value in given if value is not None)
    if query.reason is not None:
        shown = [Branch("ready", walked=(*filters, _SHOWN_FOR[query.reason]))] if query.reason in _SHOWN_FOR else []
        return [Branch("held", walked=(*filters, Equals("reason", query.reason))), *shown]
    found = [
        Branch(status.value, walked=filters)
        for status in (Status.SCHEDULED, Status.HELD, Status.RUNNING)
        if status in statuses
    ]
    if {Status.READY, Status.HELD} <= statuses:
        found.append(Branch("ready", walked=filters))
    elif Status.READY in statuses:
        found.append(Branch("ready", walked=(*filters, f"not {_SHOWN_HELD}")))
    elif Status.HELD in statuses:
        found.append(Branch("ready", walked=(*filters, _SHOWN_HELD)))
    if statuses >= FINISHED:
        return found + _by_line(lines, (), filters)
    for status in sorted(statuses & FINISHED):
        # Written out, not bound: a partial index is used only where its condition can be read in the text.
        is_status = f"t.status = '{status.value}'"
        if status is Status.COMPLETED:  # most of their table, so without an index of their own
            found += _by_line(lines, (is_status,), filters)
        elif query.fingerprint is not None:
            mark = Equals("fingerprint", query.fingerprint)
            found += [Branch(table, (is_status, mark), filters) for table in _OUTCOMES]
        else:
            found += [Branch(table, (is_status, *filters[:1]), filters[1:]) for table in _OUTCOMES]
    return found


def _by_line(lines: Sequence[Line] | None, walked: tuple[Condition, ...], filters: tuple[Equals, ...]) -> list[Branch]:
    if lines is None:
        return [Branch(table, (), (*walked, *filters)) for table in _OUTCOMES]
    return [
        Branch(table, (Equals("type", line[0]), Equals("queue", line[1])), walked)
        for line in lines
        for table in _OUTCOMES
    ]


class Search:
    """Writes the SQL of one query; `args` are its values so far."""

    def __init__(self, query: JobQuery, lines: Sequence[Line] | None) -> None:
        self.args: list[Any] = []
        self._query = query
        self._branches = branches(query, lines)
        self._low, self._high = id_range(query, ids_max)

    @property
    def finds_nothing(self) -> bool:
        return not self._branches

    def bound(self) -> str | None:
        """SQL for the id this page may not look below, if some branch has to walk."""
        if self._query.tag is None:
            walks = [self._select(b.table, b.indexed) for b in self._branches if b.walked]
            share = len(walks)
        else:  # not both: every value bound must be used. A tagged job is looked for in every table it may sit in.
            walks = [self._select(table, (Equals("tag", self._query.tag),)) for table in _TAGS]
            share = 8
        if not walks:
            return None
        far = max(1, SCAN // share)
        ends = " union all ".join(f"(select ({walk} offset {far} limit 1) as id)" for walk in walks)
        return f"select e.id from ({ends}) e where e.id is not null order by e.id desc limit 1"

    def page(self, bound: UUID | None) -> str:
        """SQL for the ids of the page, newest first, and one more to tell whether others follow."""
        self._low = bound or self._low
        if self._query.tag is None:
            parts = [self._select(b.table, b.indexed + b.walked) for b in self._branches]
        else:
            sits = " or ".join(self._exists(branch) for branch in self._branches)
            tagged: tuple[Condition, ...] = (Equals("tag", self._query.tag), f"({sits})")
            parts = [self._select(table, tagged, "g") for table in _TAGS]
        limit = self._bind(self._query.limit + 1, "integer")
        merged = " union all ".join(f"({part} limit {limit})" for part in parts)
        return f"select p.job_id from ({merged}) p order by p.job_id desc limit {limit}"

    def most(self) -> str:
        """SQL for how large a payload or a result may be to be shown."""
        return "null::bigint" if self._query.bodies_max is None else self._bind(self._query.bodies_max, "bigint")

    def _select(self, table: str, conditions: tuple[Condition, ...], row: str = "t") -> str:
        low, high = self._bind(self._low, "uuid"), self._bind(self._high, "uuid")
        where = self._where(f"{row}.job_id >= {low} and {row}.job_id < {high}", conditions, row)
        return f"select {row}.job_id from windlass.{table} {row} where {where} order by {row}.job_id desc"

    def _exists(self, branch: Branch) -> str:
        where = self._where("t.job_id = any (array[g.job_id])", branch.indexed + branch.walked, "t")
        return f"exists (select from windlass.{branch.table} t where {where})"

    def _where(self, first: str, conditions: tuple[Condition, ...], row: str) -> str:
        return " and ".join([first, *(self._condition(condition, row) for condition in conditions)])

    def _condition(self, condition: Condition, row: str) -> str:
        match condition:
            case Equals(column, value):
                return f"{row}.{column} = {self._bind(value, 'text')}"
            case Matches(sql, value, kind):
                return sql.format(row=row, value=self._bind(value, kind))
            case _:
                return condition

    def _bind(self, value: Any, kind: str) -> str:
        if value not in self.args:
            self.args.append(value)
        return f"${self.args.index(value) + 1}::{kind}"

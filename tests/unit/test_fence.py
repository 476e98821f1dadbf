"""Every interleaving of a tiny lease protocol: what a settle must compare so that nobody ends another's attempt.

Workers claim and settle; any reply may be lost, and is then repeated; the leader reaps at any moment; once, a failover
may forget the latest claim of a job, so that its attempt number is given out again. Breadth first, so a
counterexample is a shortest one. The broken predicates are kept: they prove that the explorer can see.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

ATTEMPTS = 3


class Row(NamedTuple):
    """A job as stored, and beside it what really happened: `claims` ever made, which are `open`, how often it `finished`."""

    state: str = "ready"
    attempt: int = 0
    token: int = 0
    claims: int = 0
    open: frozenset[int] = frozenset()
    finished: int = 0


class Held(NamedTuple):
    """What a worker believes it holds; `sent` is the outcome whose reply it still waits for."""

    job: int
    attempt: int
    token: int
    sent: str = ""


class World(NamedTuple):
    rows: tuple[Row, ...]
    workers: tuple[Held | None, ...]
    failover_left: bool


Predicate = Callable[[Row, Held], bool]
Step = tuple[str, World, str]  # what happened, the world after it, what is wrong with it


def id_only(row: Row, held: Held) -> bool:
    return True


def id_and_state(row: Row, held: Held) -> bool:
    return row.state == "running"


def id_state_and_attempt(row: Row, held: Held) -> bool:
    return row.state == "running" and row.attempt == held.attempt


def fence(row: Row, held: Held) -> bool:
    return row.state == "running" and (row.attempt, row.token) == (held.attempt, held.token)


def with_row(world: World, job: int, row: Row) -> World:
    return world._replace(rows=(*world.rows[:job], row, *world.rows[job + 1 :]))


def with_held(world: World, worker: int, held: Held | None) -> World:
    return world._replace(workers=(*world.workers[:worker], held, *world.workers[worker + 1 :]))


def claims(world: World, worker: int) -> Iterator[Step]:
    for job, row in enumerate(world.rows):
        if row.state == "ready" and row.claims < ATTEMPTS:
            token = row.claims + 1
            claimed = Row("running", row.attempt + 1, token, token, row.open | {token}, row.finished)
            after = with_held(with_row(world, job, claimed), worker, Held(job, claimed.attempt, token))
            yield (
                f"claim of job {job}, attempt {claimed.attempt}, token {token}",
                after,
                "two hold one job" if row.open else "",
            )


def settles(world: World, worker: int, held: Held, accepts: Predicate) -> Iterator[Step]:
    row = world.rows[held.job]
    who = f"the holder of job {held.job}, attempt {held.attempt}, token {held.token}"
    for outcome in (held.sent,) if held.sent else ("completed", "failed"):
        after, wrong = world, ""
        if accepts(row, held):
            if held.token not in row.open:
                wrong = "an attempt that had ended was settled"
            finished = row.finished + (outcome == "completed")
            if finished > 1:
                wrong = "a job finished twice"
            state = "completed" if outcome == "completed" else "ready"
            settled = row._replace(state=state, open=row.open - {held.token}, finished=finished)
            after = with_row(world, held.job, settled)
        yield f"{who} settles it as {outcome}", with_held(after, worker, None), wrong
        yield (
            f"{who} settles it as {outcome}, reply lost",
            with_held(after, worker, held._replace(sent=outcome)),
            wrong,
        )


def leads(world: World) -> Iterator[Step]:
    for job, row in enumerate(world.rows):
        if row.state == "running":
            reaped = row._replace(state="ready", open=row.open - {row.token})
            yield f"the leader reaps job {job}", with_row(world, job, reaped), ""
            if world.failover_left:
                forgotten = reaped._replace(attempt=row.attempt - 1)
                yield (
                    f"a failover forgets the claim of job {job}",
                    with_row(world, job, forgotten)._replace(failover_left=False),
                    "",
                )


def steps(world: World, accepts: Predicate) -> Iterator[Step]:
    for worker, held in enumerate(world.workers):
        yield from claims(world, worker) if held is None else settles(world, worker, held, accepts)
    yield from leads(world)


def canonical(world: World) -> World:
    """Workers are alike: their order does not matter."""
    return world._replace(workers=tuple(sorted(world.workers, key=lambda held: held or (-1, 0, 0, ""))))


def explore(accepts: Predicate, workers: int, jobs: int, *, failover: bool) -> tuple[list[str] | None, int]:
    """The shortest path to a violation, or None, and how many worlds were seen."""
    start = World((Row(),) * jobs, (None,) * workers, failover)
    came: dict[World, tuple[World, str] | None] = {start: None}
    line = deque([start])
    while line:
        world = line.popleft()
        for name, after, wrong in steps(world, accepts):
            if wrong:
                return [*path(came, world), name, wrong], len(came)
            seen = canonical(after)
            if seen not in came:
                came[seen] = (world, name)
                line.append(seen)
    return None, len(came)


def path(came: dict[World, tuple[World, str] | None], world: World) -> list[str]:
    names: list[str] = []
    while step := came[world]:
        world, name = step
        names.append(name)
    return names[::-1]


@pytest.mark.parametrize(("workers", "jobs", "failover"), [(3, 1, True), (2, 2, True), (3, 2, False)])
def test_no_interleaving_gets_past_the_fence(workers: int, jobs: int, failover: bool) -> None:
    violation, worlds = explore(fence, workers, jobs, failover=failover)
    assert violation is None
    assert worlds > 100


@pytest.mark.parametrize(
    ("accepts", "failover", "length", "wrong"),
    [
        (id_only, False, 3, "a job finished twice"),
        (id_and_state, False, 4, "an attempt that had ended was settled"),
        (id_state_and_attempt, True, 4, "an attempt that had ended was settled"),
    ],
)
def test_a_weaker_predicate_lets_a_former_holder_in(
    accepts: Predicate, failover: bool, length: int, wrong: str
) -> None:
    violation, _ = explore(accepts, workers=3, jobs=2, failover=failover)
    assert violation is not None
    assert (len(violation) - 1, violation[-1]) == (length, wrong), violation


def test_without_failovers_the_attempt_number_alone_would_do() -> None:
    """So the token is there for restores and failovers, where attempt numbers repeat."""
    violation, _ = explore(id_state_and_attempt, workers=3, jobs=1, failover=False)
    assert violation is None

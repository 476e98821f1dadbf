"""Every filter of a list, alone and together: a page costs a page, or at most the walk the list allows itself."""

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from tests.plans.plan import faults
from tests.plans.probe import Probe
from windlass.model import PENDING, Status
from windlass.store.listing import SCAN
from windlass.store.protocol import JobQuery

NOW = datetime.now(UTC)
STATUSES = {"all": (), "pending": tuple(PENDING)} | {status.value: (status,) for status in Status}
TAGS = (None, "nightly", "precious")
TYPES = (None, "email", "rare")
QUEUES = (None, "lonely")
TIMES: tuple[dict[str, Any], ...] = (
    {},
    {"created_after": NOW - timedelta(days=3), "created_before": NOW - timedelta(days=2)},
)
MOST_MS = 50
MOST_BUFFERS = 5 * SCAN
MOST_WALKED = 3 * (SCAN + 1_000)  # each status has a walk of its own


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("status", STATUSES)
async def test_lists(probe: Probe, status: str, tag: str | None) -> None:
    wrong = []
    for kind, queue, times in product(TYPES, QUEUES, TIMES):
        query = JobQuery(STATUSES[status], kind, queue, tag, **times)
        name = f"{status}, type {kind}, queue {queue}, tag {tag}, {'two days ago' if times else 'any time'}"
        wrong += [f"{name}: {fault}" for fault in await _wrong_with(probe, query)]
    assert not wrong, f"{len(wrong)} faults\n" + "\n".join(w.partition("\n")[0] for w in wrong) + f"\n\n{wrong[0]}"


SEARCHES: dict[str, dict[str, Any]] = {
    "a text that nothing holds": {"text": "nowhere to be found"},
    "a text in every error": {"text": "no user"},
    "the beginning of an id": {"text": "0198c0de-0000"},
    "a worker": {"worker": "worker 3"},
    "a worker that nobody knows": {"worker": "nobody"},
    "finished within an hour, days ago": {
        "finished_after": NOW - timedelta(days=3, hours=1),
        "finished_before": NOW - timedelta(days=3),
    },
    "finished lately": {"finished_after": NOW - timedelta(minutes=1)},
}


@pytest.mark.parametrize("search", SEARCHES)
async def test_searches(probe: Probe, search: str) -> None:
    """No index answers them: each looks at so many jobs and no more, in a time that nobody notices."""
    wrong = []
    for status, kind, tag in product(STATUSES, TYPES, (None, "nightly")):
        query = JobQuery(STATUSES[status], kind, None, tag, **SEARCHES[search])
        name = f"{search}: {status}, type {kind}, tag {tag}"
        # Of a frequent type the server may walk by id instead, for each of its queues, where that costs the same.
        found = await _wrong_with(probe, query, most_ms=300, most_buffers=10 * SCAN, most_walked=8 * SCAN)
        wrong += [f"{name}: {fault}" for fault in found]
    assert not wrong, f"{len(wrong)} faults\n" + "\n".join(w.partition("\n")[0] for w in wrong) + f"\n\n{wrong[0]}"


async def _wrong_with(
    probe: Probe,
    query: JobQuery,
    *,
    most_ms: float = MOST_MS,
    most_buffers: int = MOST_BUFFERS,
    most_walked: int = MOST_WALKED,
) -> list[str]:
    seen = await probe.see(lambda store: store.views.jobs(query))
    found = faults(seen)
    if seen.buffers > most_buffers:
        found.append(f"touches {seen.buffers} buffers")
    for table in ("scheduled", "held", "ready", "running", "outcome", "tag", "job"):
        if (walked := max((plan.visited_of(table) for plan in seen), default=0)) > most_walked:
            found.append(f"visits {walked} rows of {table}")
    took_ms = seen.took_ms
    if took_ms > most_ms:  # the machine may be busy
        took_ms = min(took_ms, await probe.quickest_ms(lambda store: store.views.jobs(query), runs=3))
    if took_ms > most_ms:
        found.append(f"takes {took_ms:.0f} ms")
    return found


@pytest.mark.parametrize("query", [JobQuery(), JobQuery([Status.FAILED], "email"), JobQuery(tag="precious")])
async def test_a_list_asked_for_again_and_again_keeps_its_plan(probe: Probe, query: JobQuery) -> None:
    seen = await probe.best(lambda store: store.views.jobs(query), runs=8)
    assert seen.buffers < 2_000

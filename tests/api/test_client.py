"""The HTTP client against the real API, and against everything a network does to it."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.api.conftest import Tokens
from tests.api.door import Door, Way, answer
from tests.eventually import aeventually
from tests.factory import Rig
from tests.pressure import Stopwatch
from windlass import AsyncClient, Client, errors, wire
from windlass.api.parts import Parts
from windlass.api.server import Server
from windlass.lifecycle import Completed, Failed, Held
from windlass.model import Error, Status
from windlass.sdk import asks
from windlass.store.store import Store


@pytest.fixture
async def client(server: Server, tokens: Tokens) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.url, token=tokens("admin")) as opened:
        yield opened


@pytest.fixture
def through(tokens: Tokens) -> Callable[..., AsyncClient]:
    """A client that comes through a door."""
    return lambda door, **said: AsyncClient(door.url, token=tokens("admin"), **said)


def repeat(way: Way, times: int) -> list[Way]:
    return [way] * times


async def stored(store: Store) -> int:
    return sum((await store.views.counts()).values())


# Submit and look. ---------------------------------------------------------------------------------------------------


async def test_a_job_comes_back_exactly_as_it_was_submitted(client: AsyncClient) -> None:
    payload = {"n": 2**80, "f": 0.1, "text": "ü \u2028 \x7f", "list": [None, True, {"a": []}]}
    handle = await client.submit("echo", payload, priority=7, tags=["a"], name="x", retry=wire.Retry(base_s=3))
    job = await handle.job()
    assert (job.payload, job.priority, job.tags, job.name) == (payload, 7, ["a"], "x")
    assert job.retry is not None
    assert job.retry.base_s == 3
    assert not handle.duplicate


async def test_a_time_to_run_at_is_kept(client: AsyncClient) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    job = await (await client.submit("echo", scheduled_at=at)).job()
    assert (job.status, job.scheduled_at) == ("scheduled", at)


async def test_a_key_of_the_callers_own_shows_what_is_a_duplicate(client: AsyncClient) -> None:
    first = await client.submit("echo", 1, idempotency_key="k")
    again = await client.submit("echo", 1, idempotency_key="k")
    assert (again.id, first.duplicate, again.duplicate) == (first.id, False, True)
    with pytest.raises(errors.KeyReused) as refused:
        await client.submit("echo", 2, idempotency_key="k")
    assert refused.value.key == "k"


async def test_what_cannot_be_stored_is_refused_before_it_is_sent(server: Server, through: Any) -> None:
    async with Door(server.url) as door, through(door) as client:
        with pytest.raises(errors.InvalidPayload):
            await client.submit("echo", {"a": float("nan")})
        with pytest.raises(TypeError, match="colour"):
            await client.submit("echo", colour="red")
        assert door.requests == []


async def test_pages_are_taken_one_after_the_other_and_no_job_twice(client: AsyncClient, rig: Rig) -> None:
    ids = await rig.enqueue(450)
    assert {job.id async for job in client.jobs()} == set(ids)
    assert len([job async for job in client.jobs()]) == 450
    assert len([job async for job in client.jobs(limit=250)]) == 250
    assert [job async for job in client.jobs(status=["failed", "held"], type="echo")] == []


async def test_the_cluster_is_shown(client: AsyncClient, rig: Rig) -> None:
    worker = await rig.worker()
    await rig.enqueue(3)
    assert (await client.stats()).statuses["ready"] == 3
    assert [queue.depth for queue in await client.queues() if queue.name == "default"] == [3]
    assert [each.id for each in await client.workers()] == [worker.id]
    assert "echo" in {each.name for each in await client.types()}


async def test_a_queue_is_paused_and_resumed_whatever_its_name(client: AsyncClient, store: Store) -> None:
    for name in ("mail", "team/mail:1"):
        await client.pause(name)
        assert {queue.name for queue in await store.views.queues() if queue.paused} == {name}
        await client.resume(name)


# Act. ---------------------------------------------------------------------------------------------------------------


async def test_jobs_are_cancelled_retried_and_run_now(client: AsyncClient, rig: Rig) -> None:
    waiting, failed, later = [await rig.job(each) for each in (Status.READY, Status.FAILED, Status.SCHEDULED)]
    assert (await client.cancel(waiting, "not needed")).status == "cancelled"
    assert (await client.retry(failed)).status == "ready"
    assert (await client.run_now(later)).status == "ready"
    with pytest.raises(errors.NotPossible):
        await client.run_now(waiting)
    with pytest.raises(errors.NotPossible, match="does not wait for a decision"):
        await client.decide(failed, "done")
    with pytest.raises(errors.JobNotFound):
        await client.decide(uuid4(), "redo", effect="mail")


async def test_many_are_counted_before_they_are_acted_on(client: AsyncClient, rig: Rig) -> None:
    await rig.enqueue(5, queue="mail")
    which = wire.BulkAction(filter=wire.Filter(queue="mail"), preview=True)
    assert (await client.act_on_many("cancel", which)).matched == 5
    assert (await client.stats()).statuses["ready"] == 5
    which.preview = False
    assert (await client.act_on_many("cancel", which)).done == 5
    assert (await client.stats()).statuses["cancelled"] == 5


async def test_dead_letters_are_listed_grouped_and_replayed(client: AsyncClient, rig: Rig) -> None:
    job_id = await rig.job(Status.FAILED)
    assert [job.id async for job in client.dead_letters()] == [job_id]
    assert [group.count for group in (await client.ask(asks.dead_letter_groups())).groups] == [1]
    assert (await client.replay(job_id)).status == "ready"


# Errors. ------------------------------------------------------------------------------------------------------------


async def test_errors_are_those_of_the_store(client: AsyncClient) -> None:
    missing = uuid4()
    with pytest.raises(errors.JobNotFound) as not_found:
        await client.job(missing)
    assert not_found.value.job_id == missing
    with pytest.raises(errors.UnknownType) as unknown:
        await client.submit("no_such_type")
    assert unknown.value.field == "type"
    with pytest.raises(errors.InvalidJob) as invalid:
        await client.submit("echo", priority=10**9)
    assert invalid.value.field == "priority"


async def test_who_may_not_is_told_apart_from_who_is_not_known(server: Server, tokens: Tokens) -> None:
    async with AsyncClient(server.url, token=tokens("read")) as client:
        with pytest.raises(errors.Forbidden):
            await client.submit("echo")
    async with AsyncClient(server.url, token="nonsense") as client:
        with pytest.raises(errors.Unauthorized):
            await client.stats()


async def test_another_server_is_recognised_as_such(server: Server, through: Any) -> None:
    page = answer(404, "Content-Type: text/html", body=b"<h1>Not here</h1>")
    async with Door(server.url, page) as door, through(door) as client:
        with pytest.raises(errors.RequestError, match="text/html") as refused:
            await client.stats()
    assert refused.value.__notes__ == ["is WINDLASS_URL right?"]


@pytest.mark.parametrize("url", ["ftp://x", "nonsense", "http://", "http://ann:secret@host", "http://x/?a=b"])
def test_an_address_that_cannot_be_right_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(errors.Misconfigured, match="WINDLASS_URL") as refused:
        AsyncClient(url, token="t")
    assert "secret" not in str(refused.value)


# The network. -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("losses", [1, 3])
async def test_a_submission_whose_answer_is_lost_is_stored_once(
    server: Server, store: Store, through: Any, losses: int
) -> None:
    async with Door(server.url, *repeat("lose", losses)) as door, through(door) as client:
        handle = await client.submit("echo", 1)
        assert not handle.duplicate, "it was there already only because of our own first try"
        assert len(door.requests) == losses + 1
    assert await stored(store) == 1


async def test_a_bulk_whose_answer_is_lost_is_stored_once(server: Server, store: Store, through: Any) -> None:
    async with Door(server.url, "pass", "lose") as door, through(door) as client:
        ids = await client.submit_many(({"type": "echo", "payload": n} for n in range(250)), chunk=100)
    assert len(set(ids)) == 250
    assert await stored(store) == 250


async def test_an_action_whose_answer_is_lost_is_not_repeated(server: Server, rig: Rig, through: Any) -> None:
    job_id = await rig.job(Status.FAILED)
    async with Door(server.url, "lose") as door, through(door) as client:
        with pytest.raises(errors.Unavailable):
            await client.retry(job_id)
        assert len(door.requests) == 1


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_proxy_that_cannot_reach_the_api_is_asked_again(server: Server, through: Any, status: int) -> None:
    bad = answer(status, "Content-Type: text/html", body=b"<h1>Bad gateway</h1>")
    async with Door(server.url, bad, bad) as door, through(door) as client:
        await client.submit("echo")
        assert len(door.requests) == 3


async def test_whoever_is_told_to_come_back_later_comes_back_then(server: Server, rig: Rig, through: Any) -> None:
    job_id = await rig.job(Status.FAILED)
    body = b'{"type":"x","title":"x","status":429,"code":"too_many_requests","detail":"slowly"}'
    slowly = answer(429, "Retry-After: 1", "Content-Type: application/problem+json", body=body)
    async with Door(server.url, slowly) as door, through(door) as client:
        began_s = time.monotonic()
        await client.retry(job_id)
        assert time.monotonic() - began_s >= 1
        assert len(door.requests) == 2


async def test_a_wait_beyond_the_time_limit_is_not_begun(server: Server, through: Any) -> None:
    body = b'{"type":"x","title":"x","status":429,"code":"too_many_requests","detail":"slowly"}'
    slowly = answer(429, "Retry-After: 3600", "Content-Type: application/problem+json", body=body)
    async with Door(server.url, slowly) as door, through(door) as client:
        with pytest.raises(errors.TooManyRequests) as refused:
            await client.stats()
        assert refused.value.retry_after_s == 3600
        assert len(door.requests) == 1


async def test_one_time_limit_holds_for_everything(server: Server, through: Any) -> None:
    async with Door(server.url, *repeat("hang", 9)) as door, through(door, timeout_s=0.5) as client:
        watch = Stopwatch()
        with pytest.raises(errors.Unavailable):
            await client.submit("echo")
        assert watch.free_s < 4  # not as long for each of nine tries


async def test_an_api_that_cannot_be_reached_is_given_up_as_soon_as_was_said(server: Server) -> None:
    async with Door(server.url) as door:
        gone = door.url
    async with AsyncClient(gone, token="t", patience_s=0.3) as client:
        began_s = time.monotonic()
        with pytest.raises(errors.Unavailable, match="cannot be reached"):
            await client.stats()
        assert time.monotonic() - began_s < 5


async def test_a_token_is_not_carried_to_where_a_redirect_points(server: Server, through: Any) -> None:
    async with Door(server.url) as elsewhere:
        away = answer(307, f"Location: {elsewhere.url}/v1/stats")
        async with Door(server.url, away) as door, through(door) as client:
            with pytest.raises(errors.WindlassError, match="307"):
                await client.stats()
        assert elsewhere.requests == []


# Who. ---------------------------------------------------------------------------------------------------------------


async def made_key(client: AsyncClient) -> tuple[UUID, str]:
    made = await client.ask(asks.add_key(wire.NewKey(name="tests", scopes=["submit", "read"])))
    assert made.key is not None
    return made.id, made.key


async def test_an_api_key_is_exchanged_once_for_all_calls_and_never_sent_with_them(
    server: Server, client: AsyncClient
) -> None:
    _, key = await made_key(client)
    async with Door(server.url) as door, AsyncClient(door.url, api_key=key) as program:
        await asyncio.gather(*(program.stats() for _ in range(20)))
        assert door.requests.count("POST /v1/auth/token") == 1
        assert not [head for head in door.heads if key.encode() in head]


async def test_a_token_that_is_refused_is_renewed_once(server: Server, tokens: Tokens) -> None:
    made = iter(["stale", tokens("read"), "never asked for"])
    async with Door(server.url) as door, AsyncClient(door.url, token=lambda: next(made)) as client:
        await client.stats()
        await client.stats()
        assert len(door.requests) == 3


async def test_a_revoked_key_gets_no_more_tokens(server: Server, client: AsyncClient) -> None:
    key_id, key = await made_key(client)
    await client.ask(asks.revoke_key(key_id))
    async with AsyncClient(server.url, api_key=key) as program:
        with pytest.raises(errors.Unauthorized):
            await program.stats()


async def test_a_user_logs_in_by_name_and_password(server: Server, client: AsyncClient) -> None:
    await client.ask(asks.add_user(wire.NewUser(name="ann", password="correct horse", scopes=["read"])))
    async with AsyncClient(server.url, login=("ann", "correct horse")) as ann:
        assert (await ann.ask(asks.me())).scopes == ["read"]
    async with AsyncClient(server.url, login=("ann", "wrong horse")) as stranger:
        with pytest.raises(errors.Unauthorized):
            await stranger.stats()


# Many. --------------------------------------------------------------------------------------------------------------


async def test_any_number_is_stored_from_a_generator_in_order(client: AsyncClient, store: Store) -> None:
    async def jobs() -> AsyncIterator[dict[str, Any]]:
        for n in range(2500):
            yield {"type": "echo", "payload": n, "tags": ["many"]}

    ids = await client.submit_many(jobs())
    assert len(set(ids)) == await stored(store) == 2500
    assert [(await client.job(ids[n])).payload for n in (0, 1000, 2499)] == [0, 1000, 2499]


async def test_an_error_among_many_names_the_job_and_what_was_stored_before(client: AsyncClient, store: Store) -> None:
    jobs: list[dict[str, Any]] = [{"type": "echo", "payload": n} for n in range(250)]
    jobs[203]["priority"] = 10**9
    with pytest.raises(errors.RequestError) as refused:
        await client.submit_many(jobs, chunk=100)
    found: Any = refused.value
    assert found.field == "jobs[203].priority"
    assert "jobs[203].priority" in str(found)
    assert len(found.stored) == await stored(store) == 200


@pytest.mark.parametrize(("wrong", "says"), [(7, r"jobs\[1\]"), ({"type": "echo", "hue": 1}, r"jobs\[1\].*hue")])
async def test_what_is_no_job_is_refused_by_its_place(client: AsyncClient, store: Store, wrong: Any, says: str) -> None:
    with pytest.raises(errors.InvalidJob, match=says):
        await client.submit_many([{"type": "echo"}, wrong])
    assert await stored(store) == 0


# Wait. --------------------------------------------------------------------------------------------------------------


async def finish(rig: Rig, outcome: Any) -> None:
    worker = await rig.worker()
    (lease,) = await worker.claim()
    await worker.settle(lease, outcome)


async def test_a_result_that_is_there_soon_is_waited_for(client: AsyncClient, rig: Rig) -> None:
    handle = await client.submit("echo")
    result, _ = await asyncio.gather(handle.result(20), finish(rig, Completed({"sum": 5})))
    assert result == {"sum": 5}


async def test_a_result_that_takes_longer_is_heard_of_by_a_stream(client: AsyncClient, parts: Parts, rig: Rig) -> None:
    waiting = asyncio.create_task((await client.submit("echo")).result(20))
    await aeventually(lambda: answered(parts.events.open_streams == 1))
    await finish(rig, Completed([1, None]))
    assert await waiting == [1, None]
    await aeventually(lambda: answered(parts.events.open_streams == 0))


@pytest.mark.parametrize("late", [False, True])
async def test_whoever_waits_is_told_once_that_the_job_is_held(
    client: AsyncClient, parts: Parts, rig: Rig, late: bool
) -> None:
    handle = await client.submit("echo")
    held = asyncio.Queue[asks.Job]()
    if not late:
        await finish(rig, Held("needs decision"))
    waiting = asyncio.create_task(client.finished(handle.id, 20, on_held=held.put_nowait))
    if late:
        await aeventually(lambda: answered(parts.events.open_streams == 1))
        await finish(rig, Held("needs decision"))
    job = await held.get()
    assert (job.id, job.status, job.reason) == (handle.id, "held", "needs decision")
    await aeventually(lambda: answered(parts.events.open_streams == 1))
    await client.cancel(handle.id)
    assert (await waiting).status == "cancelled"
    assert held.empty()


async def answered(value: bool) -> bool:
    return value


async def test_a_result_that_will_never_be_says_why(client: AsyncClient, rig: Rig) -> None:
    handle = await client.submit("echo")
    await finish(rig, Failed(Error("ValueError", "no luck"), final=True))
    with pytest.raises(errors.JobFailed, match="ValueError: no luck"):
        await handle.result(5)
    cancelled = await client.submit("echo", delay_s=60)
    await cancelled.cancel("not today")
    with pytest.raises(errors.JobCancelled, match="not today"):
        await cancelled.result(5)
    lost = await client.submit("echo")
    await finish(rig, Completed(object()))
    with pytest.raises(errors.ResultNotStored, match="was done, but its result was not stored: result: is a object"):
        await lost.result(5)


@pytest.mark.parametrize("timeout_s", [0, 0.2, 1.2])
async def test_a_wait_ends_when_its_time_is_up_and_the_job_goes_on(client: AsyncClient, timeout_s: float) -> None:
    handle = await client.submit("echo")
    began_s = time.monotonic()
    with pytest.raises(TimeoutError, match="ready"):
        await handle.result(timeout_s)
    assert timeout_s <= time.monotonic() - began_s < timeout_s + 10
    assert await handle.status() == "ready"


async def test_a_wait_ends_when_its_time_is_up_also_if_the_api_has_fallen_silent(server: Server, through: Any) -> None:
    async with Door(server.url, "pass", *repeat("hang", 9)) as door, through(door) as client:
        handle = await client.submit("echo")
        began_s = time.monotonic()
        with pytest.raises((TimeoutError, errors.Unavailable)):
            await handle.result(1.5)
        assert time.monotonic() - began_s < 6


async def test_a_result_is_waited_for_where_no_stream_is_to_be_had(server: Server, through: Any, rig: Rig) -> None:
    body = b'{"type":"x","title":"x","status":503,"code":"unavailable","detail":"no more streams"}'
    async with Door(server.url) as door, through(door) as client:
        door.always["/v1/events"] = answer(503, "Content-Type: application/problem+json", body=body)
        waiting = asyncio.create_task((await client.submit("echo")).result(20))
        await aeventually(lambda: answered(any("/v1/events" in each for each in door.requests)))
        await finish(rig, Completed("late"))
        assert await waiting == "late"


# Without a loop. ----------------------------------------------------------------------------------------------------


async def test_the_blocking_client_does_the_same_from_a_thread(server: Server, tokens: Tokens, rig: Rig) -> None:
    def work() -> tuple[int, Any]:
        with Client(server.url, token=tokens("admin")) as client:
            handle = client.submit("echo", {"a": 1})
            client.submit_many({"type": "echo", "delay_s": 60} for _ in range(3))
            seen = len(list(client.jobs()))
            with pytest.raises(errors.JobNotFound):
                client.job(uuid4())
            return seen, handle.result(20)

    working = asyncio.create_task(asyncio.to_thread(work))
    worker = await rig.worker()
    leases = await aeventually(worker.claim)
    await worker.settle(leases[0], Completed("done"))
    assert await working == (4, "done")


def test_a_program_that_only_declares_jobs_does_not_pay_for_the_client() -> None:
    code = "import sys; from windlass import App; print({'httpx2', 'windlass.wire'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "set()\n"


FORKS = """
import os, sys
from windlass import Client
with Client(sys.argv[1], token=sys.argv[2]) as client:
    client.stats()
    child = os.fork()
    if child == 0:
        os._exit(0 if client.stats().total == 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    client.stats()
"""

LOOPS = """
import asyncio, sys
from windlass import AsyncClient
client = AsyncClient(sys.argv[1], token=lambda: sys.argv[2])
async def look():
    await asyncio.gather(*(client.stats() for _ in range(5)))
for _ in range(3):
    asyncio.run(look())
"""


@pytest.mark.parametrize("program", [FORKS, LOOPS])
async def test_a_client_outlives_forks_and_loops(server: Server, tokens: Tokens, program: str) -> None:
    quietly = ("-W", "ignore:This process:DeprecationWarning")  # since 3.12 of every fork beside other threads
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, *quietly, "-c", program, server.url, tokens("read")), stderr=asyncio.subprocess.PIPE
    )
    _, said = await asyncio.wait_for(running.communicate(), 60)
    assert (running.returncode, said) == (0, b"")

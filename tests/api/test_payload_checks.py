"""Payloads are checked where they enter, by what the living workers of their type declare."""

import asyncio
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from windlass.api.app import build, opened
from windlass.api.catalogue import Catalogue
from windlass.api.parts import Parts
from windlass.api.readiness import AwaitedWorkers
from windlass.api.server import Server
from windlass.api.submitting import Submitted, submit
from windlass.config import ApiConfig, Config
from windlass.errors import InvalidPayload, UnknownType
from windlass.jobs import app as built_in_app
from windlass.model import Declared, NewWorker
from windlass.store.store import Store
from windlass.wire import Submission
from windlass.worker.registry import Defaults, JobType

Client = httpx2.AsyncClient


@dataclass
class Line:
    sku: str
    price: Decimal


def invoice(customer: int, lines: list[Line]) -> None: ...


def invoice_with_note(customer: int, lines: list[Line], note: str = "") -> None: ...


V1 = JobType(invoice, "invoice").declared()
V2 = JobType(invoice_with_note, "invoice").declared()
GOOD = {"customer": 7, "lines": [{"sku": "a", "price": "1.50"}]}
BAD = {"customer": 7, "lines": [{"sku": "a", "price": 1}, {"sku": "b"}]}
FIELD = "payload.lines[1].price"


async def working(store: Store, *types: Declared, supervisor_id: UUID | None = None) -> UUID:
    """A worker with these types, as one registers and declares that has started."""
    worker_id = uuid4()
    names, digests = [one.name for one in types], [one.digest for one in types]
    new = NewWorker(worker_id, "w", 1, ["default"], names, supervisor_id, digests)
    await store.upkeep.register(new, lease_ttl_s=600)
    await store.upkeep.declare(types)
    return worker_id


async def submitted(api: Client, payload: Any, **fields: Any) -> httpx2.Response:
    return await api.post("/v1/jobs", json={"type": "invoice", "payload": payload, **fields})


async def test_a_payload_that_does_not_fit_is_refused_with_its_field(api: Client, store: Store) -> None:
    await working(store, V1)
    answer = await submitted(api, BAD)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["code"], problem["field"], problem["detail"]) == ("invalid_payload", FIELD, f"{FIELD}: is missing")
    assert await store.views.counts() == {}
    answer = await submitted(api, GOOD)
    assert (answer.status_code, answer.json()["payload_checked"]) == (202, True)
    assert "payload-checked" not in answer.headers


@pytest.mark.parametrize("path", ["/jobs", "/addJob", "/submit_job"])
async def test_the_older_routes_check_alike(api: Client, store: Store, path: str) -> None:
    await working(store, V1)
    named = "name" if path == "/submit_job" else "type"
    answer = await api.post(path, json={named: "invoice", "payload": BAD})
    assert (answer.status_code, answer.json()["field"]) == (422, FIELD)
    answer = await api.post(path, json={named: "invoice", "payload": GOOD})
    assert answer.status_code == 202


async def test_of_many_the_one_that_does_not_fit_is_named_and_none_is_stored(api: Client, store: Store) -> None:
    await working(store, V1)
    jobs = [{"type": "invoice", "payload": payload} for payload in (GOOD, GOOD, BAD, GOOD)]
    answer = await api.post("/v1/jobs/bulk", json=jobs)
    assert (answer.status_code, answer.json()["field"]) == (422, f"jobs[2].{FIELD}")
    assert await store.views.counts() == {}
    answer = await api.post("/v1/jobs/bulk", json=[*jobs[:2], {"type": "echo", "payload": BAD}])
    assert (answer.status_code, answer.json()["payloads_unchecked"]) == (202, 1)


async def test_a_type_that_no_living_worker_has_is_taken_unchecked(api: Client, store: Store) -> None:
    worker_id = await working(store, V1)
    await store.upkeep.bury([worker_id], "left")
    answer = await submitted(api, BAD)
    assert (answer.status_code, answer.json()["payload_checked"]) == (202, False)
    assert answer.headers["payload-checked"] == "false"


async def test_a_type_that_living_workers_declare_differently_is_taken_unchecked(api: Client, store: Store) -> None:
    old = await working(store, V1)
    await working(store, V2)
    answer = await submitted(api, GOOD | {"note": "x", "lines": None})
    assert (answer.status_code, answer.json()["payload_checked"]) == (202, False)
    types = (await api.get("/v1/types")).json()["types"]
    assert next(one["versions"] for one in types if one["name"] == "invoice") == 2
    await store.upkeep.bury([old], "left")


async def test_what_lives_is_what_counts_not_what_was_declared_last(api: Client, store: Store) -> None:
    await working(store, V1)
    newer = await working(store, V2)
    await store.upkeep.bury([newer], "left")
    answer = await submitted(api, GOOD | {"note": "x"})
    assert (answer.status_code, answer.json()["field"]) == (422, "payload.note")


async def test_a_payload_that_fits_a_worker_which_has_just_started_is_not_refused(api: Client, store: Store) -> None:
    old = await working(store, V1)
    assert (await submitted(api, GOOD)).json()["payload_checked"], "what the old one takes is known now"
    await store.upkeep.bury([old], "left")
    await working(store, V2)
    bulk = [{"type": "invoice", "payload": GOOD | {"note": "x"}}]
    assert (await api.post("/v1/jobs/bulk", json=bulk)).status_code == 202
    answer = await submitted(api, GOOD | {"note": "x"})
    assert (answer.status_code, answer.json()["payload_checked"]) == (202, True)


async def test_a_repeated_submission_is_the_first_job_though_its_type_has_changed(store: Store, parts: Parts) -> None:
    async def submit_afresh(**fields: Any) -> Submitted:
        """As an API that has just looked at the types."""
        known = replace(parts, catalogue=Catalogue(parts.views, ApiConfig()))
        return await submit(known, Submission(type="invoice", payload=GOOD | {"note": "x"}, **fields), subject="a")

    first = await working(store, V2)
    keyed = await submit_afresh(idempotency_key="k")
    named = await submit_afresh(id=UUID(int=keyed.stored.id.int ^ 1))
    await store.upkeep.bury([first], "left")
    await working(store, V1)
    for again, before in ({"idempotency_key": "k"}, keyed), ({"id": named.stored.id}, named):
        repeated = await submit_afresh(**again)
        assert (repeated.stored.id, repeated.stored.duplicate) == (before.stored.id, True)
    for new in {}, {"idempotency_key": "another"}:
        with pytest.raises(InvalidPayload, match="note"):
            await submit_afresh(**new)


# Jobs that are started once at most. ---------------------------------------------------------------------------------


async def test_a_job_that_is_started_once_at_most_cannot_be_given_more_attempts(api: Client, store: Store) -> None:
    await working(store, JobType(invoice, "invoice", Defaults(at_most_once=True)).declared())
    for path in ("/v1/jobs", "/jobs"):
        answer = await api.post(path, json={"type": "invoice", "payload": GOOD, "max_attempts": 5})
        problem = answer.json()
        assert (answer.status_code, problem["code"], problem["field"]) == (422, "invalid_job", "max_attempts")
        assert "started once at most" in problem["detail"]
    jobs = [{"type": "invoice", "payload": GOOD} | said for said in ({}, {"max_attempts": 2})]
    answer = await api.post("/v1/jobs/bulk", json=jobs)
    assert (answer.status_code, answer.json()["field"]) == (422, "jobs[1].max_attempts")
    assert await store.views.counts() == {}
    for fields in ({}, {"max_attempts": 1}):
        answer = await submitted(api, GOOD, **fields)
        assert answer.status_code == 202
        assert (await store.views.job(UUID(answer.json()["id"]))).max_attempts == 1


# Types that nobody has declared yet. --------------------------------------------------------------------------------


async def test_an_unknown_type_is_taken_while_workers_may_be_starting(store: Store, parts: Parts) -> None:
    young = Catalogue(parts.views, ApiConfig(unknown_type_grace_s=600))
    assert await young.find("not-yet") is None
    old = Catalogue(parts.views, ApiConfig(unknown_type_grace_s=0.000_001))
    with pytest.raises(UnknownType):
        await old.find("not-yet")
    await working(store, Declared("not-yet"))
    found = await old.find("not-yet")
    assert found is not None
    assert found.declared.name == "not-yet"


async def test_no_unknown_type_is_taken_once_the_workers_that_the_api_awaits_have_declared_theirs(
    store: Store, settings: Config
) -> None:
    patient = replace(settings, api=ApiConfig(unknown_type_grace_s=600))
    ours = uuid4()
    awaited = AwaitedWorkers(ours, 1)
    async with opened(store.intake, store.views, store.accounts, patient, awaited=awaited) as parts:
        assert await parts.catalogue.find("invoise") is None, "a worker that knows it may be on its way"
        await working(store, V1, supervisor_id=ours)
        with pytest.raises(UnknownType, match="did you mean invoice"):  # also if nobody has asked for /readyz
            await parts.catalogue.find("invoise")


async def test_where_nobody_has_ever_declared_anything_every_type_is_taken(store: Store) -> None:
    catalogue = Catalogue(store.views, ApiConfig(unknown_type_grace_s=0.000_001))
    assert await catalogue.find("anything") is None
    with pytest.raises(UnknownType):
        await Catalogue(store.views, ApiConfig(unknown_type_grace_s=0)).find("anything")


async def test_the_built_in_types_are_known_without_any_worker(store: Store) -> None:
    built_in = [job.declared() for job in built_in_app.types.values()]
    catalogue = Catalogue(store.views, ApiConfig(unknown_type_grace_s=0), built_in)
    found = await catalogue.find("add_numbers")
    assert found is not None
    assert found.declared == built_in_app.types["add_numbers"].declared()
    assert found.check is None, "an app may have one of that name that takes something else"


# Ready. -------------------------------------------------------------------------------------------------------------


async def test_an_api_that_awaits_workers_is_ready_when_they_have_declared_their_types(
    store: Store, settings: Config
) -> None:
    ours, others = uuid4(), uuid4()
    awaited = AwaitedWorkers(ours, 2)
    async with opened(store.intake, store.views, store.accounts, settings, awaited=awaited) as parts:
        transport = httpx2.ASGITransport(app=build(parts))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:

            async def said() -> str:
                answer = await http.get("/readyz")
                return answer.text if answer.status_code == 200 else str(answer.json()["detail"])

            assert await said() == "workers: starting, 0 of 2"
            for _ in range(2):
                await working(store, V1, supervisor_id=others)
            first = await working(store, V1, supervisor_id=ours)
            assert await said() == "workers: starting, 1 of 2"
            undeclared = NewWorker(uuid4(), "w", 1, ["default"], ["strange"], ours, ["x"])
            await store.upkeep.register(undeclared, lease_ttl_s=600)
            assert await said() == "workers: declaring their types"
            await store.upkeep.declare([Declared("strange")])
            assert await said() == "ok"
            await store.upkeep.bury([first], "left")
            assert await said() == "ok", "to take jobs no worker is needed"


async def test_a_shutdown_is_told_before_the_listener_closes(parts: Parts, settings: Config) -> None:
    patient = replace(parts, config=replace(settings, api=replace(settings.api, unready_s=600)))
    server = Server(build(patient), patient)
    await server.__aenter__()
    async with httpx2.AsyncClient(base_url=server.url, trust_env=False) as http:
        assert (await http.get("/readyz")).status_code == 200
        stopping = asyncio.create_task(server.__aexit__(None, None, None))
        await asyncio.sleep(0)
        answer = await http.get("/readyz")
        assert (answer.status_code, answer.json()["detail"]) == (503, "serving: shutting down")
    async with httpx2.AsyncClient(base_url=server.url, trust_env=False) as newcomer:
        assert (await newcomer.get("/livez")).status_code == 200, "new connections are still taken"
    assert not stopping.done()
    server.hurry()
    await stopping
    async with httpx2.AsyncClient(base_url=server.url, trust_env=False) as http:
        with pytest.raises(httpx2.ConnectError):
            await http.get("/livez")

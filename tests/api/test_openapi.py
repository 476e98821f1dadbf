"""The description of the API says what is there: all of it, and nothing else."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2

from windlass.api.openapi import document
from windlass.api.table import table

Client = httpx2.AsyncClient


def _refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from _refs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _refs(inner)


def test_every_endpoint_is_described_completely() -> None:
    told = document(table())
    listed = [endpoint for endpoint in table() if endpoint.listed]
    operations = {
        (method.upper(), path): operation for path, item in told["paths"].items() for method, operation in item.items()
    }
    assert set(operations) == {(endpoint.method, endpoint.path) for endpoint in listed}
    assert len({operation["operationId"] for operation in operations.values()}) == len(operations)
    for endpoint in listed:
        operation = operations[endpoint.method, endpoint.path]
        assert operation["summary"], endpoint.path
        assert operation["tags"][0] in {tag["name"] for tag in told["tags"] if tag["description"]}, endpoint.path
        assert bool(operation["security"]) == (endpoint.scope is not None or endpoint.identified)
        assert ({"401", "403"} <= set(operation["responses"])) >= (endpoint.scope is not None)
        assert {str(status) for status in endpoint.answers} <= set(operation["responses"])
        assert ("requestBody" in operation) == (endpoint.body is not None)
        named = [each["name"] for each in operation.get("parameters", []) if each["in"] == "path"]
        assert named == re.findall(r"\{(\w+)\}", endpoint.path)


def test_what_is_referred_to_is_there_and_what_is_there_is_referred_to() -> None:
    told = document(table())
    there = {f"#/components/schemas/{name}" for name in told["components"]["schemas"]}
    assert set(_refs(told)) == there


def test_examples_are_of_the_shape_they_are_examples_of() -> None:
    import msgspec

    from windlass.api.openapi import _EXAMPLES
    from windlass.wire import encode_any

    for kind, example in _EXAMPLES.items():
        msgspec.json.decode(encode_any(example), type=kind)


def test_a_stored_job_leads_to_what_can_be_done_with_it() -> None:
    told = document(table())
    links = told["paths"]["/v1/jobs"]["post"]["responses"]["202"]["links"]
    known = {operation["operationId"] for item in told["paths"].values() for operation in item.values()}
    assert set(links) <= known
    assert {"get_v1_jobs_id", "post_v1_jobs_id_cancel"} <= set(links)


async def test_the_document_is_served(api: Client) -> None:
    answer = await api.get("/openapi.json")
    assert answer.status_code == 200
    assert json.loads(answer.text)["openapi"].startswith("3.1")

"""The types of the dashboard are those of the API."""

from tools.openapi_types import TARGET, generate, type_text


def test_the_dashboard_has_the_types_of_the_api_as_it_is() -> None:
    assert TARGET.read_text() == generate(), "web/src/api/schema.ts is out of date: run `make web-types`"


def test_a_schema_becomes_the_type_it_means() -> None:
    for schema, text in (
        ({"type": ["string", "null"]}, "string | null"),
        ({"anyOf": [{"$ref": "#/components/schemas/Job"}, {"type": "null"}]}, "Job | null"),
        ({"type": "array", "items": {"type": ["integer", "null"]}}, "(number | null)[]"),
        ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}, "[string, number]"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "Record<string, number>"),
        ({"enum": ["a", 1]}, '"a" | 1'),
        ({}, "unknown"),
    ):
        assert type_text(schema) == text

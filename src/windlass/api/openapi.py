"""The API described as OpenAPI 3.1, made of the table of endpoints and the types of the wire: what is not described is
not there, and what is there is described.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from windlass.api import alias_shapes
from windlass.api.endpoint import Endpoint
from windlass.api.problems import MEDIA, title
from windlass.api.reading import JSON, NDJSON
from windlass.versions import installed_version
from windlass.wire import (
    BulkAction,
    Login,
    NewKey,
    NewUser,
    Problem,
    QueueName,
    Reason,
    Refresh,
    Stored,
    Submission,
)

Document = dict[str, Any]

_REF: Final = "#/components/schemas/{name}"
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_PARAMETERS: Final[Mapping[str, Document]] = {
    "id": {"type": "string", "format": "uuid"},
    "name": {"type": "string", "minLength": 1},
}
_TAGS: Final = {
    "jobs": "Submit jobs, look at them, act on them.",
    "dead letters": "Jobs that failed for good and wait for a person.",
    "cluster": "Queues, workers, types, counts, and the stream of changes.",
    "auth": "Tokens, sessions, and who one is.",
    "accounts": "Users, API keys, and who did what.",
    "probes": "Is it alive, is it ready. Open to anyone.",
    "development": "What `windlass up` has for those who develop.",
    "aliases": "The same jobs in the shapes of older APIs.",
}
_EXAMPLES: Final[Mapping[Any, Any]] = {
    Submission: {"type": "add_numbers", "payload": {"a": 2, "b": 3}, "priority": 10},
    BulkAction: {"filter": {"type": "email", "status": ["failed"]}, "preview": True},
    Reason: {"reason": "not needed any more"},
    Login: {"username": "ann", "password": "correct horse battery staple"},
    Refresh: {"refresh_token": "eyJhbGciOiJIUzI1NiIs…"},
    NewUser: {"name": "ann", "password": "correct horse battery staple", "scopes": ["submit", "read"]},
    NewKey: {"name": "the shop", "scopes": ["submit"], "ttl_s": 2_592_000},
    alias_shapes.NamedTask: {"name": "cpu_intensive", "payload": "test task"},
    alias_shapes.AddedJob: {"email": "ann@example.com", "name": "Ann"},
}
_ABOUT: Final = (
    "Jobs are stored durably before they are answered. Times are RFC 3339 with a zone, durations seconds in fields that "
    "end in `_s`, ids UUIDs. Errors are problem+json (RFC 9457) with a stable `code`; `field` is the path of what is "
    "wrong. Every answer has an `X-Request-ID`, which the log has too."
)


def document(endpoints: Iterable[Endpoint]) -> Document:
    listed = [endpoint for endpoint in endpoints if endpoint.listed]
    schemas = _Schemas(listed)
    paths: dict[str, Document] = {}
    for endpoint in listed:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    used = dict.fromkeys(endpoint.tag for endpoint in listed)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Windlass", "version": installed_version() or "0", "description": _ABOUT},
        "servers": [{"url": "/"}],
        "tags": [{"name": tag, "description": _TAGS.get(tag, "")} for tag in used],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
                "session": {"type": "apiKey", "in": "cookie", "name": "windlass_session"},
            },
        },
    }


class _Schemas:
    """The schemas of every type the endpoints name."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        endpoints = list(endpoints)
        self.of_one_job = [_operation_id(each) for each in endpoints if each.path.startswith("/v1/jobs/{id}")]
        kinds: list[Any] = [Problem, QueueName]
        queries: list[Any] = []
        for endpoint in endpoints:
            kinds += [kind for kind in endpoint.answers.values() if kind not in {None, str}]
            kinds += [endpoint.body] if endpoint.body is not None else []
            queries += [endpoint.query] if endpoint.query is not None else []
        found, self.components = msgspec.json.schema_components(kinds, ref_template=_REF)
        self._of = {_key(kind): schema for kind, schema in zip(kinds, found, strict=True)}
        # Queries are told as parameters, one by one: their types are no components of their own.
        self._queries: dict[Any, Document] = {}
        for query in queries:
            _, inner = msgspec.json.schema_components([query], ref_template=_REF)
            self._queries[query] = inner.pop(query.__name__)
            self.components |= inner

    def of(self, kind: Any) -> Document:
        return self._of[_key(kind)]

    def parameters(self, query: Any) -> Iterable[Document]:
        schema = self._queries[query]
        required = set(schema.get("required", ()))
        for name, said in schema["properties"].items():
            inner = {key: value for key, value in said.items() if key != "description"}
            about = said.get("description") or next(
                (each["description"] for each in said.get("anyOf", ()) if "description" in each), None
            )
            yield {
                "name": name,
                "in": "query",
                "required": name in required,
                "schema": inner,
                **({"description": about} if about else {}),
            }


def _key(kind: Any) -> str:
    return repr(kind)


def _operation(endpoint: Endpoint, schemas: _Schemas) -> Document:
    told: Document = {
        "operationId": _operation_id(endpoint),
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "security": _security(endpoint),
        "responses": _responses(endpoint, schemas),
    }
    if endpoint.description or endpoint.scope:
        scope = f"Needs the scope `{endpoint.scope}`." if endpoint.scope else ""
        told["description"] = " ".join(filter(None, (endpoint.description, scope)))
    if parameters := list(_parameters(endpoint, schemas)):
        told["parameters"] = parameters
    if endpoint.body is not None:
        told["requestBody"] = _body(endpoint, schemas)
    return told


def _security(endpoint: Endpoint) -> list[Document]:
    if endpoint.scope is None and not endpoint.identified:
        return []
    scopes = [] if endpoint.scope is None else [endpoint.scope]
    return [{"bearer": scopes}, {"session": scopes}]


def _operation_id(endpoint: Endpoint) -> str:
    words = re.findall(r"\w+", endpoint.path.replace("-", "_"))
    return "_".join([endpoint.method.lower(), *words])


def _parameters(endpoint: Endpoint, schemas: _Schemas) -> Iterable[Document]:
    for name in _PARAMETER.findall(endpoint.path):
        schema = schemas.of(QueueName) if "/queues/" in endpoint.path else _PARAMETERS.get(name, {"type": "string"})
        yield {"name": name, "in": "path", "required": True, "schema": schema}
    if endpoint.query is not None:
        yield from schemas.parameters(endpoint.query)
    for name, about in endpoint.takes.items():
        yield {"name": name, "in": "header", "required": False, "description": about, "schema": {"type": "string"}}


def _body(endpoint: Endpoint, schemas: _Schemas) -> Document:
    content: Document = {JSON: {"schema": schemas.of(endpoint.body)}}
    example = _EXAMPLES.get(Submission if endpoint.bulk else endpoint.body)
    if example is not None:
        content[JSON]["example"] = [example] if endpoint.bulk else example
    if endpoint.bulk:
        lines = '{"type": "add_numbers", "payload": {"a": 2, "b": 3}}\n{"type": "reverse_string", "payload": {"text": "abc"}}\n'
        content[NDJSON] = {"schema": {"type": "string"}, "example": lines}
    return {"required": not endpoint.optional, "content": content}


def _responses(endpoint: Endpoint, schemas: _Schemas) -> Document:
    headers = {"X-Request-ID": _header("names this request in the log; the caller's own, if one was sent")}
    gives = {name: _header(about) for name, about in endpoint.gives.items()}
    responses: Document = {}
    for status, kind in endpoint.answers.items():
        responses[str(status)] = {
            "description": _about(status),
            "headers": headers | gives,
            **_content(endpoint, kind, schemas),
            **_links(kind, schemas),
        }
    for status in sorted(_problems(endpoint)):
        responses.setdefault(
            str(status),
            {
                "description": title(status),
                "headers": headers,
                "content": {MEDIA: {"schema": schemas.of(Problem)}},
            },
        )
    return responses


def _links(kind: Any, schemas: _Schemas) -> Document:
    """Where what is told leads: from a stored job to all that can be done with it."""
    if kind is not Stored:
        return {}
    where = {"id": "$response.body#/id"}
    return {"links": {name: {"operationId": name, "parameters": where} for name in schemas.of_one_job}}


def _content(endpoint: Endpoint, kind: Any, schemas: _Schemas) -> Document:
    if kind is None:
        return {}
    if kind is str:
        media = "text/plain" if endpoint.media == JSON else endpoint.media
        return {"content": {media: {"schema": {"type": "string"}}}}
    return {"content": {endpoint.media: {"schema": schemas.of(kind)}}}


def _problems(endpoint: Endpoint) -> set[int]:
    """What follows from the rest, and what the endpoint itself names."""
    found = {400, 500, 503, *endpoint.problems}
    if endpoint.scope is not None:
        found |= {401, 403}
    if "{" in endpoint.path:
        found |= {404, 422}
    if endpoint.query is not None:
        found.add(422)
    if endpoint.body is not None:
        found |= {408, 413, 415, 422}
    return found


def _header(about: str) -> Document:
    return {"description": about, "schema": {"type": "string"}}


def _about(status: int) -> str:
    return {200: "Done", 201: "Made", 202: "Stored", 204: "Done", 303: "Elsewhere", 304: "Not changed"}.get(
        status, "Answered"
    )

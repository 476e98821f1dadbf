"""The pages of the API's own description. They hold no data of anyone, so they are open, like the probes; what one tries
out from them needs a token or a session, like any request.
"""

from functools import cache
from hashlib import blake2b
from importlib import resources
from typing import Final

from msgspec import json

from windlass.api.endpoint import Answer, Call, Endpoint
from windlass.wire import Told

# Nothing from elsewhere, no inline script or style, and no other page may put a frame around it.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",  # kept, but asked for again: after an upgrade scripts and page must fit each other
}
_KINDS: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class Page:
    """One file of ours, read once. Callers name none: there is a route for each, so no path leads anywhere else."""

    def __init__(self, name: str) -> None:
        self.body = (resources.files("windlass.api") / "static" / name).read_bytes()
        tag = f'"{blake2b(self.body, digest_size=12).hexdigest()}"'
        self.headers = {**_HEADERS, "content-type": _KINDS[name.rpartition(".")[2]], "etag": tag}

    async def __call__(self, call: Call) -> Answer:
        if call.request.headers.get("if-none-match") == self.headers["etag"]:
            return Answer(None, 304, {name: value for name, value in self.headers.items() if name != "content-type"})
        return Answer(self.body, 200, self.headers)


def _page(path: str, name: str) -> Endpoint:
    return Endpoint(
        *("GET", path, None, Page(name)),
        summary="The description of the API, as a page",
        tag="pages",
        answers={200: str, 304: None},
        media=_KINDS[name.rpartition(".")[2]],
        listed=False,
    )


@cache
def _described() -> tuple[bytes, str]:
    # Made of the whole table, of which this module is a part.
    from windlass.api.openapi import document  # noqa: PLC0415
    from windlass.api.table import table  # noqa: PLC0415

    body = json.encode(document(table()))
    return body, f'"{blake2b(body, digest_size=12).hexdigest()}"'


async def described(call: Call) -> Answer:
    body, tag = _described()
    headers = {"etag": tag, "cache-control": "no-cache"}
    if call.request.headers.get("if-none-match") == tag:
        return Answer(None, 304, headers)
    return Answer(body, 200, headers)


class Index(Told):
    """Where to go from here."""

    api: str
    dashboard: str
    docs: str
    openapi: str
    probes: list[str]


_INDEX: Final = Index(api="/v1", dashboard="/ui", docs="/docs", openapi="/openapi.json", probes=["/livez", "/readyz"])


async def front(call: Call) -> Answer:
    """Leads browsers to the dashboard and tells programs where things are. Open, so it says nothing else."""
    headers = {"vary": "accept", "cache-control": "no-cache"}
    if b"text/html" in call.headers.get(b"accept", b""):
        return Answer(None, 307, headers | {"location": f"{call.parts.config.api.base_path}/ui/"})
    return Answer(_INDEX, 200, headers)


endpoints: Final = [
    Endpoint(
        *("GET", "/", None, front),
        summary="Where things are; browsers are led to the dashboard",
        tag="pages",
        answers={200: Index, 307: None},
        listed=False,
    ),
    Endpoint(
        *("GET", "/openapi.json", None, described),
        summary="The description of the API, as OpenAPI 3.1",
        tag="pages",
        answers={200: None, 304: None},
        listed=False,
    ),
    _page("/docs", "docs.html"),
    *(_page(f"/docs/{name}", name) for name in ("docs.css", "docs.js", "dom.js", "schema.js", "trial.js", "mark.svg")),
]

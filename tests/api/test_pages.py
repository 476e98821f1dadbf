"""The pages: open to anyone, from this host alone, and unable to run what others wrote."""

import re
from importlib import resources

import httpx2
import pytest
from starlette.types import ASGIApp

from windlass.api.pages import endpoints

PATHS = [endpoint.path for endpoint in endpoints if endpoint.path.startswith("/docs")]
STATIC = resources.files("windlass.api") / "static"


def policy(answer: httpx2.Response) -> dict[str, list[str]]:
    said = answer.headers["content-security-policy"].split(";")
    return {name: sources for name, *sources in (each.split() for each in said)}


@pytest.mark.parametrize("path", [*PATHS, "/openapi.json"])
async def test_pages_are_open_and_hold_still(http: httpx2.AsyncClient, path: str) -> None:
    answer = await http.get(path)
    assert answer.status_code == 200
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-cache"
    again = await http.get(path, headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    head = await http.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(answer.content))


@pytest.mark.parametrize("path", PATHS)
async def test_no_page_may_load_from_elsewhere_or_be_framed(http: httpx2.AsyncClient, path: str) -> None:
    allowed = policy(await http.get(path))
    assert allowed["default-src"] == ["'none'"]
    assert {source for name, sources in allowed.items() if name.endswith("-src") for source in sources} == {
        "'none'",
        "'self'",
    }
    assert allowed["frame-ancestors"] == allowed["base-uri"] == allowed["form-action"] == ["'none'"]


async def test_every_file_a_page_names_is_served(http: httpx2.AsyncClient) -> None:
    html = (STATIC / "docs.html").read_text()
    named = {f"/{link}" for link in re.findall(r'(?:src|href)="([^"#]+)"', html)}
    for name in ("docs.js", "schema.js", "trial.js", "dom.js"):
        imported = re.findall(r'from "\./([\w.]+)"', (STATIC / name).read_text())
        named |= {f"/docs/{each}" for each in imported}
    assert {path for path in PATHS if path != "/docs"} | {"/openapi.json"} == named
    for path in named:
        assert (await http.get(path)).status_code == 200


@pytest.mark.parametrize("file", sorted(each.name for each in STATIC.iterdir() if not each.name.endswith(".svg")))
def test_no_file_names_another_host_or_writes_markup(file: str) -> None:
    text = (STATIC / file).read_text()
    assert not re.search(r"https?://|(?<![:\w])//[\w-]+\.\w", text)
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc|\bstyle="
    assert not re.search(forbidden, text)
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=", text)  # nor scripts within a page


@pytest.mark.parametrize(
    "path",
    ["/docs/", "/docs/docs.html", "/docs/../parts.py", "/docs/%2e%2e/parts.py", "/docs/..%2fparts.py", "/docs/x.js"],
)
async def test_nothing_else_is_served(app: ASGIApp, path: str) -> None:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://localhost") as client:
        answer = await client.get(path)
    assert answer.status_code == 404


async def test_the_description_names_every_endpoint_with_its_scope(http: httpx2.AsyncClient) -> None:
    told = (await http.get("/openapi.json")).json()
    assert told["openapi"].startswith("3.1")
    events = told["paths"]["/v1/events"]["get"]
    assert events["security"][0] == {"bearer": ["read"]}
    assert "text/event-stream" in events["responses"]["200"]["content"]
    assert told["paths"]["/livez"]["get"]["security"] == []
    assert "/docs" not in told["paths"]


async def test_the_front_leads_browsers_to_the_dashboard_and_tells_programs_where_things_are(
    http: httpx2.AsyncClient,
) -> None:
    browser = await http.get("/", headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert (browser.status_code, browser.headers["location"]) == (307, "/ui/")
    told = (await http.get("/")).json()
    assert told == {
        "api": "/v1",
        "dashboard": "/ui",
        "docs": "/docs",
        "openapi": "/openapi.json",
        "probes": ["/livez", "/readyz"],
    }
    for path in (told["docs"], told["openapi"], told["probes"][0]):
        assert (await http.get(path)).status_code == 200

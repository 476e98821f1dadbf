"""The dashboard at /ui: one page behind every screen, files that browsers keep, any prefix, nothing from elsewhere."""

import gzip
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.api.callers import OWN, Client, enter
from tests.api.conftest import Tokens
from windlass.api import login, pages
from windlass.api.app import build
from windlass.api.dashboard import FOLDER, built_endpoints
from windlass.api.parts import Parts
from windlass.errors import Misconfigured

SCRIPT = "export const screens = 1;\n" * 100
PAGE = '<!doctype html><base href="/ui/" /><script type="module" src="./assets/index-1a2b.js"></script>'
PREFIX = "/tools/windlass"
BROWSER = {"accept": "text/html,*/*;q=0.8"}
is_built = pytest.mark.skipif(
    not (FOLDER / "index.html").is_file(), reason="the dashboard is not built, for lack of Node.js or its packages"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A build with one file of each kind."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text(PAGE)
    (tmp_path / "mark.svg").write_text("<svg/>")
    (tmp_path / ".stamp").write_text("1 2")
    (tmp_path / "assets" / "index-1a2b.js").write_text(SCRIPT)
    (tmp_path / "assets" / "index-3c4d.css").write_text("a{}")
    return tmp_path


Serve = Callable[..., Any]


@pytest.fixture
def serve(parts: Parts, folder: Path) -> Serve:
    """`async with serve() as ui`: calls an API with that build; `base_path`: the setting."""

    @asynccontextmanager
    async def calling(base_path: str = "") -> AsyncIterator[Client]:
        config = replace(parts.config, api=replace(parts.config.api, base_path=base_path))
        served = replace(parts, config=config)
        endpoints = [*built_endpoints(folder), *login.endpoints, *pages.endpoints]
        transport = httpx2.ASGITransport(app=build(served, endpoints), raise_app_exceptions=True)
        async with Client(transport=transport, base_url="http://localhost") as client:
            yield client

    return calling


# The page. ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/ui", "/ui/", "/ui/jobs", "/ui/jobs/0198c0de", "/ui/queues/a%2Fb", "/ui/queues/v1.2"]
)
async def test_every_screen_is_the_one_page_open_to_anyone_and_kept_by_nobody(serve: Serve, path: str) -> None:
    async with serve() as ui:
        answer = await ui.get(path)
        assert answer.status_code == 200
        assert '<base href="/ui/" />' in answer.text
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        head = await ui.head(path)
        assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize(
    "path", ["/ui/a/b/c", "/ui/assets", "/ui/assets/other.js", "/ui/assets/..%2Findex.html", "/uix"]
)
async def test_what_is_neither_screen_nor_file_is_not_there(serve: Serve, path: str) -> None:
    async with serve() as ui:
        answer = await ui.get(path)
    assert (answer.status_code, answer.json()["code"]) == (404, "no_such_path")


async def test_files_that_are_not_for_browsers_are_not_served(serve: Serve) -> None:
    async with serve() as ui:
        for path in ("/ui/.stamp", "/ui/index.html"):
            assert "1 2" not in (await ui.get(path)).text
            assert '<base href="/ui/" /><meta' in (await ui.get(path)).text  # the page, not the file


async def test_the_page_allows_nothing_from_elsewhere_and_a_style_of_its_own_nonce(serve: Serve) -> None:
    async with serve() as ui:
        answers = [await ui.get("/ui/") for _ in range(2)]
    nonces = []
    for answer in answers:
        said = [each.split() for each in answer.headers["content-security-policy"].split(";")]
        policy = {name: sources for name, *sources in said}
        (nonce,) = re.findall(r'<meta name="csp-nonce" content="([\w-]{20,})" />', answer.text)
        assert policy["style-src"] == ["'self'", f"'nonce-{nonce}'"]
        assert policy["img-src"] == ["'self'", "data:"]
        assert policy["default-src"] == policy["frame-ancestors"] == ["'none'"]
        for name in ("script-src", "connect-src", "font-src", "base-uri", "form-action"):
            assert policy[name] == ["'self'"], name
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        nonces.append(nonce)
    assert nonces[0] != nonces[1]


async def test_a_checkout_without_a_build_says_how_to_make_one(serve: Serve, folder: Path) -> None:
    (folder / "index.html").unlink()
    async with serve(base_path=PREFIX) as ui:
        answer = await ui.get("/ui/jobs")
        assert answer.status_code == 200
        assert "<code>make web</code>" in answer.text
        assert f'<base href="{PREFIX}/ui/" />' in answer.text  # so that ../docs is where the docs are
        assert "default-src 'none'" in answer.headers["content-security-policy"]


# Its files. ---------------------------------------------------------------------------------------------------------


async def test_files_with_a_hash_in_their_name_are_kept_for_ever_and_others_are_asked_for_again(serve: Serve) -> None:
    async with serve() as ui:
        script = await ui.get("/ui/assets/index-1a2b.js")
        style = await ui.get("/ui/assets/index-3c4d.css")
        mark = await ui.get("/ui/mark.svg")
    assert [each.headers["content-type"].partition(";")[0] for each in (script, style, mark)] == [
        "text/javascript",
        "text/css",
        "image/svg+xml",
    ]
    for each in (script, style):
        assert each.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert mark.headers["cache-control"] == "no-cache"
    assert {each.headers["cross-origin-resource-policy"] for each in (script, style, mark)} == {"same-origin"}


async def test_a_file_is_sent_compressed_to_whoever_takes_it_so(serve: Serve) -> None:
    async with serve() as ui:
        packed = await ui.get("/ui/assets/index-1a2b.js", headers={"accept-encoding": "br, gzip"})
        plain = await ui.get("/ui/assets/index-1a2b.js", headers={"accept-encoding": "identity"})
        small = await ui.get("/ui/assets/index-3c4d.css", headers={"accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < len(SCRIPT) / 10
    assert packed.text == plain.text == SCRIPT
    assert "content-encoding" not in plain.headers
    assert "content-encoding" not in small.headers
    assert packed.headers["vary"] == plain.headers["vary"] == "accept-encoding"


async def test_a_file_that_the_browser_has_is_not_sent_again(serve: Serve) -> None:
    async with serve() as ui:
        for path in ("/ui/assets/index-1a2b.js", "/ui/mark.svg"):
            first = await ui.get(path)
            again = await ui.get(path, headers={"if-none-match": first.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["cache-control"] == first.headers["cache-control"]
            assert (await ui.get(path, headers={"if-none-match": '"other"'})).status_code == 200
            head = await ui.head(path, headers={"accept-encoding": "identity"})
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["content-length"] == str(len(first.content))


# Behind a proxy. ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("passed_on", ["", PREFIX])
async def test_behind_a_prefix_everything_works_whether_the_proxy_passes_it_on_or_not(
    serve: Serve, tokens: Tokens, passed_on: str
) -> None:
    async with serve(base_path=PREFIX) as ui:
        page = await ui.get(f"{passed_on}/ui/queues/a%2Fb")
        assert f'<base href="{PREFIX}/ui/" />' in page.text
        assert (await ui.get(f"{passed_on}/ui/assets/index-1a2b.js")).text == SCRIPT
        assert (await ui.get(f"{passed_on}/ui/assets/other.js")).status_code == 404
        front = await ui.get(f"{passed_on}/", headers=BROWSER)
        assert front.headers["location"] == f"{PREFIX}/ui/"
        assert f'action="{PREFIX}/login"' in (await ui.get(f"{passed_on}/login")).text
        form = {"code": tokens.signer.sign("admin", ["admin"], 600, "login"), "next": "/ui/jobs?status=failed"}
        entered = await ui.post(f"{passed_on}/login", data=form, headers=OWN)
        assert (entered.status_code, entered.headers["location"]) == (303, f"{PREFIX}/ui/jobs?status=failed")


async def test_the_prefix_alone_is_the_front_and_what_only_begins_like_it_is_nothing(serve: Serve) -> None:
    async with serve(base_path=PREFIX) as ui:
        assert (await ui.get(PREFIX, headers=BROWSER)).headers["location"] == f"{PREFIX}/ui/"
        for path in (f"{PREFIX}x/ui/", f"{PREFIX}{PREFIX}/ui/", f"{PREFIX}ui/", "/tools/ui/"):
            assert (await ui.get(path)).status_code == 404, path


@pytest.mark.parametrize("base_path", ["windlass", "/windlass/", "//evil.example", "/a b", '/"><script>', "/a?b"])
async def test_a_base_path_that_is_none_is_refused_at_the_start(serve: Serve, base_path: str) -> None:
    with pytest.raises(Misconfigured, match="WINDLASS_BASE_PATH"):
        async with serve(base_path=base_path):
            pass


# Logging in. --------------------------------------------------------------------------------------------------------


async def test_a_login_leads_to_the_screen_that_was_asked_for(http: Client, tokens: Tokens) -> None:
    for screen in ("/ui/", "/ui/jobs?status=failed&tag=a%20b", "/ui/queues/a%2Fb", "/ui/jobs/0198c0de-0000"):
        assert (
            f'name="next" value="{screen.replace("&", "&amp;")}"'
            in (await http.get("/login", params={"next": screen})).text
        )
        code = tokens.signer.sign("admin", ["admin"], 600, "login")
        answer = await enter(http, code=code, next=screen)
        assert (answer.status_code, answer.headers["location"]) == (303, screen)
        http.cookies.clear()


@pytest.mark.parametrize(
    "elsewhere",
    [
        "//evil.example",
        "/ui//evil.example",
        "/ui\\evil",
        "\\\\evil",
        "https://evil.example",
        "https:/ui/",
        "javascript:alert(1)",
        "/v1/jobs",
        "/login",
        "/uix",
        "/ui/../v1/jobs",
        "/ui/%2e%2E/v1",
        "/ui/..",
        "/ui/\r\nset-cookie: a=b",
        " /ui/",
        "ui/",
        "/ui/jobs\n",
    ],
)
async def test_a_login_leads_nowhere_but_to_the_dashboard(http: Client, tokens: Tokens, elsewhere: str) -> None:
    code = tokens.signer.sign("admin", ["admin"], 600, "login")
    answer = await enter(http, code=code, next=elsewhere)
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/")


async def test_what_was_asked_for_is_still_known_after_a_wrong_password_and_is_text_on_the_page(http: Client) -> None:
    screen = '/ui/jobs?text="><script>'
    for page in (
        await http.get("/login", params={"next": screen}),
        await enter(http, username="a", password="b", next=screen),
    ):
        assert 'value="/ui/jobs?text=&quot;&gt;&lt;script&gt;"' in page.text


async def test_an_api_key_opens_a_session_with_its_scopes(http: Client, api: Client) -> None:
    made = (await api.post("/v1/keys", json={"name": "wall", "scopes": ["read"]})).json()
    answer = await enter(http, username="", password="", api_key=f" {made['key']}\n")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/")
    cookie = {"cookie": answer.headers["set-cookie"].partition(";")[0]}
    http.cookies.clear()
    told = (await http.get("/v1/auth/me", headers=cookie)).json()
    assert (told["subject"], told["scopes"]) == (f"key:{made['id']}", ["read"])
    assert (await http.post("/v1/queues/default/pause", headers=cookie | OWN)).status_code == 403
    for wrong in ("wl_nobody", made["key"][:-1], "x" * 5_000):
        refused = await enter(http, api_key=wrong)
        assert refused.status_code == 401
        assert "set-cookie" not in refused.headers


async def test_a_session_ends_with_the_key_it_was_opened_with(http: Client, api: Client) -> None:
    made = (await api.post("/v1/keys", json={"name": "short", "scopes": ["read"], "ttl_s": 120})).json()
    lasting = (await api.post("/v1/keys", json={"name": "long", "scopes": ["read"]})).json()
    ages = []
    for key in (made["key"], lasting["key"]):
        said = (await enter(http, api_key=key)).headers["set-cookie"]
        ages.append(int(re.findall(r"(?i)max-age=(\d+)", said)[0]))
        http.cookies.clear()
    assert 0 < ages[0] <= 120
    assert ages[1] > 3_600


# The real build. ----------------------------------------------------------------------------------------------------


def needed(manifest: dict[str, Any], *names: str) -> Iterator[str]:
    """The files that a browser loads for these entries, with what they import."""
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            entry = manifest[name]
            yield from (entry["file"], *entry.get("css", ()))
            waiting += entry.get("imports", ())


@is_built
def test_the_first_load_is_at_most_200_kb() -> None:
    manifest = json.loads((FOLDER / ".vite" / "manifest.json").read_text())
    files = {"index.html", *needed(manifest, "index.html", "src/screens/overview/overview.tsx")}
    sizes = {file: len(gzip.compress((FOLDER / file).read_bytes(), 9)) for file in files}
    print(f"first load: {sum(sizes.values()) / 1000:.0f} kB in {len(sizes)} files")
    assert len(sizes) > 3
    assert sum(sizes.values()) <= 200_000, sizes


@is_built
async def test_every_file_that_the_page_names_is_served_and_none_is_elsewhere(http: Client) -> None:
    page = (await http.get("/ui/")).text
    named = re.findall(r'(?:src|href)="\./([^"]+)"', page)
    assert any(each.endswith(".js") for each in named)
    assert any(each.endswith(".css") for each in named)
    assert not re.search(r'(?:src|href)="(?:https?:|//)', page)
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", page)
    for each in named:
        assert (await http.get(f"/ui/{each}")).status_code == 200, each

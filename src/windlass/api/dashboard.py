"""The dashboard: the files that `web/` builds, served at `/ui`.

The pages hold no data of anyone, so they are open, like the description of the API; what they show comes from the API with
the session of the browser. There is a route for each file, so no path leads anywhere else, and one for each depth of the
screens' own addresses, which the page reads itself.
"""

import gzip
import re
import secrets
from hashlib import blake2b
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from windlass.api.endpoint import Answer, Call, Endpoint
from windlass.config import ApiConfig
from windlass.errors import Misconfigured

FOLDER: Final = resources.files("windlass.api") / "ui"
_INDEX: Final = "index.html"
_BASE: Final = '<base href="/ui/" />'
_YEAR: Final = "public, max-age=31536000, immutable"
_GZIP_MIN: Final = 1024
_MEDIA: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_HEADERS: Final = {
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Not no-referrer: with that the browser would not say whose page a request comes from, either.
    "referrer-policy": "same-origin",
}
# It stands in the page, so it has nothing but plain segments.
_BASE_PATH: Final = re.compile(r"(?:/[A-Za-z0-9_.~-]+)*")
_UNBUILT: Final = (
    f"<!doctype html><html lang='en'><head>{_BASE}<title>Windlass</title></head><body><main><p>The dashboard is not "
    "built in this checkout. <code>make up</code> and <code>make web</code> build it. The API is described at "
    "<a href='../docs'>docs</a>.</p></main></body></html>"
)


def checked_base_path(config: ApiConfig) -> str:
    """The path that a proxy puts before ours."""
    if not _BASE_PATH.fullmatch(config.base_path):
        raise Misconfigured(
            f"WINDLASS_BASE_PATH must be like /windlass, without a slash at its end, not {config.base_path!r}"
        )
    return config.base_path


def content_policy(nonce: str) -> str:
    """Nothing from elsewhere and no inline script. Pictures of jobs are shown from their own text, as data: addresses. The
    nonce is for the style with which dialogs keep the page behind them from scrolling."""
    return (
        f"default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; connect-src 'self'; "
        "img-src 'self' data:; font-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
    )


class Asset:
    """A file whose name holds a hash of what is in it: kept by browsers for ever, compressed once."""

    def __init__(self, file: Traversable, *, hashed: bool) -> None:
        self._body = file.read_bytes()
        self._packed = gzip.compress(self._body, 9, mtime=0) if len(self._body) >= _GZIP_MIN else None
        self.media = _MEDIA[file.name.rpartition(".")[2]]
        self._headers = {
            **_HEADERS,
            "content-type": self.media,
            "cache-control": _YEAR if hashed else "no-cache",
            "etag": f'"{blake2b(self._body, digest_size=12).hexdigest()}"',
            "vary": "accept-encoding",
        }

    async def __call__(self, call: Call) -> Answer:
        headers = self._headers
        if call.headers.get(b"if-none-match") == headers["etag"].encode():
            return Answer(None, 304, {name: headers[name] for name in ("etag", "cache-control", "vary")})
        if self._packed is not None and b"gzip" in call.headers.get(b"accept-encoding", b""):
            return Answer(self._packed, 200, headers | {"content-encoding": "gzip"})
        return Answer(self._body, 200, headers)


class Screen:
    """The one page behind every screen. It names the base path, so one build works behind any prefix."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def __call__(self, call: Call) -> Answer:
        nonce = secrets.token_urlsafe(16)
        base = call.parts.config.api.base_path
        page = self._text.replace(_BASE, f'<base href="{base}/ui/" /><meta name="csp-nonce" content="{nonce}" />')
        headers = {
            **_HEADERS,
            "content-type": _MEDIA["html"],
            "content-security-policy": content_policy(nonce),
            "cache-control": "no-store",
        }
        return Answer(page.encode(), 200, headers)


def _endpoint(path: str, handler: Asset | Screen, media: str) -> Endpoint:
    return Endpoint(
        *("GET", path, None, handler),
        summary="The dashboard",
        tag="pages",
        answers={200: str, 304: None},
        media=media,
        listed=False,
    )


def built_endpoints(built: Traversable) -> list[Endpoint]:
    """One endpoint for each file in the folder of a build, and the screens."""
    index = built / _INDEX
    screen = Screen(index.read_text(encoding="utf-8") if index.is_file() else _UNBUILT)
    paths = ("/ui", "/ui/", "/ui/{screen}", "/ui/{screen}/{name}")
    found = [_endpoint(path, screen, _MEDIA["html"]) for path in paths]
    if index.is_file():
        for prefix, folder, hashed in (("/ui", built, False), ("/ui/assets", built / "assets", True)):
            for file in folder.iterdir():
                if file.is_file() and file.name != _INDEX and not file.name.startswith("."):
                    asset = Asset(file, hashed=hashed)
                    found.append(_endpoint(f"{prefix}/{file.name}", asset, asset.media))
    return found


endpoints: Final = built_endpoints(FOLDER)

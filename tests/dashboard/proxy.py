"""A small reverse proxy that serves an API under a prefix and takes the prefix off, as an ingress does."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "upgrade"}
CHUNK = 16_384


def handler(prefix: str, upstream: str) -> type[BaseHTTPRequestHandler]:
    host = urlsplit(upstream).netloc

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.startswith(f"{prefix}/"):
                self.send_error(404)
                return
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            with suppress(OSError, http.client.HTTPException):  # either side went away: the browser asks again
                self._pass_on(self.path.removeprefix(prefix), body)

        do_POST = do_DELETE = do_GET  # noqa: N815 - the names that http.server looks for

        def _pass_on(self, path: str, body: bytes) -> None:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
            with closing(http.client.HTTPConnection(host, timeout=60)) as connection:
                connection.request(self.command, path, body, headers)
                with connection.getresponse() as answer:
                    self._answer(answer)

        def _answer(self, answer: http.client.HTTPResponse) -> None:
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.end_headers()
            while data := answer.read1(CHUNK):  # as it comes: an event stream never ends
                self.wfile.write(data)
                self.wfile.flush()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it has
            pass

    return Handler


@contextmanager
def proxied(prefix: str, upstream: str) -> Iterator[str]:
    """The address of the prefix at a free port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(prefix, upstream))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{prefix}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)

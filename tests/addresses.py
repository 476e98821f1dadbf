"""The tests' database as other drivers write it."""

from urllib.parse import parse_qs, urlsplit


def sqlalchemy_url(url: str, driver: str) -> str:
    parts = urlsplit(url)
    (host,) = parse_qs(parts.query)["host"]
    port = parse_qs(parts.query).get("port", [parts.port])[0]
    return f"postgresql+{driver}://{parts.username}@/{parts.path[1:]}?host={host}" + (f"&port={port}" if port else "")

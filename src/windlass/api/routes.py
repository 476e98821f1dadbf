"""Which endpoint a request is for: one look into a dictionary for most, a walk along the segments for paths with
parameters. A segment written out wins over a parameter, as OpenAPI says.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Generic, TypeVar
from urllib.parse import unquote

from windlass.errors import NoSuchPath, WrongMethod

T = TypeVar("T")
_PATH_SHOWN: Final = 200
_NO_PATH: Final[Mapping[str, str]] = {}


class _Node(Generic[T]):
    __slots__ = ("literal", "methods", "names", "parameter")

    def __init__(self) -> None:
        self.literal: dict[str, _Node[T]] = {}
        self.parameter: _Node[T] | None = None
        self.methods: dict[str, T] = {}
        self.names: Sequence[str] = ()


class Routes(Generic[T]):
    """Made once from (method, path, what is there); then only asked."""

    def __init__(self, routes: Iterable[tuple[str, str, T]]) -> None:
        self._root: _Node[T] = _Node()
        self._exact: dict[tuple[str, str], T] = {}
        for method, path, what in routes:
            node, names = self._root, []
            for segment in path.split("/")[1:]:
                if segment.startswith("{"):
                    names.append(segment[1:-1])
                    node.parameter = node.parameter or _Node()
                    node = node.parameter
                else:
                    node = node.literal.setdefault(segment, _Node())
            if method in node.methods:
                raise ValueError(f"two endpoints for {method} {path}")
            node.methods[method] = what
            node.names = names
            if not names:
                self._exact[method, path] = what
                if method == "GET":
                    self._exact["HEAD", path] = what

    def find(self, method: str, path: str, raw_path: bytes | None) -> tuple[T, Mapping[str, str]]:
        """What is at a path, and its parameters. Raises NoSuchPath, WrongMethod."""
        found = self._exact.get((method, path))
        if found is not None and (raw_path is None or b"%" not in raw_path):  # /v1%2Fjobs is one segment, and nothing
            return found, _NO_PATH
        node, values = self._walk(path, raw_path)
        there = node.methods.get("GET" if method == "HEAD" else method)
        if there is None:
            raise WrongMethod(method, allowed(node.methods))
        return there, dict(zip(node.names, values, strict=True))

    def methods(self, path: str, raw_path: bytes | None) -> list[str]:
        """What may be done at a path. Raises NoSuchPath."""
        return allowed(self._walk(path, raw_path)[0].methods)

    def _walk(self, path: str, raw_path: bytes | None) -> tuple[_Node[T], list[str]]:
        # Segments are parted before they are decoded: names of queues may hold a slash, written %2F.
        node: _Node[T] | None = self._root
        values: list[str] = []
        for segment in (path if raw_path is None else raw_path.decode("latin-1")).split("/")[1:]:
            plain = segment if raw_path is None else _decoded(segment, path)
            if node is not None and (literal := node.literal.get(plain)) is not None:
                node = literal
            elif node is not None and plain:
                node = node.parameter
                values.append(plain)
            else:
                node = None
                break
        if node is None or not node.methods:
            raise NoSuchPath(_shown(path))
        return node, values


def allowed(methods: Iterable[str]) -> list[str]:
    there = set(methods)
    return sorted(there | {"OPTIONS"} | ({"HEAD"} if "GET" in there else set()))


def _decoded(segment: str, path: str) -> str:
    try:
        return unquote(segment, errors="strict") if "%" in segment else segment
    except UnicodeDecodeError:
        raise NoSuchPath(_shown(path)) from None


def _shown(path: str) -> str:
    cut = path if len(path) <= _PATH_SHOWN else path[: _PATH_SHOWN - 1] + "…"
    return cut if cut.isprintable() else ascii(cut)[1:-1]

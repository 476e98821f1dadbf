"""What a caller may do. A scope is a plain word, the same in tokens, in JSON and in the table of endpoints.

submit: store jobs. read: see jobs, queues and workers. operate: cancel, retry, pause, replay. admin: all of it, and
users, keys and the audit as well.
"""

from collections.abc import Iterable
from typing import Final, get_args

from windlass.errors import Forbidden, RequestError
from windlass.wire import Scope

__all__ = ["ALL", "ORDER", "Scope", "allows", "granted", "known", "parsed", "written"]

ORDER: Final[tuple[Scope, ...]] = get_args(Scope)
ALL: Final[frozenset[Scope]] = frozenset(ORDER)


def allows(scopes: frozenset[Scope], needed: Scope) -> bool:
    return needed in scopes or "admin" in scopes


def granted(held: frozenset[Scope], asked: Iterable[Scope] | None) -> frozenset[Scope]:
    """What a token gets whose maker holds `held`: what he asks for, but never more than he has. Asking for nothing in
    particular gives all he has."""
    if asked is None:
        return held
    wanted = frozenset(asked)
    beyond = [scope for scope in ORDER if scope in wanted and not allows(held, scope)]
    if beyond:
        raise Forbidden(f"scope {', '.join(beyond)} was never given to this user or key")
    return wanted


def known(words: Iterable[str]) -> frozenset[Scope]:
    """The scopes among the words. Others, perhaps of a newer version, grant nothing here."""
    found = frozenset(words)
    return frozenset(scope for scope in ORDER if scope in found)


def parsed(text: str) -> frozenset[Scope]:
    """Scopes as a person writes them: `submit,read`. A misspelt one is told, not dropped."""
    words = text.replace(",", " ").split()
    unknown = sorted(set(words) - ALL)
    if unknown or not words:
        wrong = f"{unknown[0]!r} is no scope" if unknown else "no scope is given"
        raise RequestError(f"{wrong}; there are {', '.join(ORDER)}")
    return known(words)


def written(scopes: Iterable[Scope]) -> list[str]:
    """In their usual order: the same set is always told, signed and stored in the same way."""
    return [scope for scope in ORDER if scope in frozenset(scopes)]

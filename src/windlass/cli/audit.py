"""`windlass audit`: who did what."""

import json

from windlass.cli import remote
from windlass.cli.filters import LimitOption
from windlass.cli.output import Json, moment, say_json, table


def audit(limit: LimitOption = 50, as_json: Json = False) -> None:
    """Show who did what: every action of an operator, newest first.

    Examples: windlass audit · windlass audit --limit 500 --json
    """
    with remote.client() as client:
        from windlass.sdk import asks  # noqa: PLC0415 - help and completion do without

        found = client.ask(asks.audit(limit=min(limit, asks.page_max)))
        while found.next_cursor and len(found.entries) < limit:
            page = client.ask(
                asks.audit(limit=min(limit - len(found.entries), asks.page_max), cursor=found.next_cursor)
            )
            found.entries += page.entries
            found.next_cursor = page.next_cursor
    if as_json:
        say_json(found)
        return
    table(
        ["at", "actor", "action", "target", "detail"],
        (
            (
                moment(each.at),
                each.actor,
                each.action,
                each.target,
                "" if each.detail is None else json.dumps(each.detail, ensure_ascii=False),
            )
            for each in found.entries
        ),
        empty="nothing yet",
    )

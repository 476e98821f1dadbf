"""`windlass dead-letters`: jobs that failed for good; look at them by their errors, replay or discard them."""

from typing import TYPE_CHECKING, Annotated

import typer

from windlass.cli import jobs, many, remote
from windlass.cli.filters import LimitOption, QueueOption, SinceOption, TagOption, TypeOption, UntilOption, chosen
from windlass.cli.ids import Id, Ids, resolve_all
from windlass.cli.output import Json, Yes, ago, note, say_json, table

if TYPE_CHECKING:
    from windlass.sdk.asks import Filters

app = typer.Typer(help="Look at jobs that failed for good; replay or discard them.", no_args_is_help=True)

Fingerprint = Annotated[
    str | None, typer.Option("--fingerprint", help="Only with this kind of error, as `groups` shows it.")
]


@app.command("list")
def list_(
    type_: TypeOption = None,
    queue: QueueOption = None,
    tag: TagOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    fingerprint: Fingerprint = None,
    limit: LimitOption = 20,
    as_json: Json = False,
) -> None:
    """List failed jobs, newest first.

    Examples: windlass dead-letters list · windlass dead-letters list --type webhook --since 1d --json
    """
    filters = _chosen(type_, queue, tag, since, until, fingerprint)
    with remote.client() as client:
        found = list(client.dead_letters(limit=limit, **filters))
    if as_json:
        say_json({"jobs": found})
    else:
        jobs.show_jobs(found, expiry=True)


@app.command()
def groups(type_: TypeOption = None, queue: QueueOption = None, as_json: Json = False) -> None:
    """Show failed jobs grouped by type and error, the most recent first.

    Examples: windlass dead-letters groups · windlass dead-letters groups --queue mail
    """
    with remote.client() as client:
        from windlass.sdk import asks  # noqa: PLC0415 - help and completion do without

        found = client.ask(asks.dead_letter_groups(type_, queue))
    if as_json:
        say_json(found)
        return
    table(
        ["count", "type", "error", "last", "fingerprint", "message"],
        (
            (f"{each.count:,}", each.type, each.error_type, ago(each.last_at), each.fingerprint or "", each.message)
            for each in found.groups
        ),
        right=["count", "last"],
        empty="no dead letters",
    )
    if not found.complete:
        note(f"of the newest {found.jobs:,}; there are more")


@app.command()
def show(job_id: Id, as_json: Json = False) -> None:
    """Show one failed job with its attempts, its error and its traceback.

    Example: windlass dead-letters show 0190a4f2-7b1c-7def-8a35-2f4bb1a9c0de
    """
    jobs.show(job_id, as_json=as_json)


@app.command()
def replay(
    ids: Ids = None,
    type_: TypeOption = None,
    queue: QueueOption = None,
    tag: TagOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    fingerprint: Fingerprint = None,
    preview: jobs.Preview = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Run failed jobs again, with their failures forgotten. Those a filter finds are counted and asked about first.

    Examples: windlass dead-letters replay ID · windlass dead-letters replay --type webhook --since 1h --preview ·
    windlass dead-letters replay --fingerprint 97ebeb8c3404a41f --yes
    """
    filters = _chosen(type_, queue, tag, since, until, fingerprint)
    with remote.client() as client:
        from windlass.sdk import asks  # noqa: PLC0415

        named = resolve_all(client, ids)
        if len(named) == 1 and not filters and not preview:
            many.act_on_one(client, asks.replay(named[0]), as_json=as_json)
            return
        many.act_on_many(
            client,
            asks.replay_many,
            verb="Replay",
            ids=named,
            filters=filters,
            reason=None,
            yes=yes or bool(named),
            preview=preview,
            as_json=as_json,
        )


@app.command()
def discard(
    ids: Ids = None,
    type_: TypeOption = None,
    queue: QueueOption = None,
    tag: TagOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    fingerprint: Fingerprint = None,
    reason: Annotated[str | None, typer.Option(help="Why, for those who ask later.")] = None,
    preview: jobs.Preview = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Take failed jobs out of the dead letters; they are cancelled and keep their attempts. Those a filter finds are
    counted and asked about first.

    Examples: windlass dead-letters discard ID --reason "sent by hand" · windlass dead-letters discard --until 30d --preview ·
    windlass dead-letters discard --fingerprint 97ebeb8c3404a41f --yes
    """
    filters = _chosen(type_, queue, tag, since, until, fingerprint)
    with remote.client() as client:
        from windlass.sdk import asks  # noqa: PLC0415

        named = resolve_all(client, ids)
        if len(named) == 1 and not filters and not preview:
            many.act_on_one(client, asks.discard(named[0], reason), as_json=as_json)
            return
        many.act_on_many(
            client,
            asks.discard_many,
            verb="Discard",
            ids=named,
            filters=filters,
            reason=reason,
            yes=yes or bool(named),
            preview=preview,
            as_json=as_json,
        )


def _chosen(
    type_: str | None, queue: str | None, tag: str | None, since: str | None, until: str | None, fingerprint: str | None
) -> "Filters":
    filters = chosen(None, type_, queue, tag, since, until)
    if fingerprint is not None:
        filters["fingerprint"] = fingerprint
    return filters

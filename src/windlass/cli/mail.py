"""`windlass mail`: what `windlass up` has caught instead of sending it."""

from typing import Annotated

import typer

from windlass.cli import remote
from windlass.cli.output import Json, clean_lines, facts, moment, say, say_json, table

app = typer.Typer(help="See mail that was caught for development.", no_args_is_help=True)
Limit = Annotated[int, typer.Option(help="Only so many, the newest.", min=1, max=500)]


@app.command("list")
def list_(limit: Limit = 50, as_json: Json = False) -> None:
    """List caught mail, the newest first.

    Examples: windlass mail list · windlass mail list --limit 5 --json
    """
    from windlass.sdk import asks  # noqa: PLC0415 - help and completion do without

    with remote.client() as client:
        found = client.ask(asks.caught_mails(limit))
    if as_json:
        say_json(found)
        return
    table(
        ["id", "received", "from", "to", "subject"],
        ((mail.id, moment(mail.received_at), mail.sender, ", ".join(mail.to), mail.subject) for mail in found.mails),
        empty="no mail was caught yet",
    )


@app.command("show")
def show(
    mail_id: Annotated[str, typer.Argument(help="The id of the mail, from the list; last: the newest.")] = "last",
    source: Annotated[bool, typer.Option("--source", help="As it was sent, head and all.")] = False,
    as_json: Json = False,
) -> None:
    """Show a caught mail: its head, and its text.

    Examples: windlass mail show · windlass mail show 1763300000000-1a2b3c4d --source
    """
    from windlass.errors import MailNotFound  # noqa: PLC0415
    from windlass.sdk import asks  # noqa: PLC0415

    with remote.client() as client:
        if mail_id == "last":
            newest = client.ask(asks.caught_mails(1)).mails
            if not newest:
                raise MailNotFound("last")
            mail_id = newest[0].id
        mail = client.ask(asks.caught_mail(mail_id))
    if as_json:
        say_json(mail)
    elif source:
        say(clean_lines(mail.source))
    else:
        facts(mail.headers)
        say()
        say(clean_lines(mail.text or mail.html or ""))

"""`windlass login`: another link that logs a browser in, when the one that `windlass up` printed is used or too old."""

from typing import Annotated, Final

import typer

from windlass.auth.scopes import parsed
from windlass.auth.tokens import Signer
from windlass.cli.output import Json, say, say_json
from windlass.cli.remote import reached
from windlass.cli.token import signing
from windlass.cli.wiring import settings

login_s: Final = 900.0


def login(
    scope: Annotated[str, typer.Option(help="What the browser may do: submit, read, operate, admin.")] = "admin",
    as_json: Json = False,
) -> None:
    """Print a link that logs a browser in, once, within 15 minutes.

    Needs what `windlass token create` needs. Example: windlass login --scope read
    """
    signer = Signer.of(signing(settings(warn=False)))
    made = link(reached().url, signer, scope)
    say_json({"link": made, "expires_in": login_s}) if as_json else say(made)


def link(url: str, signer: Signer, scope: str = "admin") -> str:
    return f"{url}/login?code={signer.sign('admin' if scope == 'admin' else 'guest', parsed(scope), login_s, 'login')}"

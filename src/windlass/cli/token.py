"""`windlass token`: a token signed here, by whoever may read the secret of the API."""

import getpass
import json
import re
from dataclasses import replace
from typing import Annotated, Final

import typer

from windlass.auth.scopes import parsed, written
from windlass.auth.tokens import Signer
from windlass.cli.home import SECRET
from windlass.cli.wiring import data_folder, settings
from windlass.config import AuthConfig, Config
from windlass.errors import Misconfigured

app = typer.Typer(help="Make tokens for the API.", no_args_is_help=True)

_TTL: Final = re.compile(r"(\d{1,9})\s*(s|m|h|d)?")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_ttl_s: Final = 3600


def _seconds(text: str) -> int:
    """A time to live as people write it."""
    match = _TTL.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is no time; write 90s, 15m, 1h or 7d")
    return int(match[1]) * _SECONDS[match[2] or "s"]


@app.callback()
def _group() -> None:
    """Make tokens for the API."""


@app.command()
def create(
    scope: Annotated[str, typer.Option(help="What it may do: submit, read, operate, admin; several as submit,read.")],
    ttl: Annotated[
        int | None, typer.Option(help="How long: 90s, 15m, 1h (default).", parser=_seconds, metavar="TIME")
    ] = None,
    subject: Annotated[str | None, typer.Option(help="Whom logs and the audit shall name.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print a token, and nothing else.

    It is signed with WINDLASS_AUTH_SECRET, WINDLASS_AUTH_PRIVATE_KEY, or the secret that `windlass up` keeps in its
    data folder. It can be revoked by sending it to POST /v1/auth/logout.

    Example: curl -H "Authorization: Bearer $(windlass token create --scope read --ttl 15m)" localhost:8080/v1/stats
    """
    auth = signing(settings(warn=False))
    scopes = parsed(scope)
    ttl_s = min(_ttl_s, int(auth.token_ttl_s)) if ttl is None else ttl
    token = Signer.of(auth).sign(subject or f"cli:{_user()}", scopes, ttl_s)
    if as_json:
        token = json.dumps({"token": token, "expires_in": ttl_s, "scopes": written(scopes)})
    typer.echo(token)


def signing(config: Config) -> AuthConfig:
    """The settings with what tokens are signed with: as configured, or the secret of a data folder."""
    auth = config.auth
    if auth.auth == "off":
        raise Misconfigured("WINDLASS_AUTH = off: no token is needed, and none is looked at")
    if auth.auth_algorithm != "HS256" or auth.auth_secret is not None:
        return auth
    file = data_folder(config) / SECRET
    try:
        secret = file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise Misconfigured(
            "nothing to sign with: WINDLASS_AUTH_SECRET is not set, and no `windlass up` has left a secret in "
            f"{file.parent}"
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise Misconfigured(f"{file} cannot be read: {reason}") from None
    return replace(auth, auth_secret=secret)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no name for this user id, as in some containers
        return "unknown"

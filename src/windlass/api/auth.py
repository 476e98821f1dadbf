"""Logging in and out over JSON: proofs are exchanged for tokens. The pages for people are in login.py."""

from typing import Final

from windlass.api import login
from windlass.api.endpoint import Answer, Call, Endpoint
from windlass.api.job_shapes import quotas_told
from windlass.api.login import cleared
from windlass.auth.scopes import written
from windlass.errors import InvalidField
from windlass.wire import Login, Me, Refresh, Token

_TAG: Final = "auth"


async def token(call: Call) -> Token:
    """A token for a user's password or for an API key."""
    call.parts.gate.check_signs()
    asked: Login = call.body
    address = call.request.client.host if call.request.client else None
    logins = call.parts.gate.logins
    if asked.api_key is not None:
        if asked.username is not None or asked.password is not None:
            raise InvalidField("api_key", "is given beside a username or password; give one or the other")
        return logins.tokens(await logins.by_key(asked.api_key, address), asked.scopes)
    if asked.username is None:
        raise InvalidField("username", "is required, with a password; or an api_key")
    if asked.password is None:
        raise InvalidField("password", "is required with a username")
    return logins.tokens(await logins.by_password(asked.username, asked.password, address), asked.scopes)


async def refresh(call: Call) -> Token:
    call.parts.gate.check_signs()
    asked: Refresh = call.body
    return await call.parts.gate.logins.refreshed(asked.refresh_token)


async def logout(call: Call) -> Answer:
    """The token, and all that came of the same login, is void: here at once, elsewhere within seconds."""
    gate = call.parts.gate
    actor = gate.identify(call.request)
    if not gate.is_open:
        await gate.logins.ended(actor)
    return Answer(None, 204, {"set-cookie": cleared()})


async def me(call: Call) -> Me:
    gate = call.parts.gate
    actor = gate.identify(call.request)
    submitter = gate.quotas.find(actor.subject)
    return Me(
        subject=actor.subject,
        scopes=written(actor.scopes),
        expires_at=actor.expires_at,
        namespace=None if submitter is None else submitter.namespace,
        quotas=quotas_told(await gate.quotas.uses(submitter)) if submitter is not None else [],
    )


endpoints: Final = [
    Endpoint(
        *("POST", "/v1/auth/token", None, token),
        summary="Exchange a password or an API key for a token",
        description="Send `username` and `password`, or `api_key`. With `scopes` the token may do less than its owner. "
        "A user also gets a refresh token, good once. Failed logins are limited by name and by address.",
        tag=_TAG,
        answers={200: Token},
        body=Login,
        problems=(401, 403, 409, 429),
    ),
    Endpoint(
        *("POST", "/v1/auth/refresh", None, refresh),
        summary="Exchange a refresh token for new tokens",
        description="A refresh token is good once. One that is sent again ends the session with all its tokens.",
        tag=_TAG,
        answers={200: Token},
        body=Refresh,
        problems=(401, 403, 409, 429),
    ),
    Endpoint(
        *("POST", "/v1/auth/logout", None, logout),
        summary="End the session",
        description="Voids the token it is sent with, and all others of the same login. Any valid token may do this.",
        tag=_TAG,
        answers={204: None},
        problems=(401, 403, 429, 503),
        identified=True,
    ),
    Endpoint(
        *("GET", "/v1/auth/me", None, me),
        summary="Who the caller is",
        description="Any valid token may ask this. With the quotas of the caller, and what counts against each.",
        tag=_TAG,
        answers={200: Me},
        problems=(401, 403, 503),
        identified=True,
    ),
    *login.endpoints,
]

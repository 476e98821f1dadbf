"""What must be in order before the door is opened at all."""

import ipaddress

from windlass.auth.keyring import keyring
from windlass.config import Config
from windlass.errors import Misconfigured


def check_start(config: Config) -> None:
    """Raise Misconfigured rather than serve without protection: no secret, one that can be guessed, unreadable keys; or
    no authentication on an address that others can reach."""
    if config.auth.auth == "on":
        keyring(config.auth)
    elif not is_loopback(config.api.host):
        raise Misconfigured(
            f"WINDLASS_AUTH = off lets everyone do everything: not on WINDLASS_HOST = {config.api.host[:60]!r}, only "
            "on a loopback address such as 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """By what it says, not by what a name server says today; `localhost` is the one name that is fixed."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"

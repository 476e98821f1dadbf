"""How often something may be tried. Each name has an allowance that is used up by trying and comes back over a minute;
what succeeded is given back. Counted before the outcome is known: a thousand guesses sent at once are a thousand tries.
"""

import ipaddress
from typing import Final

_window_s: Final = 60.0
names_max: Final = 10_000


class Attempts:
    """Per name one number: when its allowance is whole again. Bounded: the names that were whole the longest are
    forgotten first, and to forget one that is not takes more tries than its address is allowed."""

    def __init__(self, a_minute: int) -> None:
        self._cost_s: Final = _window_s / a_minute
        self._whole_at: dict[str, float] = {}

    def take(self, name: str, now_s: float) -> float:
        """Count a try. Returns how many seconds it comes too early: 0 if it may be made; else it did not count."""
        whole_at = max(self._whole_at.pop(name, now_s), now_s)
        early_s = whole_at + self._cost_s - now_s - _window_s
        if early_s > 1e-6:
            self._whole_at[name] = whole_at
            return early_s
        if len(self._whole_at) >= names_max:
            del self._whole_at[next(iter(self._whole_at))]
        self._whole_at[name] = whole_at + self._cost_s
        return 0.0

    def give_back(self, name: str) -> None:
        """It succeeded: not a guess."""
        if name in self._whole_at:
            self._whole_at[name] -= self._cost_s


def network_of(address: str | None) -> str:
    """Who an address belongs to, as far as one can tell: with IPv6 everyone has 2⁶⁴ of them."""
    try:
        known = ipaddress.ip_address(address or "")
    except ValueError:
        return address or "unknown"
    if isinstance(known, ipaddress.IPv6Address):
        if known.ipv4_mapped is not None:
            return str(known.ipv4_mapped)
        return str(ipaddress.ip_network((int(known) >> 64 << 64, 64)))
    return str(known)

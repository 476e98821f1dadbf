"""Which addresses of the network are public: what jobs of strangers may be sent to.

A list of what is private is never complete, so IPv6 is the other way round: the one block that is handed out to the
public, without its special parts. Notations in which an IPv4 address hides in an IPv6 one are unwrapped where they are
in honest use (mapped, NAT64), else refused. Python's own `is_global` is asked as well, never alone: it has taken
NAT64 of a metadata address, multicast and 192.0.0.8 for public. Pure.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from windlass.errors import Misconfigured

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NOT_PUBLIC_4: Final = tuple(
    IPv4Network(each)
    for each in (
        "0.0.0.0/8",  # this network: 0.0.0.0 is this machine
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared by carriers; clouds keep metadata here
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local, and the metadata of most clouds
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "168.63.129.16/32",  # looks public, and is the inside of a cloud
    )
)
_HANDED_OUT_6: Final = IPv6Network("2000::/3")
_NOT_PUBLIC_6: Final = tuple(
    IPv6Network(each)
    for each in (
        "2001::/23",  # protocols, with Teredo and ORCHID
        "2001:db8::/32",
        "2002::/16",  # 6to4
        "2620:4f:8000::/48",
        "3ffe::/16",
        "3fff::/20",
    )
)
_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})
_v4_mask: Final = 0xFFFF_FFFF


def is_public(address: Address) -> bool:
    """Whether anybody on the internet could reach it, and nobody's inside hides behind it."""
    if isinstance(address, IPv4Address):
        said = address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)
        return said and not any(address in network for network in _NOT_PUBLIC_4)
    if address.scope_id is not None:
        return False
    embedded = IPv4Address(int(address) & _v4_mask)
    if address in _MAPPED or address in _NAT64:
        return is_public(embedded)
    if (int(address) >> 32) & _v4_mask in _ISATAP and not is_public(embedded):
        return False
    said = address in _HANDED_OUT_6 and address.is_global and not address.is_multicast
    return said and not any(address in network for network in _NOT_PUBLIC_6)


def plain(address: Address) -> Address:
    """An IPv4 address that is written as an IPv6 one, as what it is: the kernel connects to the same."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped


def is_within(address: Address, networks: tuple[Network, ...]) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def literal(host: str) -> Address | None:
    """The address a host says outright, if it does: 192.0.2.1 or 2001:db8::1, in no other notation."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def networks(setting: str) -> tuple[Network, ...]:
    """`10.1.0.0/16,[fd00::]/8,192.0.2.7` as networks."""
    found: list[Network] = []
    for each in filter(None, (part.strip() for part in setting.split(","))):
        try:
            found.append(ip_network(each.replace("[", "").replace("]", "")))
        except ValueError as error:
            raise Misconfigured(f"WINDLASS_EGRESS_ALLOW: {each[:60]!r} is no network: {error}") from None
    return tuple(found)


def ports(setting: str) -> frozenset[int] | None:
    """`80,443` as numbers; `*`, all of them, as None."""
    if setting.strip() == "*":
        return None
    texts = [part.strip() for part in setting.split(",") if part.strip()]
    for each in texts:
        if not (each.isascii() and each.isdigit() and 1 <= int(each[:6]) <= 65_535):
            raise Misconfigured(f"WINDLASS_EGRESS_PORTS: {each[:60]!r} is no port; write 80,443 or *")
    return frozenset(map(int, texts))

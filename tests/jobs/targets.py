"""Addresses that no job may reach, in every notation we know of. `{port}` is where a listener waits."""

from collections.abc import Sequence
from ipaddress import IPv4Address, ip_address

# Private, special or treacherous addresses, written plainly.
PLAIN = (
    *("127.0.0.1", "127.0.0.2", "127.1.2.3", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.254"),
    *("100.64.0.1", "100.100.100.200", "100.127.255.254", "169.254.0.1", "169.254.169.254", "169.254.170.2"),
    *("169.254.169.253", "172.16.0.1", "172.31.255.254", "192.0.0.1", "192.0.0.8", "192.0.0.192", "192.0.2.1"),
    *("192.0.2.2", "192.88.99.1", "192.168.0.1", "192.168.255.254", "198.18.0.1", "198.19.255.254", "198.51.100.1"),
    *("203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "168.63.129.16"),
    *("192.31.196.1", "192.52.193.1", "192.175.48.1"),
    *("::", "::1", "::2", "fe80::1", "febf::1", "fec0::1", "fc00::1", "fd00::1", "fd00::2", "fd00:ec2::254"),
    *("fd20:ce::254", "ff02::1", "ff0e::1", "100::1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"),
    *("2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "3fff::1", "3ffe::1", "5f00::1", "4000::1", "::ffff:0:0"),
)
# IPv4 addresses that hide in IPv6 ones.
_INNER = ("127.0.0.1", "10.0.0.1", "169.254.169.254", "192.168.1.1", "0.0.0.0", "172.16.0.1", "100.64.0.1")


def hidden() -> list[str]:
    found = []
    for text in _INNER:
        inner = int(IPv4Address(text))
        found += [
            str(ip_address(each))
            for each in (
                (0xFFFF << 32) | inner,  # mapped
                inner + (0 if inner > 1 else 3),  # compatible
                (0xFFFF << 48) | inner,  # translated
                (0x0064_FF9B << 96) | inner,  # NAT64
                (0x0064_FF9B_0001 << 80) | inner,  # NAT64, of one's own
                (0x2002 << 112) | (inner << 80),  # 6to4
                (0x2001_0000 << 96) | (inner ^ 0xFFFF_FFFF),  # Teredo
                (0x2600_1234 << 96) | (0x5EFE << 32) | inner,  # ISATAP
                (0xFE80 << 112) | (0x5EFE << 32) | inner,
            )
        ]
    return found


def odd(text: str) -> list[str]:
    """One IPv4 address in the notations that libraries of C and browsers read."""
    a, b, c, d = text.split(".")
    number = int(IPv4Address(text))
    return [
        *(str(number), hex(number), oct(number).replace("0o", "0"), f"0x{number:08X}", f"0x0000{number:x}"),
        *(f"{int(a):#x}.{int(b):#x}.{int(c):#x}.{int(d):#x}", ".".join(f"{int(each):04o}" for each in (a, b, c, d))),
        *(f"{a}.{(int(b) << 16) | (int(c) << 8) | int(d)}", f"{a}.{b}.{(int(c) << 8) | int(d)}", f"{text}."),
        *(f"{a}.{b}.{c}.{int(d):03o}", f"{a}.{b}.{c}.{int(d):#x}", f"00{a}.{b}.{c}.{d}"),
    ]


ODD = [notation for text in ("127.0.0.1", "169.254.169.254", "10.0.0.1") for notation in odd(text)]
# Names that this machine, or a resolver in league with the sender, takes for something inside.
NAMES = {
    "localhost": ["127.0.0.1"],
    "LOCALHOST": ["127.0.0.1"],
    "localhost.": ["127.0.0.1"],
    "foo.localhost": ["127.0.0.1"],
    "ip6-localhost": ["::1"],
    "metadata.google.internal": ["169.254.169.254"],
    "metadata": ["169.254.169.254"],
    "instance-data.ec2.internal": ["169.254.169.254"],
    "127.0.0.1.nip.test": ["127.0.0.1"],
    "inside.test": ["10.0.0.1"],
    "six.inside.test": ["fd00::1"],
    "mapped.test": ["::ffff:127.0.0.1"],
    "nat64.test": ["64:ff9b::7f00:1"],
    "scoped.test": ["fe80::1%lo"],
    "one-of-two.test": ["8.8.8.8", "127.0.0.1"],
    "one-of-two-the-other-way.test": ["127.0.0.1", "8.8.8.8"],
    "last-of-many.test": [*(f"8.8.4.{n}" for n in range(20)), "::1"],
    "zero.test": ["0.0.0.0"],
    "xn--lcalhost-54a.test": ["127.0.0.1"],
    "_service.test": ["127.0.0.1"],
    "nonsense.test": ["not an address"],
}
# Whole URLs that one reader takes for this and another for that.
TRICKS = (
    *("http://public.test@127.0.0.1:{port}/", "http://public.test:80@127.0.0.1:{port}/", "http://@127.0.0.1:{port}/"),
    *(
        "http://127.0.0.1:{port}\\@public.test/",
        "http://public.test\\@127.0.0.1:{port}/",
        "http:\\\\127.0.0.1:{port}\\",
    ),
    *("http://127.0.0.1:{port}#@public.test/", "http://127.0.0.1:{port}?@public.test/", "http://127.0.0.1:{port}/..@x"),
    *("http://user:pw@localhost:{port}/", "http://a@b@127.0.0.1:{port}/", "http://[::1]@127.0.0.1:{port}/"),
    *(
        "http://127。0。0。1:{port}/",
        "http://127\uff0e0\uff0e0\uff0e1:{port}/",
        "http://127｡0｡0｡1:{port}/",
        "http://①②⑦.0.0.1:{port}/",
    ),
    *("http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ:{port}/", "http://localho\u017ft:{port}/", "http://loc\u00adalhost:{port}/"),
    *("http://%31%32%37.0.0.1:{port}/", "http://%6cocalhost:{port}/", "http://127.0.0.1%00.public.test:{port}/"),
    *("http://127.0.0.1%2f.public.test:{port}/", "http://127.0.0.1%23.public.test:{port}/"),
    *("http://[::1%25lo]:{port}/", "http://[fe80::1%25eth0]:{port}/", "http://[::ffff:7f00:1]:{port}/"),
    *("http://[0:0:0:0:0:0:0:1]:{port}/", "http://[::127.0.0.1]:{port}/", "http://[::ffff:127.0.0.1]:{port}/"),
    *("http://[0000:0000:0000:0000:0000:ffff:7f00:0001]:{port}/", "http://[::FFFF:169.254.169.254]:{port}/"),
    *("http://::1:{port}/", "http://[127.0.0.1]:{port}/", "http://[v1.127.0.0.1]:{port}/", "http://[]:{port}/"),
    *("http:127.0.0.1:{port}/", "http:/127.0.0.1:{port}/", "http:///127.0.0.1:{port}/", "//127.0.0.1:{port}/"),
    *("127.0.0.1:{port}", "HTTP://127.0.0.1:{port}/", "hTTps://127.0.0.1:{port}/", " http://127.0.0.1:{port}/"),
    *("http://127.0.0.1:{port}/\r\nHost: public.test", "http://127.0.0.1\t:{port}/", "http://\n127.0.0.1:{port}/"),
    *("ftp://127.0.0.1:{port}/", "file:///etc/passwd", "gopher://127.0.0.1:{port}/_x", "dict://127.0.0.1:{port}/x"),
    *("ws://127.0.0.1:{port}/", "unix:///var/run/docker.sock", "http+unix://%2Fvar%2Frun%2Fdocker.sock/x", "data:,x"),
    *("ldap://127.0.0.1:{port}/", "javascript:alert(1)", "jar:http://127.0.0.1:{port}/!/", "http://", "https://?x", ""),
    *(
        "http://0:{port}/",
        "http://0x0:{port}/",
        "http://127.1:{port}/",
        "http://127.0.1:{port}/",
        "http://017700000001/",
    ),
    *("http://127.0.0.1.:{port}/", "http://127.0.0.1..:{port}/", "http://.127.0.0.1:{port}/", "http://127..1:{port}/"),
    *("http://0x7f.1:{port}/", "http://4294967297:{port}/", "http://127.0.0.256:{port}/", "http://0127.0.0.1:{port}/"),
)


def every(port: int) -> list[str]:
    """Each of them as a URL."""
    hosts: Sequence[str] = [*PLAIN, *hidden(), *ODD, *NAMES]
    plain = [f"http://{f'[{host}]' if ':' in host else host}:{port}/" for host in hosts]
    urls = [*plain, *(each.replace("{port}", str(port)) for each in TRICKS), f"https://127.0.0.1:{port}/"]
    return list(dict.fromkeys(urls))


async def resolve(host: str, port: int) -> Sequence[str]:
    """The names of this list; whatever else a machine would take for an address, as its own resolver does."""
    from windlass.jobs.egress import system_resolve

    return NAMES.get(host) or await system_resolve(host, port)

"""Which pages may use the cookie."""

import pytest

from windlass.auth.origin import is_foreign, may_use_cookie
from windlass.config.hosts import OwnHost, own_hosts, parse_host

NONE: tuple[OwnHost, ...] = ()
OWN = "http://localhost:8080"
FOREIGN = [
    "http://localhost:3000", "http://localhost", "https://localhost", "http://127.0.0.1:8080", "http://evil.example",
    "http://localhost:8080.evil.example", "http://localhost.evil.example:8080", "http://evil.example/localhost:8080",
    "http://localhost:8080@evil.example", "http://evil.example#localhost:8080", "null", "", "localhost:8080", "file://",
    "file://localhost:8080", "ftp://localhost:8080", "http://[::1", "http://localhost:99999", "http://é.example", "//localhost:8080",
    "javascript:localhost:8080", "chrome-extension://localhost:8080",
]  # fmt: skip


def headers(**said: str) -> dict[bytes, bytes]:
    given = {"host": "localhost:8080"} | {name.replace("_", "-"): value for name, value in said.items()}
    return {name.encode(): value.encode() for name, value in given.items()}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "post", "BREW"])
def test_a_page_of_ours_may_change_things(method: str) -> None:
    assert may_use_cookie(method, headers(origin=OWN, sec_fetch_site="same-origin"), NONE)
    assert may_use_cookie(method, headers(origin=OWN, sec_fetch_site="none"), NONE)
    assert may_use_cookie(method, headers(origin=OWN), NONE)  # over plain http browsers say no more


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "BREW"])
@pytest.mark.parametrize("origin", FOREIGN)
def test_a_foreign_page_may_change_nothing(method: str, origin: str) -> None:
    for site in ({}, {"sec_fetch_site": "same-origin"}, {"sec_fetch_site": "none"}):
        assert not may_use_cookie(method, headers(origin=origin, **site), NONE)
        assert is_foreign(method, headers(origin=origin, **site), NONE)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "Same-Origin", "", "same-origin, none"])
def test_what_the_browser_calls_foreign_is_foreign_whatever_the_origin(site: str) -> None:
    assert not may_use_cookie("POST", headers(origin=OWN, sec_fetch_site=site), NONE)
    assert is_foreign("POST", headers(origin=OWN, sec_fetch_site=site), NONE)
    assert is_foreign("POST", headers(sec_fetch_site=site), NONE)


def test_without_an_origin_nothing_is_changed() -> None:
    for site in ({}, {"sec_fetch_site": "same-origin"}, {"sec_fetch_site": "none"}):
        assert not may_use_cookie("POST", headers(**site), NONE)


def test_a_program_without_authentication_is_no_page() -> None:
    assert not is_foreign("POST", headers(), NONE)
    assert not is_foreign("POST", headers(origin=OWN, sec_fetch_site="same-origin"), NONE)
    assert not is_foreign("GET", headers(origin="http://evil.example", sec_fetch_site="cross-site"), NONE)


def test_a_foreign_page_may_link_to_us_and_not_fetch() -> None:
    assert may_use_cookie("GET", headers(), NONE)
    assert may_use_cookie("GET", headers(sec_fetch_site="same-origin", sec_fetch_mode="cors"), NONE)
    assert may_use_cookie("GET", headers(sec_fetch_site="cross-site", sec_fetch_mode="navigate"), NONE)
    for mode in ("cors", "no-cors", "same-origin", "websocket", ""):
        for site in ("cross-site", "same-site"):
            assert not may_use_cookie("GET", headers(sec_fetch_site=site, sec_fetch_mode=mode), NONE)


def test_a_proxy_may_take_the_tls_off_or_ask_in_another_name() -> None:
    assert may_use_cookie("POST", headers(host="jobs.example", origin="https://jobs.example"), NONE)
    assert may_use_cookie("POST", headers(host="jobs.example:443", origin="https://jobs.example"), NONE)
    behind = headers(host="10.0.0.7:8080", origin="https://jobs.example")
    assert not may_use_cookie("POST", behind, NONE)
    assert may_use_cookie("POST", behind, own_hosts("jobs.example"))
    assert not may_use_cookie("POST", headers(origin="https://evil.example"), own_hosts("jobs.example"))


@pytest.mark.parametrize(
    ("hosts", "said", "own"),
    [
        # Behind a proxy that asks in another name.
        ("jobs.example", {"origin": "https://jobs.example"}, True),
        ("jobs.example", {"origin": "https://JOBS.example:443"}, True),
        ("jobs.example.", {"origin": "https://jobs.example"}, True),
        ("jobs.example", {"origin": "http://jobs.example"}, False),
        ("jobs.example", {"origin": "http://jobs.example", "x_forwarded_proto": "http"}, True),
        ("jobs.example", {"origin": "https://jobs.example", "x_forwarded_proto": "http"}, True),
        ("jobs.example", {"origin": "http://jobs.example", "x_forwarded_proto": "https"}, False),
        ("jobs.example", {"origin": "https://jobs.example:8443"}, False),
        ("jobs.example", {"origin": "http://jobs.example:8081"}, False),
        ("jobs.example:8443", {"origin": "https://jobs.example:8443"}, True),
        ("jobs.example:8443", {"origin": "https://jobs.example"}, False),
        ("https://jobs.example", {"origin": "https://jobs.example"}, True),
        ("https://jobs.example", {"origin": "http://jobs.example", "x_forwarded_proto": "http"}, False),
        ("http://jobs.example", {"origin": "http://jobs.example"}, True),
        ("http://jobs.example", {"origin": "https://jobs.example"}, False),
        ("[2001:DB8::1]:8443", {"origin": "https://[2001:db8:0::1]:8443"}, True),
        ("2001:db8::1", {"origin": "https://[2001:db8::1]"}, True),
        ("jobs.example", {"origin": "https://user@jobs.example"}, False),
        ("jobs.example", {"origin": "https://jobs.example/"}, False),
        ("jobs.example", {"origin": "https://a.jobs.example"}, False),
        # Behind one that passes the name on.
        ("jobs.example", {"host": "jobs.example", "origin": "https://jobs.example"}, True),
        ("jobs.example", {"host": "jobs.example.", "origin": "https://jobs.example"}, True),
        ("jobs.example", {"host": "jobs.example:8080", "origin": "http://jobs.example:8080"}, True),
        ("jobs.example", {"host": "jobs.example:8080", "origin": "http://jobs.example:8081"}, False),
        ("jobs.example", {"host": "jobs.example", "origin": "http://jobs.example:8080"}, False),
        ("https://jobs.example", {"host": "jobs.example", "origin": "http://jobs.example"}, False),
        ("", {"host": "jobs.example", "origin": "http://jobs.example", "x_forwarded_proto": "https"}, False),
        ("", {"host": "jobs.example", "origin": "https://jobs.example", "x_forwarded_proto": "https, http"}, True),
        ("", {"host": "user@jobs.example", "origin": "https://jobs.example"}, False),
    ],
)
def test_scheme_host_and_port_of_a_page_are_compared(hosts: str, said: dict[str, str], own: bool) -> None:
    asked = headers(**({"host": "10.0.0.7:8080"} | said))
    assert may_use_cookie("POST", asked, own_hosts(hosts)) is own
    assert is_foreign("POST", asked, own_hosts(hosts)) is not own


@pytest.mark.parametrize(
    "text",
    ["", "a b", "user@a", "user:pw@a", "a/b", "a:b", "a:99999", "[::1", "[::g]", "a?b", "é.example", "-a", "a,b"],
)
def test_what_names_no_host_is_none(text: str) -> None:
    assert parse_host(text) is None


@pytest.mark.parametrize("setting", ["user@a", "ftp://a", "https://", "a/b", "https://a/b", "a b"])
def test_a_list_of_hosts_that_cannot_be_read_is_refused(setting: str) -> None:
    with pytest.raises(ValueError, match="is no host"):
        own_hosts(setting)

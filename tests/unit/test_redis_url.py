"""The address of a Redis is read as it is meant, or refused in words that hold nothing of it."""

import pytest

from windlass.cli.environs import for_api, for_worker
from windlass.config import Config, RedisConfig, load, redacted
from windlass.config.redis_url import RedisAddress, parse_redis_url
from windlass.errors import Misconfigured

SECRET = "hush-7f3a"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://cache", RedisAddress("single", (("cache", 6379),))),
        ("redis://cache:7000/3", RedisAddress("single", (("cache", 7000),), db=3)),
        ("redis://cache?db=3", RedisAddress("single", (("cache", 6379),), db=3)),
        ("redis://[::1]:7000", RedisAddress("single", (("::1", 7000),))),
        (f"redis://:{SECRET}@cache", RedisAddress("single", (("cache", 6379),), password=SECRET)),
        (
            "redis://us%40er:p%2F%3A%23w@cache",
            RedisAddress("single", (("cache", 6379),), username="us@er", password="p/:#w"),
        ),
        (
            "rediss://cache/0?ssl_ca_certs=/ca.pem&ssl_check_hostname=false",
            RedisAddress(
                "single",
                (("cache", 6379),),
                tls=True,
                tls_options={"ssl_ca_certs": "/ca.pem", "ssl_check_hostname": False},
            ),
        ),
        ("unix:///run/valkey.sock?db=2", RedisAddress("socket", path="/run/valkey.sock", db=2)),
        ("unix:///a%20b/c.sock", RedisAddress("socket", path="/a b/c.sock")),
        (f"unix:///c.sock?password={SECRET}", RedisAddress("socket", path="/c.sock", password=SECRET)),
        (
            f"redis+sentinel://u:{SECRET}@one:1,two/main/4",
            RedisAddress(
                "sentinel", (("one", 1), ("two", 26_379)), service="main", db=4, username="u", password=SECRET
            ),
        ),
        (
            f"redis+sentinel://one/main?sentinel_password={SECRET}",
            RedisAddress("sentinel", (("one", 26_379),), service="main", sentinel_password=SECRET),
        ),
        ("redis+cluster://one,two:1", RedisAddress("cluster", (("one", 6379), ("two", 1)))),
        ("rediss+cluster://one/0", RedisAddress("cluster", (("one", 6379),), tls=True)),
    ],
)
def test_an_address_is_read_as_it_is_meant(url: str, address: RedisAddress) -> None:
    assert parse_redis_url(url) == address


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"http://:{SECRET}@cache", "must begin with redis://"),
        (f"redis:{SECRET}", "must begin with redis://"),
        (f"redis://:{SECRET}@", "names no host"),
        (f"redis://:{SECRET}@cache:port", "has a port"),
        (f"redis://:{SECRET}@cache:65536", "has a port"),
        (f"redis://:{SECRET}@cache:0", "has a port"),
        (f"redis://:{SECRET}/x@cache", "has a # or / in its login"),
        (f"redis://:{SECRET}#x@cache", "has a # or / in its login"),
        (f"redis://:{SECRET}@[::1/0", "is no URL"),
        (f"redis://:{SECRET}@cache/one", "has a database that is no number"),
        (f"redis://:{SECRET}@cache/-1", "has a database that is no number"),
        (f"redis://:{SECRET}@cache/1/2", "has more in its path"),
        (f"redis://:{SECRET}@one,two", "names several hosts"),
        (f"redis://:{SECRET}@cache?decode_responses=yes", "an option that is not known"),
        (f"redis://:{SECRET}@cache?ssl_ca_certs=x", "an option that is not known"),
        (f"rediss://:{SECRET}@cache?ssl_cert_reqs=maybe", "ssl_cert_reqs"),
        (f"rediss://:{SECRET}@cache?ssl_check_hostname=maybe", "ssl_check_hostname"),
        (f"unix://?password={SECRET}", "names no socket"),
        (f"unix://run/valkey.sock?password={SECRET}", "three slashes"),
        (f"redis+sentinel://:{SECRET}@one", "names no service"),
        (f"redis+cluster://:{SECRET}@one/1", "only 0"),
        (f"redis+tls://:{SECRET}@one", "must begin with"),
    ],
)
def test_an_address_that_makes_no_sense_is_one_line_without_its_secrets(url: str, says: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        load({"WINDLASS_REDIS_URL": url})
    said = str(refused.value)
    assert said.startswith("WINDLASS_REDIS_URL: ")
    assert says in said
    assert SECRET not in said
    assert "\n" not in said
    assert Config(redis=RedisConfig(redis_url=url)).check().errors == (said,)


def test_it_may_come_from_a_file_and_is_not_shown() -> None:
    url = f"redis://:{SECRET}@cache/0"
    config = load({"WINDLASS_REDIS_URL_FILE": "/run/secrets/redis"}, read=lambda _: url + "\n")
    assert config.redis.redis_url == url
    assert SECRET not in repr(config)
    assert SECRET not in repr(parse_redis_url(url))
    assert redacted(url) == "redis://:***@cache/0"
    assert SECRET not in redacted(f"redis+sentinel://u:{SECRET}@one:1,two:2/main?sentinel_password={SECRET}")
    assert SECRET not in redacted(f"unix:///c.sock?password={SECRET}")


def test_the_processes_of_windlass_up_find_it_in_their_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"redis://:{SECRET}@cache/0"
    monkeypatch.setenv("WINDLASS_REDIS_URL", url)
    config = load({"WINDLASS_REDIS_URL": url})
    assert for_api(config, {})["WINDLASS_REDIS_URL"] == url
    assert for_worker(config, {})["WINDLASS_REDIS_URL"] == url

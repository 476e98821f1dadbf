"""Settings: said once, read from the environment, refused by name, and never with a secret in the message."""

import re
from dataclasses import fields, is_dataclass, replace

import pytest

from windlass.config import Config, LeaseConfig, Setting, StoreConfig, load, redacted, settings, variable
from windlass.errors import Misconfigured
from windlass.payload import payload_bytes_max

SECRET = "s3cr3t-p4ss"
URL = f"postgresql://app:{SECRET}@db.example:5432/jobs"
FILES = {"/run/secrets/url": URL + "\n", "/run/secrets/empty": "\n", "/run/secrets/mysql": f"mysql://app:{SECRET}@db"}


def read(path: str) -> str:
    if path == "/run/secrets/binary":
        raise UnicodeDecodeError("utf-8", b"\xff" + SECRET.encode(), 0, 1, "invalid start byte")
    if path not in FILES:
        raise FileNotFoundError(2, "No such file or directory", path)
    return FILES[path]


def refusal(**environ: str) -> str:
    with pytest.raises(Misconfigured) as caught:
        load({f"WINDLASS_{name}": value for name, value in environ.items()}, read=read)
    assert SECRET not in str(caught.value)
    return str(caught.value)


def test_nothing_said_gives_the_defaults_and_no_complaints() -> None:
    config = load({})
    assert config == Config()
    assert config.check() == ((), ())
    assert (config.store.schema, config.store.head_start_s, config.store.retention_days) == ("windlass", 60, 14)
    assert (config.store.partitions_ahead, config.store.key_ttl_s) == (3, 86_400)
    assert config.lease == LeaseConfig(lease_ttl_s=15, heartbeat_s=5, reap_tick_s=1)
    placement = config.placement
    assert (placement.reserve_after_s, placement.too_wide_grace_s, placement.hold_unknown_after_s) == (2, 5, 60)
    assert config.store.payload_bytes_max == payload_bytes_max


def test_every_setting_is_read_from_its_variable() -> None:
    said = {"DATABASE_URL": URL, "DIRECT_URL": URL, "SCHEMA": "jobs", "RETENTION_DAYS": " 30 ", "HEAD_START_S": "1.5"}
    config = load({f"WINDLASS_{name}": value for name, value in said.items()})
    assert (config.store.database_url, config.store.direct_url, config.store.schema) == (URL, URL, "jobs")
    assert (config.store.retention_days, config.store.head_start_s) == (30, 1.5)
    for each in settings():
        if isinstance(each.default, int | float):
            assert load({each.variable: str(each.default)}) == Config()


def test_the_common_database_url_is_the_fallback_and_empty_means_not_said() -> None:
    assert load({"DATABASE_URL": URL}).store.database_url == URL
    assert load({"DATABASE_URL": URL, "WINDLASS_DATABASE_URL": "postgres://other/db"}).store.database_url == (
        "postgres://other/db"
    )
    assert load({"WINDLASS_DATABASE_URL": "", "WINDLASS_LEASE_TTL_S": " "}) == Config()


def test_a_secret_may_come_from_a_file() -> None:
    assert load({"WINDLASS_DATABASE_URL_FILE": "/run/secrets/url"}, read=read).store.database_url == URL
    assert load({"WINDLASS_DATABASE_URL_FILE": "/run/secrets/empty"}, read=read).store.database_url is None


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/nowhere", "WINDLASS_DATABASE_URL_FILE = '/nowhere' cannot be read: No such file or directory"),
        ("/run/secrets/binary", "cannot be read: it is no UTF-8 text"),
        ("/run/secrets/mysql", "must begin with postgresql://"),
    ],
)
def test_a_secret_file_that_is_no_good_is_named_without_what_is_in_it(path: str, says: str) -> None:
    assert says in refusal(DATABASE_URL_FILE=path)


def test_a_secret_said_twice_or_from_a_file_nobody_can_read_is_refused() -> None:
    assert "are both set; give one" in refusal(DATABASE_URL=URL, DATABASE_URL_FILE="/run/secrets/url")
    with pytest.raises(Misconfigured, match="files cannot be read here"):
        load({"WINDLASS_DATABASE_URL_FILE": "/run/secrets/url"})


@pytest.mark.parametrize("each", [each for each in settings() if isinstance(each.default, int | float)])
@pytest.mark.parametrize("value", ["x", "nan", "inf", "-1", "1e999", "9" * 5000, "", "0x10", "1;drop", "\ud800"])
def test_a_value_out_of_range_names_variable_value_and_what_is_allowed(each: Setting, value: str) -> None:
    if not value:
        assert load({each.variable: value}) == Config()
        return
    with pytest.raises(Misconfigured) as caught:
        load({each.variable: value})
    message = str(caught.value)
    assert message.startswith(f"{each.variable} = ")
    assert each.allowed in message
    assert len(message) < 300
    message.encode()


def test_everything_wrong_is_said_at_once() -> None:
    message = refusal(POOL_MAX="many", RETENTION_DAYS="1", SCHEMA="a-b", DATABASE_URL=f"mysql://u:{SECRET}@h")
    for name in ("POOL_MAX = 'many'", "RETENTION_DAYS = 1: must be 2 to 3,650 days", "SCHEMA = 'a-b'", "DATABASE_URL"):
        assert f"WINDLASS_{name}" in message


@pytest.mark.parametrize("schema", ["windlass", "_w", "w1", "a" * 40])
def test_a_plain_schema_name_is_allowed(schema: str) -> None:
    assert load({"WINDLASS_SCHEMA": schema}).store.schema == schema


@pytest.mark.parametrize(
    "schema", ["1a", "A", "a b", 'a"b', "a;drop table job", "pg_x", "information_schema", "a" * 41, "ä", "a\nb"]
)
def test_a_schema_name_that_is_no_plain_identifier_is_refused(schema: str) -> None:
    assert refusal(SCHEMA=schema).startswith("WINDLASS_SCHEMA = ")


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://u:{SECRET}@h/d",
        f"u:{SECRET}@h/d",
        f"postgresql:u:{SECRET}@h",
        f"postgresql://u:{SECRET}#x@h/d",
        f"postgresql://u:{SECRET}/x@h/d",
        f"postgresql://u:{SECRET}@[::1/d",
        SECRET,
    ],
)
def test_a_url_that_is_none_is_refused_without_being_shown(url: str) -> None:
    assert "WINDLASS_DATABASE_URL" in refusal(DATABASE_URL=url)
    assert "WINDLASS_DIRECT_URL" in refusal(DATABASE_URL=URL, DIRECT_URL=url)
    assert SECRET not in redacted(url)


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"HEARTBEAT_S": "5.1"}, "at most a third of WINDLASS_LEASE_TTL_S = 15"),
        ({"LEASE_TTL_S": "3"}, "WINDLASS_HEARTBEAT_S = 5"),
        ({"POOL_MIN": "11"}, "must not exceed WINDLASS_POOL_MAX = 10"),
        ({"DIRECT_URL": URL}, "without WINDLASS_DATABASE_URL"),
    ],
)
def test_values_that_cannot_be_together_are_refused(environ: dict[str, str], says: str) -> None:
    assert says in refusal(**environ)


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"LOCK_TIMEOUT_S": "30"}, "WINDLASS_LOCK_TIMEOUT_S is never reached"),
        ({"REAP_TICK_S": "16"}, "noticed late"),
        ({"KEY_TTL_S": "1300000"}, "WINDLASS_KEY_TTL_S is longer than"),
        ({"HOLD_UNKNOWN_AFTER_S": "10"}, "a restart of workers moves jobs aside"),
        ({"LEASE_TLL_S": "15"}, "WINDLASS_LEASE_TLL_S sets nothing; did you mean WINDLASS_LEASE_TTL_S?"),
        ({"SCHEMA_FILE": "x"}, "WINDLASS_SCHEMA_FILE sets nothing"),
        ({"ZZZ": "1"}, "WINDLASS_ZZZ sets nothing"),
    ],
)
def test_doubtful_values_are_warned_about(environ: dict[str, str], says: str) -> None:
    config = load({f"WINDLASS_{name}": value for name, value in environ.items()})
    errors, warnings = config.check()
    assert not errors
    assert len(warnings) == 1
    assert says in warnings[0]
    assert SECRET not in warnings[0]


def test_a_config_made_by_hand_is_judged_the_same() -> None:
    config = replace(Config(), lease=LeaseConfig(lease_ttl_s=0), store=StoreConfig(database_url=f"x:{SECRET}"))
    errors, _ = config.check()
    assert [error.split(" ")[0] for error in errors] == ["WINDLASS_DATABASE_URL", "WINDLASS_LEASE_TTL_S"]
    assert SECRET not in "".join(errors)


def test_no_repr_shows_a_password() -> None:
    config = load({"WINDLASS_DATABASE_URL": URL, "WINDLASS_DIRECT_URL": URL})
    assert SECRET not in repr(config) + str(config) + f"{config.store}"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (URL, "postgresql://app:***@db.example:5432/jobs"),
        ("postgresql://app@db/jobs", "postgresql://app@db/jobs"),
        ("postgresql:///jobs?host=/run/pg", "postgresql:///jobs?host=/run/pg"),
        ("postgresql://a:b@c@h1:1,h2:2/d", "postgresql://a:***@h1:1,h2:2/d"),
        ("postgresql://[fe80::1]:5432/d", "postgresql://[fe80::1]:5432/d"),
        (f"postgresql://h/d?user=a&password={SECRET}&x=1", "postgresql://h/d?user=a&password=***&x=1"),
        (f"postgresql://h/d?PassWord={SECRET}", "postgresql://h/d?PassWord=***"),
        (f"postgresql://h/d?sslpassword={SECRET}", "postgresql://h/d?sslpassword=***"),
        (f"postgresql://app:{SECRET}", "***"),
        (f"postgresql://app:{SECRET}?x@h/d", "***"),
        (f"host=h password={SECRET}", "***"),
    ],
)
def test_a_url_is_shown_without_its_passwords(url: str, shown: str) -> None:
    assert redacted(url) == shown


def test_every_setting_says_its_unit_and_meaning_and_carries_its_unit_in_its_name() -> None:
    listed = list(settings())
    roles = [role for each in fields(Config) if is_dataclass(role := getattr(Config(), each.name))]
    assert [each.variable for each in listed] == [variable(each.name) for role in roles for each in fields(role)]
    assert len({each.variable for each in listed}) == len(listed), "one flat namespace"
    for each in listed:
        assert each.meaning
        assert each.allowed, "a unit, limits or choices"
        assert re.fullmatch(r"WINDLASS_[A-Z0-9_]+", each.variable)
        assert (each.unit == "s") == each.variable.endswith("_S")
        assert (each.unit == "bytes") == ("_BYTES" in each.variable)


def test_reservations_are_on_or_off_and_nothing_else() -> None:
    assert load({}).placement.reservations == "on"
    assert load({"WINDLASS_RESERVATIONS": "off"}).placement.reservations == "off"
    with pytest.raises(Misconfigured, match="WINDLASS_RESERVATIONS = 'no': must be on or off"):
        load({"WINDLASS_RESERVATIONS": "no"})


@pytest.mark.parametrize(("said", "widths"), [("4,8", (4, 8)), (" 1 , 1024", (1, 1024)), ("7", (7,))])
def test_workers_of_different_widths_replace_threads_and_processes(said: str, widths: tuple[int, ...]) -> None:
    found = load({"WINDLASS_WORKERS": said, "WINDLASS_THREADS": "3", "WINDLASS_PROCESSES": "2"}).worker
    assert found.widths == widths
    assert replace(found, workers="").widths == (3, 3)


@pytest.mark.parametrize("said", ["4,", "0", "4,-1", "a", "1025", "4;8", "٤", ",".join(["1"] * 257)])
def test_widths_that_cannot_be_are_refused_by_their_variable(said: str) -> None:
    with pytest.raises(Misconfigured, match=r"WINDLASS_WORKERS = .*(from 1 to 1,024|the most is 256)"):
        load({"WINDLASS_WORKERS": said})

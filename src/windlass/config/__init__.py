"""The settings as values: `load` reads the environment, `check` judges values and how they go together, `settings` lists
them for the manual.

The fields are in roles.py. Pure: the environment and the reading of files are arguments. Secrets appear in no repr and
in no message.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple, get_args
from urllib.parse import urlsplit

from windlass.config.hosts import own_hosts
from windlass.config.redis_url import parse_redis_url
from windlass.config.roles import (
    ApiConfig,
    AuthConfig,
    ClientConfig,
    JobsConfig,
    LeaseConfig,
    PlacementConfig,
    RedisConfig,
    StoreConfig,
    WorkerConfig,
)
from windlass.config.rules import Rule, variable
from windlass.errors import Misconfigured
from windlass.queue_names import is_served_name
from windlass.sealing import payload_keys

__all__ = [
    "ApiConfig",
    "AuthConfig",
    "ClientConfig",
    "Config",
    "JobsConfig",
    "LeaseConfig",
    "PlacementConfig",
    "RedisConfig",
    "Report",
    "Setting",
    "StoreConfig",
    "WorkerConfig",
    "is_schema_name",
    "load",
    "queue_weights",
    "redacted",
    "settings",
    "variable",
]

_PREFIX: Final = "WINDLASS_"
_day_s: Final = 86_400


class Report(NamedTuple):
    """`errors` refuse the start; `warnings` are worth a log line."""

    errors: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Config:
    """All settings by role. `unknown` are WINDLASS_ variables that set nothing."""

    store: StoreConfig = field(default_factory=StoreConfig)
    redis: RedisConfig = field(default_factory=RedisConfig)
    lease: LeaseConfig = field(default_factory=LeaseConfig)
    placement: PlacementConfig = field(default_factory=PlacementConfig)
    worker: WorkerConfig = field(default_factory=WorkerConfig)
    api: ApiConfig = field(default_factory=ApiConfig)
    auth: AuthConfig = field(default_factory=AuthConfig)
    jobs: JobsConfig = field(default_factory=JobsConfig)
    client: ClientConfig = field(default_factory=ClientConfig)
    unknown: tuple[str, ...] = ()

    def check(self) -> Report:
        """Judge each value, then how they go together."""
        return Report(tuple(_problems(self)) or tuple(_conflicts(self)), tuple(_doubts(self)))


class Setting(NamedTuple):
    """One line of the manual."""

    variable: str
    default: Any
    unit: str
    allowed: str
    meaning: str
    secret: bool


_ROLES: Final[Mapping[str, type]] = {
    "store": StoreConfig,
    "redis": RedisConfig,
    "lease": LeaseConfig,
    "placement": PlacementConfig,
    "worker": WorkerConfig,
    "api": ApiConfig,
    "auth": AuthConfig,
    "jobs": JobsConfig,
    "client": ClientConfig,
}


def settings() -> Iterator[Setting]:
    """Every setting there is, in the order of the fields."""
    for role in _ROLES.values():
        for each in fields(role):
            rule: Rule = each.metadata["rule"]
            yield Setting(variable(each.name), each.default, rule.unit, rule.allowed, rule.meaning, rule.secret)


def load(environ: Mapping[str, str], *, read: Callable[[str], str] | None = None) -> Config:
    """Read WINDLASS_* (and DATABASE_URL), or raise Misconfigured with everything that is wrong, each by its variable.

    A variable that is set but empty counts as not set. `read` returns the text of the file a …_FILE variable names.
    """
    errors: list[str] = []
    known: set[str] = set()
    roles: dict[str, Any] = {}
    for role_name, role in _ROLES.items():
        said: dict[str, Any] = {}
        for each in fields(role):
            rule: Rule = each.metadata["rule"]
            known |= {variable(each.name), variable(each.name) + "_FILE"} if rule.secret else {variable(each.name)}
            try:
                text = _text(environ, each.name, rule, read)
                if text is not None:
                    said[each.name] = _parse(each.name, text, each.type, rule)
            except Misconfigured as problem:
                errors.append(str(problem))
        roles[role_name] = role(**said)
    unknown = tuple(sorted(name for name in environ if name.startswith(_PREFIX) and name not in known))
    config = Config(**roles, unknown=unknown)
    errors += _problems(config)
    errors = errors or list(_conflicts(config))
    if errors:
        raise Misconfigured("; ".join(errors))
    return config


def redacted(url: str) -> str:
    """The URL as it may be shown: without its passwords, or not at all when it is unclear where they end."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "***"
    if not parts.scheme or parts.fragment or "@" in parts.path + parts.query:
        return "***"
    login, at, host = parts.netloc.rpartition("@")
    if re.search(r":[^,]*[^\d,]", re.sub(r"\[[^\]]*\]", "", host)):  # no port: perhaps a password
        return "***"
    user, colon, _ = login.partition(":")
    query = re.sub(r"(?i)((?:^|&)[^&=]*(?:password|passfile)[^&=]*=)[^&]*", r"\1***", parts.query)
    shown = f"{parts.scheme}://{user}{colon and ':***'}{at}{host}{parts.path}"
    return f"{shown}?{query}" if query else shown


def _text(environ: Mapping[str, str], name: str, rule: Rule, read: Callable[[str], str] | None) -> str | None:
    """What was said for a setting, or None."""
    plain = environ.get(variable(name), "").strip()
    file = environ.get(variable(name) + "_FILE", "").strip() if rule.secret else ""
    if plain and file:
        raise Misconfigured(f"{variable(name)} and {variable(name)}_FILE are both set; give one")
    if file:
        if read is None:
            raise Misconfigured(f"{variable(name)}_FILE = {file!r}: files cannot be read here; use {variable(name)}")
        try:
            return read(file).strip() or None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
            raise Misconfigured(f"{variable(name)}_FILE = {file!r} cannot be read: {reason}") from None
    if not plain and name == "database_url":
        plain = environ.get("DATABASE_URL", "").strip()
    return plain or None


def _parse(name: str, text: str, kind: Any, rule: Rule) -> Any:
    if kind is str or str in get_args(kind):
        return text
    try:
        return kind(text)
    except ValueError:
        raise Misconfigured(f"{variable(name)} = {_cut(text)}: must be a number, {rule.allowed}") from None


def _problems(config: Config) -> Iterator[str]:
    """What is wrong with single values."""
    for role_name in _ROLES:
        role = getattr(config, role_name)
        for each in fields(role):
            rule: Rule = each.metadata["rule"]
            value = getattr(role, each.name)
            if rule.least is not None and rule.most is not None and not rule.least <= value <= rule.most:
                yield f"{variable(each.name)} = {str(value)[:60]}: must be {rule.allowed}"
            elif rule.choices and value not in rule.choices:
                yield f"{variable(each.name)} = {_cut(value)}: must be {rule.allowed}"
            elif rule.unit.startswith("postgresql://") and value is not None and (problem := _url_problem(value)):
                also = " (or DATABASE_URL)" if each.name == "database_url" else ""
                yield f"{variable(each.name)}{also}: {problem}"
    yield from _unreadable(config)
    if not is_schema_name(config.store.schema):
        yield (
            f"WINDLASS_SCHEMA = {_cut(config.store.schema)}: must be 1 to 40 of a-z 0-9 _, begin with a letter or _, "
            "and not be a name of PostgreSQL's own"
        )


def _unreadable(config: Config) -> Iterator[str]:
    """What is wrong with values that are lists, or addresses."""
    if config.redis.redis_url is not None:
        try:
            parse_redis_url(config.redis.redis_url)
        except ValueError as error:
            yield f"{variable('redis_url')}: {error}"
    try:
        payload_keys(config.store.payload_keys)
    except ValueError as problem:
        yield f"{variable('payload_keys')}: {problem}"
    try:
        own_hosts(config.api.hosts)
    except ValueError as problem:
        yield f"{variable('hosts')}: {problem}"
    try:
        queue_weights(config.worker.queues)
    except ValueError as problem:
        yield f"{variable('queues')} = {_cut(config.worker.queues)}: {problem}"
    try:
        _ = config.worker.widths
    except ValueError as problem:
        yield f"{variable('workers')} = {_cut(config.worker.workers)}: {problem}"


def queue_weights(text: str) -> dict[str, int]:
    """Queues with their weights, from `a,b=3,tenant-*`; empty: none is named. Raises ValueError."""
    weights: dict[str, int] = {}
    for part in text.split(",") if text else ():
        name, equals, number = (piece.strip() for piece in part.partition("="))
        if not is_served_name(name):
            raise ValueError(f"{_cut(name)} is no queue's name; write names, patterns and weights as a,b=3,tenant-*")
        if equals and not (number.isdecimal() and 1 <= int(number) <= 1000):
            raise ValueError(f"the weight of {name} must be a whole number from 1 to 1,000")
        if name in weights:
            raise ValueError(f"{name} is there twice")
        weights[name] = int(number) if equals else 1
    return weights


def _conflicts(config: Config) -> Iterator[str]:
    """What cannot be together, asked only of values that are good by themselves."""
    store, lease = config.store, config.lease
    if store.pool_min > store.pool_max:
        yield f"WINDLASS_POOL_MIN = {store.pool_min}: must not exceed WINDLASS_POOL_MAX = {store.pool_max}"
    if lease.heartbeat_s * 3 > lease.lease_ttl_s:
        yield (
            f"WINDLASS_HEARTBEAT_S = {lease.heartbeat_s:g}: must be at most a third of WINDLASS_LEASE_TTL_S = "
            f"{lease.lease_ttl_s:g}, so that two lost heartbeats kill nobody"
        )
    if config.worker.stop_ask_s > config.worker.stop_grace_s:
        yield "WINDLASS_STOP_ASK_S: must not exceed WINDLASS_STOP_GRACE_S, or no exception is ever thrown"
    if store.direct_url is not None and store.database_url is None:
        yield "WINDLASS_DIRECT_URL: is set without WINDLASS_DATABASE_URL; set both, or neither for the embedded one"


def _doubts(config: Config) -> Iterator[str]:
    store, lease, placement = config.store, config.lease, config.placement
    if store.lock_timeout_s >= store.statement_timeout_s:
        yield "WINDLASS_LOCK_TIMEOUT_S is never reached: WINDLASS_STATEMENT_TIMEOUT_S is not longer"
    if lease.reap_tick_s > lease.lease_ttl_s:
        yield "WINDLASS_REAP_TICK_S is longer than WINDLASS_LEASE_TTL_S: the dead are noticed late"
    if store.key_ttl_s > store.retention_days * _day_s:
        yield "WINDLASS_KEY_TTL_S is longer than WINDLASS_RETENTION_DAYS: keyed jobs are kept longer than others"
    if placement.hold_unknown_after_s < lease.lease_ttl_s:
        yield "WINDLASS_HOLD_UNKNOWN_AFTER_S is shorter than WINDLASS_LEASE_TTL_S: a restart of workers moves jobs aside"
    known = [each.variable for each in settings()]
    for name in config.unknown:
        near = difflib.get_close_matches(name, known, n=1)
        yield f"{name} sets nothing" + (f"; did you mean {near[0]}?" if near else "")


def is_schema_name(name: str) -> bool:
    plain = re.fullmatch(r"[a-z_][a-z0-9_]{0,39}", name) is not None
    return plain and not name.startswith("pg_") and name != "information_schema"


def _url_problem(url: str) -> str | None:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "is no URL; postgresql://user:password@host:5432/database is one"
    if parts.scheme not in {"postgresql", "postgres"} or not url.startswith(f"{parts.scheme}://"):
        return "must begin with postgresql://"
    if parts.fragment or "@" in parts.path:
        return "has a # or / in its login; write them as %23 and %2F"
    return None


def _cut(text: str) -> str:
    return ascii(text if len(text) <= 60 else text[:59] + "...")

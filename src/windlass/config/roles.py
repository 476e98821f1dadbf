"""Every setting, with its variable, unit, default, limits and meaning, said once: on the field.

A field `lease_ttl_s` is set by WINDLASS_LEASE_TTL_S; a secret also by WINDLASS_…_FILE, which names a file.
"""

from dataclasses import dataclass, replace
from typing import Final, Self

from windlass.config.rules import setting
from windlass.payload import payload_bytes_max

_day_s: Final = 86_400
_mib: Final = 1_048_576
_threads_max: Final = 1024
_processes_max: Final = 256


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """PostgreSQL: where it is, and how we use it."""

    database_url: str | None = setting(
        None, "the database; not set: the embedded PostgreSQL", unit="postgresql:// URL", secret=True
    )
    direct_url: str | None = setting(
        None,
        "the same database without the pooler, for LISTEN and for detaching partitions; not set: database_url",
        unit="postgresql:// URL",
        secret=True,
    )
    data_dir: str | None = setting(
        None, "where `windlass up` keeps its database and its secret; not set: the user's data folder", unit="folder"
    )
    postgres_bin_dir: str | None = setting(
        None,
        "the folder with the embedded PostgreSQL's programs; not set: the wheel's, else the system's",
        unit="folder",
    )
    schema: str = setting("windlass", "the schema that holds our tables", unit="identifier")
    pool_min: int = setting(2, "connections kept open per process", unit="connections", least=0, most=1000)
    pool_max: int = setting(10, "connections per process at most", unit="connections", least=2, most=1000)
    statement_timeout_s: float = setting(30.0, "a statement is given up after", unit="s", least=0.1, most=3600)
    request_timeout_s: float = setting(
        5.0,
        "whoever submits or looks, by the API or from Python, waits for the database at most; the API then answers 503",
        unit="s",
        least=0.1,
        most=3600,
    )
    lock_timeout_s: float = setting(
        2.0,
        "a wait for an idempotency key that another transaction holds is given up after",
        unit="s",
        least=0.01,
        most=600,
    )
    head_start_s: float = setting(
        60.0, "one level of priority is worth this much waiting", unit="s", least=0, most=_day_s
    )
    statement_cache_size: int = setting(
        100,
        "prepared statements kept per connection; none behind a pooler that does not keep them, which is noticed",
        unit="statements",
        least=0,
        most=10_000,
    )
    retention_days: int = setting(14, "finished jobs are kept for", unit="days", least=2, most=3650)
    dead_letter_retention_days: int = setting(
        90, "failed jobs are kept for, counted from the failure; 0: for ever", unit="days", least=0, most=3650
    )
    type_retention_days: int = setting(
        30, "a type that no worker has declared for so long is forgotten", unit="days", least=1, most=3650
    )
    audit_retention_days: int = setting(
        400, "entries of the audit are kept for; the last 30 days always; 0: for ever", unit="days", least=0, most=3650
    )
    partitions_ahead: int = setting(3, "partitions made before they are needed", unit="partitions", least=1, most=60)
    payload_bytes_max: int = setting(
        payload_bytes_max, "the largest payload of a job", unit="bytes", least=1024, most=64 * _mib
    )
    payload_keys: str | None = setting(
        None,
        "what the headers of webhooks are encrypted with in the database, 32 random characters or more; several, separated by "
        "blanks: the first encrypts, all decrypt; not set: they are stored as they are",
        unit="keys",
        secret=True,
    )
    key_ttl_s: float = setting(
        float(_day_s),
        "an idempotency key lives for, or until its job has finished, whichever is later",
        unit="s",
        least=60,
        most=366 * _day_s,
    )

    def for_callers(self) -> Self:
        """The same for a process whose callers wait for an answer: it gives up sooner than a worker."""
        return replace(self, statement_timeout_s=min(self.statement_timeout_s, self.request_timeout_s))

    @property
    def retention_s(self) -> float:
        return self.retention_days * float(_day_s)

    @property
    def dead_letter_retention_s(self) -> float | None:
        """None: for ever."""
        return self.dead_letter_retention_days * float(_day_s) or None


@dataclass(frozen=True, slots=True)
class RedisConfig:
    """Redis or Valkey, if there is one: it makes some things faster, and nothing right or wrong."""

    redis_url: str | None = setting(
        None,
        "a Redis or Valkey that makes some things faster; also unix://, redis+sentinel://, redis+cluster://; not set: none",
        unit="redis:// URL",
        secret=True,
    )
    redis_timeout_s: float = setting(
        0.05, "an answer of Redis is waited for at most, then done without", unit="s", least=0.001, most=5
    )
    job_cache_s: float = setting(
        0.5,
        "`GET /v1/jobs/{id}` of an unfinished job may be this old, from Redis; 0: never",
        unit="s",
        least=0,
        most=60,
    )
    redis_locks: str = setting(
        "on", "a lock in Redis on each execution, which shows where an earlier one may go on", choices=("on", "off")
    )


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """How soon the dead are noticed."""

    lease_ttl_s: float = setting(15.0, "a worker not renewed for this long is dead", unit="s", least=1, most=3600)
    heartbeat_s: float = setting(5.0, "leases are renewed every", unit="s", least=0.1, most=1200)
    reap_tick_s: float = setting(
        1.0, "the leader looks for the jobs of dead workers every", unit="s", least=0.05, most=60
    )


@dataclass(frozen=True, slots=True)
class PlacementConfig:
    """What happens to jobs that find no room."""

    reservations: str = setting(
        "on", "threads are kept free for wide jobs that were passed over", choices=("on", "off")
    )
    reserve_after_s: float = setting(
        2.0, "a wide job gets threads reserved after being passed over for", unit="s", least=0, most=3600
    )
    too_wide_grace_s: float = setting(
        5.0, "a job wider than any worker waits for a wider one for", unit="s", least=0, most=_day_s
    )
    hold_unknown_after_s: float = setting(
        60.0, "jobs of a type no live worker knows are moved aside after", unit="s", least=1, most=_day_s
    )


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """The processes that run jobs, and how they end."""

    threads: int = setting(8, "threads of each worker process", unit="threads", least=1, most=_threads_max)
    processes: int = setting(1, "worker processes under one supervisor", unit="processes", least=1, most=_processes_max)
    workers: str = setting(
        "", "worker processes by their threads, as 4,8: used instead of the two above unless empty", unit="threads"
    )
    queues: str = setting(
        "",
        "the queues served, with weights: a,b=3,tenant-*; *: all there are; empty: those that the types of the app name",
        unit="names",
    )
    poll_s: float = setting(1.0, "an idle worker looks for jobs every, hinted or not", unit="s", least=0.05, most=60)
    buffer_s: float = setting(0.05, "a worker claims ahead what it will begin within", unit="s", least=0, most=1)
    stop_ask_s: float = setting(
        1.0, "a job told to stop is only asked for, before an exception is thrown into it", unit="s", least=0, most=3600
    )
    stop_grace_s: float = setting(
        5.0, "a job told to stop is given up, and its process ended, after", unit="s", least=0.1, most=3600
    )
    drain_s: float = setting(30.0, "a shutdown lets running jobs finish for", unit="s", least=0, most=_day_s)
    deaf_s: float = setting(
        30.0,
        "a worker that has had room and got none of the jobs that wait for it is deaf after",
        unit="s",
        least=1,
        most=3600,
    )
    start_s: float = setting(60.0, "a worker process must have started within", unit="s", least=1, most=3600)
    isolated_jobs_max: int = setting(
        100, "a process of isolated jobs is replaced after", unit="jobs", least=1, most=1_000_000
    )
    isolated_mib_max: int = setting(
        512, "a process of isolated jobs is replaced when it has grown beyond", unit="MiB", least=16, most=1_048_576
    )
    frozen_s: float = setting(
        15.0,
        "a worker process that is stopped (SIGSTOP, a debugger) is killed, and its jobs given back, after; 0: never",
        unit="s",
        least=0,
        most=_day_s,
    )
    replacing_max: int = setting(
        2,
        "workers that lost threads or have grown finish their jobs beside their successors, at most so many at a time",
        unit="processes",
        least=1,
        most=_processes_max,
    )
    worker_mib_max: int = setting(
        0,
        "a worker process grown beyond this finishes its jobs and is replaced; 0: never",
        unit="MiB",
        least=0,
        most=1_048_576,
    )
    lead: str = setting(
        "on",
        "whether the supervisor may lead; without-partitions: it leads, and the schema's owner runs `windlass migrate partitions`",
        choices=("on", "without-partitions", "off"),
    )
    log_level: str = setting("info", "what is logged", choices=("debug", "info", "warning", "error"))
    log_format: str = setting("auto", "how; auto: pretty on a terminal", choices=("auto", "json", "pretty"))
    log_jobs: str = setting(
        "auto",
        "jobs that get a line when they end; failures: all but successes; auto: all on a terminal (of more than 100 successes "
        "a second the rest is only counted), else failures",
        choices=("auto", "all", "failures"),
    )

    @property
    def widths(self) -> tuple[int, ...]:
        """The threads of each worker process. Raises ValueError if `workers` cannot be read."""
        if not self.workers:
            return (self.threads,) * self.processes
        texts = [part.strip() for part in self.workers.split(",")]
        if len(texts) > _processes_max:
            raise ValueError(f"names {len(texts)} processes; the most is {_processes_max}")
        for text in texts:
            if not (text.isascii() and text.isdecimal() and 1 <= int(text[:5]) <= _threads_max):
                raise ValueError(f"must be numbers of threads from 1 to {_threads_max:,}, one for each process, as 4,8")
        return tuple(map(int, texts))


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """The HTTP front door."""

    host: str = setting("127.0.0.1", "the address the API listens on", unit="address")
    port: int = setting(8080, "the port the API listens on; 0: any that is free", unit="port", least=0, most=65_535)
    hosts: str = setting(
        "",
        "hosts the API answers to, as a,https://b.example:8443; empty: those of this machine on loopback, else all",
        unit="hosts",
    )
    base_path: str = setting(
        "",
        "the path before ours where a proxy serves us below one, as /windlass; requests may carry it or not",
        unit="path",
    )
    cors_origins: str = setting(
        "", "origins whose pages may call the API, as https://a.example,https://b.example; empty: none", unit="origins"
    )
    unknown_types: str = setting(
        "refuse", "submissions of a type no worker has ever declared", choices=("refuse", "accept")
    )
    unknown_type_grace_s: float = setting(
        30.0,
        "after its start the API accepts types that no worker has declared yet for; 0: never",
        unit="s",
        least=0,
        most=_day_s,
    )
    queues_max: int = setting(
        1000,
        "queues that submissions may make; those that workers or types name come on top",
        unit="queues",
        least=1,
        most=1_000_000,
    )
    types_max: int = setting(
        1000, "types that submissions may make where unknown ones are accepted", unit="types", least=1, most=1_000_000
    )
    tags_max: int = setting(100_000, "different tags that submissions may make", unit="tags", least=1, most=100_000_000)
    unready_s: float = setting(
        0.5,
        "a shutdown answers /readyz with no, and all else as before, for; then it closes the listener",
        unit="s",
        least=0,
        most=600,
    )
    body_bytes_max: int = setting(_mib, "the largest body of a request", unit="bytes", least=1024, most=64 * _mib)
    bulk_bytes_max: int = setting(
        32 * _mib, "the largest body of a bulk submission", unit="bytes", least=1024, most=1024 * _mib
    )
    head_timeout_s: float = setting(
        10.0, "a connection must have sent its request's head within", unit="s", least=0.1, most=600
    )
    body_timeout_s: float = setting(30.0, "a request's body must have come within", unit="s", least=0.1, most=3600)
    body_rate_min: int = setting(
        4096, "what a request's body must bring, over every 5 s", unit="bytes/s", least=0, most=_mib
    )
    connections_max: int = setting(
        1000, "open connections; more are answered 503", unit="connections", least=1, most=100_000
    )
    streams_max: int = setting(100, "open event streams; more are answered 503", unit="streams", least=0, most=10_000)
    api_drain_s: float = setting(30.0, "a shutdown lets requests in progress finish for", unit="s", least=0, most=3600)
    access_log: str = setting("on", "a log line for every request", choices=("on", "off"))
    mail_dir: str | None = setting(
        None, "the folder of mail caught for development, shown at /v1/dev/mail; `windlass up` sets it", unit="folder"
    )


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """Who may call the API."""

    auth: str = setting("on", "off: everyone may do everything, on loopback only", choices=("on", "off"))
    auth_algorithm: str = setting("HS256", "how tokens are signed", choices=("HS256", "EdDSA", "RS256"))
    auth_secret: str | None = setting(
        None, "what tokens are signed with under HS256: at least 32 bytes, random", unit="text", secret=True
    )
    auth_private_key: str | None = setting(
        None, "what tokens are signed with under EdDSA or RS256; not set: this API signs none", unit="PEM", secret=True
    )
    auth_public_keys: str | None = setting(
        None, "the keys that tokens are verified with under EdDSA or RS256: KID.pem, one each", unit="folder"
    )
    auth_kid: str = setting("main", "which of the public keys belongs to the private one", unit="name")
    auth_issuer: str = setting("windlass", "the issuer tokens must name", unit="text")
    auth_audience: str = setting("windlass", "the audience tokens must name", unit="text")
    token_ttl_s: float = setting(3600.0, "a token is good for, at most", unit="s", least=10, most=30 * _day_s)
    refresh_ttl_s: float = setting(
        30.0 * _day_s, "a session may be refreshed for", unit="s", least=60, most=366 * _day_s
    )
    login_attempts: int = setting(
        10, "failed logins a minute, by name and by address", unit="attempts", least=1, most=10_000
    )


@dataclass(frozen=True, slots=True)
class JobsConfig:
    """What the built-in job types may reach."""

    smtp_host: str | None = setting(
        None, "the server that mail is sent by; not set: mail jobs fail, and `windlass up` catches mail", unit="host"
    )
    smtp_port: int = setting(587, "its port", unit="port", least=1, most=65_535)
    smtp_security: str = setting("starttls", "how the connection is secured", choices=("starttls", "tls", "none"))
    smtp_user: str | None = setting(None, "the login at the server, if it wants one", unit="text")
    smtp_password: str | None = setting(None, "its password", unit="text", secret=True)
    mail_from: str | None = setting(None, "the sender of mail that names none", unit="address")
    mail_if_unknown: str = setting(
        "ask",
        "what to do about a mail that the server may have taken: ask a person, repeat it, or skip it",
        choices=("ask", "repeat", "skip"),
    )
    egress_allow: str = setting(
        "",
        "private addresses that webhooks and downloads may reach all the same, as 10.1.0.0/16,[fd00::]/8",
        unit="networks",
    )
    egress_ports: str = setting("80,443", "the ports that webhooks and downloads may reach; *: all", unit="ports")
    egress_timeout_s: float = setting(
        30.0, "a webhook or download is given up after, in all", unit="s", least=0.1, most=3600
    )
    webhook_secret: str | None = setting(
        None,
        "what webhooks are signed with, as whsec_… or NAME=whsec_… for jobs with that secret_name; separated by blanks",
        unit="keys",
        secret=True,
    )
    image_bytes_max: int = setting(
        20 * _mib, "the largest image that is fetched", unit="bytes", least=1024, most=1024 * _mib
    )
    image_pixels_max: int = setting(
        50_000_000,
        "the largest image that is opened, and what is opened together on a machine",
        unit="pixels",
        least=1000,
        most=1_000_000_000,
    )


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Where the commands and the client find the API, and how they prove who they are."""

    url: str | None = setting(None, "the API; not set: the one `windlass up` runs on this machine", unit="http:// URL")
    token: str | None = setting(None, "a token for it", unit="text", secret=True)
    api_key: str | None = setting(None, "an API key for it, exchanged for tokens", unit="text", secret=True)

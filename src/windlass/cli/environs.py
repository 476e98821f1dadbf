"""What the processes of `windlass up` find in their environment: the settings they need, and of the secrets only their own."""

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Final

from windlass.config import AuthConfig, ClientConfig, Config, JobsConfig, variable
from windlass.config.rules import Rule

# Said on the command line of the one who needs it, or of no use to a process that we start.
_DROPPED: Final = ("WINDLASS_APP", "WINDLASS_DATA_DIR", "DATABASE_URL")


def for_api(config: Config, files: Mapping[str, Path]) -> dict[str, str]:
    """`files`: those of the secrets we made, by setting, so that they are in no environment."""
    environ = _environ(config, without={*secrets_of(JobsConfig), *secrets_of(ClientConfig)})
    environ = {variable("unready_s"): "0"} | environ  # nobody balances load over one machine, and Ctrl-C shall be quick
    environ |= {variable("host"): config.api.host, variable("port"): str(config.api.port)}
    environ |= _said(config.api, "mail_dir")
    if config.worker.log_format != "json":  # people are told by `up` itself that the API is there, and that it is gone
        environ = {variable("log_level"): "warning"} | environ
    return environ | {variable(name) + "_FILE": str(file) for name, file in files.items()}


def for_worker(config: Config, files: Mapping[str, Path]) -> dict[str, str]:
    """Jobs are other people's code: nothing that opens the API is there for them to find."""
    environ = _environ(config, without={*secrets_of(AuthConfig), *secrets_of(ClientConfig)})
    environ.pop(variable("smtp_password") + "_FILE", None)
    environ |= _said(config.jobs, "smtp_host", "smtp_port", "smtp_security", "smtp_user", "smtp_password", "mail_from")
    environ |= _said(config.worker, "threads", "processes", "workers", "queues")
    if config.worker.log_format == "json" and config.worker.log_jobs == "auto":
        # Its output goes through us (relay.py): whether that ends at a terminal only we can tell.
        environ[variable("log_jobs")] = "all" if sys.stderr.isatty() else "failures"
    if (key := files.get("payload_keys")) is not None:
        environ[variable("payload_keys") + "_FILE"] = str(key)
    return environ


def _environ(config: Config, *, without: set[str]) -> dict[str, str]:
    gone = without | {*_DROPPED, *config.unknown, *(variable(name) + "_FILE" for name in ("database_url", "redis_url"))}
    environ = {name: value for name, value in os.environ.items() if name not in gone}
    environ |= _said(config.store, "database_url") | _said(config.redis, "redis_url")
    # A newcomer's terminal shall show what happens to jobs, and not drown in lines about each request.
    return environ if variable("log_level") in environ else {variable("access_log"): "off"} | environ


def _said(role: object, *names: str) -> dict[str, str]:
    """Settings as variables; one that is not set is empty, whatever our own environment says."""
    values = {name: getattr(role, name) for name in names}
    return {variable(name): "" if value is None else str(value) for name, value in values.items()}


def secrets_of(role: type) -> Iterator[str]:
    for each in fields(role):
        rule: Rule = each.metadata["rule"]
        if rule.secret:
            yield from (variable(each.name), variable(each.name) + "_FILE")

"""What an operator asks of the system itself: is the database well, does somebody lead, how is this process configured.

Unlike the probes these need a scope, so they may name versions, hosts and settings. Secrets are named and never shown.
"""

from dataclasses import fields
from time import perf_counter
from typing import Any, Final

from windlass.api.endpoint import Call, Endpoint
from windlass.config import Config, redacted, variable
from windlass.config.rules import Rule
from windlass.errors import WindlassError
from windlass.store.protocol import ClusterState
from windlass.versions import installed_version
from windlass.wire import Configuration, Health, HealthPart, SettingInEffect

_HIDDEN: Final = "***"


async def health(call: Call) -> Health:
    parts = await _database_parts(call)
    ok = all(part.ok for part in parts)
    if (redis := call.parts.shortcuts.health()) is not None:
        parts.append(HealthPart(name="Redis", ok=redis == "ok", detail=redis))
    return Health(ok=ok, version=installed_version() or "0", parts=parts)


async def _database_parts(call: Call) -> list[HealthPart]:
    began = perf_counter()
    try:
        state = await call.parts.views.cluster_state()
    except WindlassError as error:
        return [HealthPart(name="Database", ok=False, detail=str(error))]
    took_ms = (perf_counter() - began) * 1000
    return [
        HealthPart(name="Database", ok=True, detail=f"PostgreSQL {state.postgres}, answered in {took_ms:.1f} ms"),
        _leader_part(state),
        HealthPart(
            name="Workers",
            ok=state.workers > 0,
            detail=f"{state.workers:,} alive, {state.threads:,} threads" if state.workers else "none is alive",
        ),
        HealthPart(
            name="Connections",
            ok=state.connections < 0.9 * state.connections_max,
            detail=f"{state.connections:,} of {state.connections_max:,} that the server allows",
        ),
    ]


def _leader_part(state: ClusterState) -> HealthPart:
    if state.leader is None:
        return HealthPart(name="Leader", ok=False, detail="nobody leads: scheduled jobs and retries wait")
    return HealthPart(name="Leader", ok=True, detail=f"supervisor {state.leader}, term {state.term:,}")


async def configuration(call: Call) -> Configuration:
    return Configuration(settings=in_effect(call.parts.config))


def in_effect(config: Config) -> list[SettingInEffect]:
    """Every setting with its value in this process."""
    found = []
    for role in fields(config):
        values = getattr(config, role.name)
        if role.name == "unknown":
            continue
        for each in fields(values):
            rule: Rule = each.metadata["rule"]
            value = getattr(values, each.name)
            found.append(
                SettingInEffect(
                    variable=variable(each.name),
                    value=_shown(value, rule),
                    is_default=value == each.default,
                    meaning=rule.meaning,
                )
            )
    return found


def _shown(value: Any, rule: Rule) -> str:
    if value is None or value == "":
        return "not set"
    text = str(value)
    if not rule.secret:
        return text
    return redacted(text) if rule.unit.endswith("URL") else _HIDDEN


_TAG: Final = "cluster"

endpoints: Final = [
    Endpoint(
        *("GET", "/v1/health", "read", health),
        summary="Show whether what the system stands on is well",
        description="The database, the leader, workers, connections, and Redis where there is one. 200 also when something is not well: "
        "`ok` says so. For load balancers there is `/readyz`.",
        tag=_TAG,
        answers={200: Health},
    ),
    Endpoint(
        *("GET", "/v1/configuration", "admin", configuration),
        summary="Show the settings in effect",
        description="Those of the API process that answers. Secrets are named and never shown.",
        tag=_TAG,
        answers={200: Configuration},
    ),
]

"""What `windlass migrate check` tells: whether this code, the schema, the role and the way to the database go together."""

from dataclasses import dataclass
from datetime import date
from typing import Any

from windlass.config import StoreConfig
from windlass.store import migrate, partitions
from windlass.store.connections import connect, route_of
from windlass.store.grants import KINDS, Kind, lacking
from windlass.store.pooler import Route
from windlass.store.postgres import translated


@dataclass(frozen=True, slots=True)
class SetupReport:
    """`kinds`: what the role's rights are enough for. `days_ahead`: for how many days, today included, there are partitions."""

    schema: str
    state: migrate.State
    route: Route
    direct_route: Route | None
    role: str
    kinds: tuple[Kind, ...]
    partitions_until: date
    days_ahead: int
    partition_problem: str | None

    def lines(self) -> list[str]:
        """For people."""
        newer = f", newer than this version by {list(self.state.newer)}, and serves it" if self.state.newer else ""
        lines = [
            f"the schema fits: {self.schema} is at migration {max(self.state.applied)}{newer}",
            f"connections go {self.route}",
        ]
        if self.direct_route is not None:
            lines.append(f"WINDLASS_DIRECT_URL goes {self.direct_route}")
        if (self.direct_route or self.route).shared:
            lines.append(
                "no notifications arrive that way, so idle workers poll: set WINDLASS_DIRECT_URL to the address of PostgreSQL"
            )
        lines += [
            f"the role {self.role} has the rights of: {', '.join(self.kinds) or 'nothing (see windlass migrate grants)'}",
            f"there are partitions for {self.days_ahead} days, until {self.partitions_until}",
        ]
        if self.partition_problem is not None and "worker" in self.kinds:  # nobody else makes any
            lines.append(f"{self.partition_problem}; its workers need WINDLASS_LEAD=off or without-partitions")
        return lines

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "fits": True,
            "migration": max(self.state.applied),
            "newer": self.state.newer,
            "route": self.route._asdict(),
            "direct_route": None if self.direct_route is None else self.direct_route._asdict(),
            "role": self.role,
            "rights": self.kinds,
            "partitions_until": self.partitions_until.isoformat(),
            "partition_days_ahead": self.days_ahead,
            "makes_partitions": self.partition_problem is None,
        }


async def check_setup(config: StoreConfig) -> SetupReport:
    """Look at everything. Raises SchemaMismatch if the code cannot work with the schema."""
    connection = await connect(config)
    try:
        with translated():
            state = await migrate.check(connection, config.schema)
            today, until = await partitions.made_until(connection, config.schema)
            problem = await partitions.rights_problem(connection, config.schema)
            lacks = {kind: await lacking(connection, config.schema, kind) for kind in KINDS if kind != "owner"}
            kinds = [kind for kind in KINDS if (problem is None if kind == "owner" else not lacks[kind])]
            return SetupReport(
                config.schema,
                state,
                await route_of(connection, config),
                await _direct_route(config),
                await connection.fetchval("select current_user::text"),
                tuple(kinds),
                until,
                (until - today).days,
                problem,
            )
    finally:
        await connection.close(timeout=5)


async def _direct_route(config: StoreConfig) -> Route | None:
    if config.direct_url is None:
        return None
    connection = await connect(config, direct=True)
    try:
        return await route_of(connection, config, direct=True)
    finally:
        await connection.close(timeout=5)

"""Who needs which rights: the least that each kind of role can do its work with, as GRANT statements and as a check.

Four kinds. An *enqueuer* stores jobs, in its own transactions too, and waits for their results. The *API* does that and all that
operators ask for. A *worker* runs jobs and does the leader's chores but for partitions. The *owner* owns the schema: only an owner
can migrate, and make and remove partitions. Partitions need no grants: they are reached through their parents.
"""

from collections.abc import Collection
from typing import Final, Literal, NamedTuple, get_args

from windlass.config import is_schema_name
from windlass.errors import Misconfigured
from windlass.store.postgres import Connection
from windlass.store.statements import statements

Kind = Literal["enqueuer", "api", "worker", "owner"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


class Rights(NamedTuple):
    """On one table or view: s(elect), i(nsert), u(pdate), d(elete). A row that is locked needs u."""

    enqueuer: str
    api: str
    worker: str


RIGHTS: Final = {
    "job": Rights("si", "sid", "siud"),
    "job_kept": Rights("s", "sid", "siud"),
    "tag": Rights("i", "si", "sid"),
    "tag_kept": Rights("", "s", "sid"),
    "scheduled": Rights("si", "sid", "siud"),
    "held": Rights("s", "siud", "siud"),
    "ready": Rights("si", "sid", "siud"),
    "running": Rights("si", "siu", "siud"),
    "outcome": Rights("s", "sid", "siud"),
    "outcome_kept": Rights("s", "sid", "siud"),
    "attempt": Rights("s", "si", "sid"),
    "attempt_kept": Rights("s", "si", "sid"),
    "horizon": Rights("", "s", "s"),
    "worker": Rights("s", "su", "siud"),
    "idle": Rights("sud", "sud", "siud"),
    "step": Rights("", "", "sid"),
    "effect": Rights("", "sud", "siud"),
    "reservation": Rights("s", "s", "siud"),
    "queue": Rights("s", "siu", "sd"),
    "known_name": Rights("", "si", "sid"),
    "idempotency": Rights("si", "si", "siud"),
    "submitter": Rights("", "siud", ""),
    "charge": Rights("", "siud", "sud"),
    "counter": Rights("i", "i", "sid"),
    "tally": Rights("", "", "sid"),
    "rollup_delta": Rights("", "", "sid"),
    "rollup": Rights("", "s", "siud"),
    "leader": Rights("", "s", "siu"),
    "server": Rights("", "", "siu"),
    "job_type": Rights("", "s", "siud"),
    "type_version": Rights("si", "s", "siud"),
    "followed_log": Rights("", "siu", "sud"),
    "account": Rights("", "siud", ""),
    "api_key": Rights("", "siu", ""),
    "spent": Rights("", "si", "sud"),
    "revoked": Rights("", "siu", "sd"),
    "audit": Rights("", "si", ""),
    "identity": Rights("", "s", "s"),
    "migration": Rights("s", "s", "s"),
    "tallied": Rights("", "s", "s"),
    "known": Rights("s", "s", "s"),
    "living_version": Rights("", "s", "s"),
    "check": Rights("", "", ""),
}
_WORDS: Final = {"s": "select", "i": "insert", "u": "update", "d": "delete"}
_PURPOSES: Final[dict[Kind, str]] = {
    "enqueuer": "store jobs and wait for their results",
    "api": "serve the API",
    "worker": "run jobs and lead, but for partitions",
    "owner": "own the schema: migrate it, and make and remove partitions",
}
_NAME_BYTES_MAX: Final = 63
_SHOWN: Final = 3


def rights_of(kinds: Collection[Kind]) -> dict[str, str]:
    """The letters for each table, of all these kinds together."""
    found = {}
    for table, rights in RIGHTS.items():
        letters = {letter for kind in kinds if kind != "owner" for letter in getattr(rights, kind)}
        if letters:
            found[table] = "".join(letter for letter in _WORDS if letter in letters)
    return found


def grants(role: str, kinds: Collection[Kind], schema: str, database: str | None = None) -> str:
    """The statements that give a role what it needs to be all of these kinds. They may be run again and again."""
    if not role or len(role.encode()) > _NAME_BYTES_MAX or "\0" in role:
        raise Misconfigured(f"--role: must be the name of a role, 1 to {_NAME_BYTES_MAX} bytes")
    if not is_schema_name(schema):
        raise Misconfigured(f"schema name {schema!r} must be 1 to 40 of a-z 0-9 _ and no name of PostgreSQL's own")
    name, home = _quoted(role), _quoted(schema)
    lines = [f"-- What {name} needs to {', and to '.join(_PURPOSES[kind] for kind in _PURPOSES if kind in kinds)}."]
    if database is not None:
        lines += [
            "-- Everyone may connect to a database unless that was revoked: then the owner of the database has to run this line, and for",
            "-- others it is a warning.",
            f"grant connect on database {_quoted(database)} to {name};",
        ]
    lines += _owner_lines(name, home) if "owner" in kinds else _user_lines(name, home, kinds)
    return "\n".join(lines) + "\n"


def _owner_lines(name: str, home: str) -> list[str]:
    return [
        "-- Run it as a superuser, or as the owner of the database. If the schema is another role's already, make this role a member",
        f"-- of that one instead: grant <owner of {home}> to {name};",
        f"create schema if not exists {home} authorization {name};",
    ]


def _user_lines(name: str, home: str, kinds: Collection[Kind]) -> list[str]:
    lines = [
        "-- Run it as the owner of the schema, and again after each `windlass migrate upgrade`. Partitions need no grants.",
        f"grant usage on schema {home} to {name};",
    ]
    rights = rights_of(kinds)
    for letters in sorted(set(rights.values()), key=lambda letters: (len(letters), letters)):
        tables = ", ".join(f"{home}.{_quoted(table)}" for table, has in rights.items() if has == letters)
        lines.append(f"grant {', '.join(_WORDS[letter] for letter in letters)} on {tables} to {name};")
    lines.append(f"grant execute on all functions in schema {home} to {name};")
    if "worker" in kinds:
        lines += [
            "-- Only an owner can make and remove partitions. Run one worker as the owner, the others with WINDLASS_LEAD=off; or all with",
            "-- WINDLASS_LEAD=without-partitions, and `windlass migrate partitions` as the owner every day; or make this role a member:",
            f"-- grant <owner of {home}> to {name};",
        ]
    return lines


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


async def lacking(connection: Connection, schema: str, kind: Kind) -> list[str]:
    """The rights that the role of this connection lacks to be of that kind, as `insert on job`."""
    wanted = [(table, _WORDS[letter]) for table, letters in rights_of([kind]).items() for letter in letters]
    rows = await connection.fetch(
        statements(schema)["lacking_rights"], schema, [each[0] for each in wanted], [each[1] for each in wanted]
    )
    return [f"{row['privilege']} on {row['name']}" for row in rows]


async def check_rights(connection: Connection, schema: str, kind: Kind) -> None:
    """Refuse a role that lacks rights of that kind, and say how it gets them."""
    if lacks := await lacking(connection, schema, kind):
        role = await connection.fetchval("select current_user::text")
        more = f" and {len(lacks) - _SHOWN} more" if len(lacks) > _SHOWN else ""
        raise Misconfigured(
            f"the role {role} lacks {', '.join(lacks[:_SHOWN])}{more} in schema {schema}: run as its owner what "
            f"`windlass migrate grants --role {role} --for {kind}` prints"
        )

"""The rights of each kind of role are enough for the statements that it sends, as far as their text says."""

import re
from collections.abc import Iterator

import pytest

from windlass.errors import Misconfigured
from windlass.store.grants import RIGHTS, Kind, grants, rights_of
from windlass.store.migrate import migrations
from windlass.store.statements import _ROOT, _parse

# The statements of each kind, by file; and those of a file that another kind sends.
FILES: dict[Kind, set[str]] = {
    "api": {"accounts", "intake", "hints", "views", "explain", "identity", "names", "quotas", "rollups"},
    "worker": {
        "claims",
        "effects",
        "workers",
        "upkeep",
        "wide",
        "hints",
        "intake",
        "identity",
        "names",
        "quotas",
        "rollups",
    },
    "owner": {"partitions", "rights", "testing"},
}
OF_WORKERS = {
    *("sweep_spent", "sweep_revoked", "rest", "leave"),
    *("record_rollups", "fold_rollups", "expire_rollups"),
    *("note_used_names", "forget_names", "forget_queues", "old_tags", "forget_tags"),
}
OF_OPERATORS = {"cancel", "retry", "discard", "run_now", "set_paused", "decide", "lock_undecided", "charge"}
OF_NOBODY = {"check"}  # tests, and `windlass up`, which owns its schema
OF_ENQUEUERS = {
    *("enqueue", "enqueue_one", "enqueue_keys", "key_holders", "stored_bodies", "jobs"),
    "add_versions",
    *("rouse", "rouse_one", "popping", "anyone_idle", "call_all"),
}
_DONE = re.compile(r'(insert into|update|delete from|from|join|using) "windlass"\."?(\w+)"?(?![\w(])(?: (\w+))?')
_LETTERS = {"insert into": "i", "update": "u", "delete from": "d"}


def needed(sql: str) -> Iterator[tuple[str, str]]:
    """The tables that a statement names, each with a letter of what it does there."""
    sql = re.sub(r"--.*", "", sql)
    for found in _DONE.finditer(sql):
        if found[2] in RIGHTS:
            yield found[2], _LETTERS.get(found[1], "s")
    for lock in re.finditer(r"for update(?: of (\w+))?", sql):
        query = _query_before(sql, lock.start())
        before = [each for each in _DONE.finditer(query) if lock[1] in {None, each[3]}]
        if before and before[-1][2] in RIGHTS:
            yield before[-1][2], "u"


def _query_before(sql: str, end: int) -> str:
    """The query that ends there, without those within it."""
    depth, kept = 0, []
    for letter in reversed(sql[:end]):
        depth += (letter == ")") - (letter == "(")
        if depth < 0:
            break
        if depth == 0:
            kept.append(letter)
    return "".join(reversed(kept))


def sent_by(kind: Kind) -> Iterator[tuple[str, str]]:
    for file in _ROOT.iterdir():
        if file.name.endswith(".sql"):
            for name, sql in _parse(file, "windlass").items():
                ours = file.name.removesuffix(".sql") in FILES.get(kind, ())
                ours = name in OF_WORKERS if kind == "worker" and name in OF_WORKERS | OF_OPERATORS else ours
                ours = name in OF_ENQUEUERS if kind == "enqueuer" else ours and name not in OF_NOBODY
                ours = ours or (kind == "api" and name in OF_OPERATORS)
                if ours and not (kind == "api" and name in OF_WORKERS):
                    yield name, sql


@pytest.mark.parametrize("kind", ["enqueuer", "api", "worker"])
def test_the_rights_of_a_kind_are_enough_for_its_statements(kind: Kind) -> None:
    rights = rights_of([kind])
    lacking = {
        f"{name}: {letter} on {table}"
        for name, sql in sent_by(kind)
        for table, letter in needed(sql)
        if letter not in rights.get(table, "")
    }
    assert not lacking, "add them to RIGHTS in store/grants.py"


def test_every_table_and_view_has_its_rights() -> None:
    made: set[str] = set()
    for migration in migrations():
        text = re.sub(r"--.*", "", migration.up)
        for what, name in re.findall(r'(create|drop) (?:unlogged )?(?:table|view) windlass\."?(\w+)', text):
            (made.add if what == "create" else made.discard)(name)
    assert made | {"migration"} == RIGHTS.keys(), "a new table or view needs a line in RIGHTS of store/grants.py"


def test_every_file_of_statements_is_sent_by_some_kind() -> None:
    files = {file.name.removesuffix(".sql") for file in _ROOT.iterdir() if file.name.endswith(".sql")}
    assert files == set().union(*FILES.values()), "say in FILES who sends the statements of a new file"


def test_an_enqueuer_may_change_nothing_but_what_enqueueing_changes() -> None:
    rights = rights_of(["enqueuer"])
    assert {table for table, letters in rights.items() if set(letters) & {"u", "d"}} == {"idle"}
    assert not rights.keys() & {"account", "api_key", "audit", "identity", "revoked", "spent", "step"}


@pytest.mark.parametrize("role", ["", "x" * 64, "nul\0"])
def test_a_name_that_no_role_can_have_is_refused(role: str) -> None:
    with pytest.raises(Misconfigured, match="--role"):
        grants(role, ["worker"], "windlass")


def test_names_are_quoted() -> None:
    said = grants('a"b', ["owner"], "jobs", 'd"b')
    assert 'create schema if not exists "jobs" authorization "a""b";' in said
    assert 'grant connect on database "d""b" to "a""b";' in said

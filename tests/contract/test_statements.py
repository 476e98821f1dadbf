"""Every named statement was executed by some contract test: SQL that no test runs is SQL nobody has seen work."""

import re

from windlass.store.statements import statements


def test_every_named_statement_is_executed_by_a_contract_test(sent_sql: set[str] | None) -> None:
    if sent_sql is None:
        return
    sent = "\0".join(sent_sql)
    unseen = {name for name, text in statements("windlass").items() if not _pattern(text).search(sent)}
    assert unseen == set()


def _pattern(text: str) -> re.Pattern[str]:
    """The statement as it is sent: {page} and {bounds} stand for what Python puts in."""
    return re.compile("[^\0]*?".join(map(re.escape, re.split(r"\{\w+\}", text))))

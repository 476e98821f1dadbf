"""What every migration file must say about itself."""

import pytest

from windlass.store.migrate import _SERVES, Migration, migrations


@pytest.mark.parametrize("migration", migrations(), ids=lambda migration: f"{migration.number:04}")
def test_a_migration_states_the_oldest_code_it_serves_in_its_first_line(migration: Migration) -> None:
    stated = _SERVES.match(migration.up)
    assert stated, (
        f"{migration.number:04}_{migration.name}.up.sql must begin with a line like `-- serves: 7`; see CONTRIBUTING"
    )
    assert 1 <= int(stated[1]) <= migration.number


def test_what_a_migration_serves_is_no_part_of_its_checksum() -> None:
    text = "create table windlass.x ();\n"
    stated = [Migration(8, "x", f"-- serves: {n}\n{text}", "") for n in (7, 8)]
    assert {each.checksum for each in stated} == {Migration(8, "x", text, "").checksum}
    assert [each.serves for each in stated] == [7, 8]


def test_migrations_are_numbered_one_after_the_other() -> None:
    """Two branches may each take the next number, and their files merge without a conflict."""
    assert [migration.number for migration in migrations()] == list(range(1, len(migrations()) + 1))

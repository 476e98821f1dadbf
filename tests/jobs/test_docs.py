"""docs/built-in-jobs.md says what the types are."""

import re
from pathlib import Path

from windlass.config import settings
from windlass.jobs import app

TEXT = (Path(__file__).parents[2] / "docs" / "built-in-jobs.md").read_text(encoding="utf-8")


def _rows() -> dict[str, list[str]]:
    """Each type's cells in the table of types."""
    rows: dict[str, list[str]] = {}
    for line in TEXT.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0].startswith("`"):
            rows |= dict.fromkeys(re.findall(r"`(\w+)`", cells[0]), cells)
    return rows


def test_every_type_is_listed_with_its_fields_and_attempts() -> None:
    rows = _rows()
    assert set(rows) == set(app.types)
    for name, job in app.types.items():
        fields = set(re.findall(r"`(\w+)`", rows[name][1]))
        known = set(job.signature.names)
        assert fields == (known if known != {"payload"} else fields), name
        assert rows[name][3].startswith(f"{job.max_attempts},"), name


def test_every_type_is_tried_three_times_with_the_usual_delays() -> None:
    assert {(job.max_attempts, job.retry) for job in app.types.values()} == {(3, None)}  # None: as for all


def test_every_setting_it_names_exists() -> None:
    known = {each.variable for each in settings()}
    assert set(re.findall(r"WINDLASS_\w+", TEXT)) <= known

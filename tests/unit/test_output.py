"""What the commands print: inert, whole, and in units that people read."""

import json
from datetime import UTC, datetime, timedelta

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from windlass.cli.filters import seconds, when
from windlass.cli.output import ago, clean, clean_lines, say_json, span, table

UNSAFE = {chr(n) for n in (*range(32), *range(0x7F, 0xA0), 0x2028, 0x2029, 0x202E, 0x2066, 0xFEFF)}


@given(st.text())
def test_cleaned_text_is_one_line_without_control_characters(text: str) -> None:
    assert not UNSAFE & set(clean(text))
    assert not (UNSAFE - {"\n", "\t"}) & set(clean_lines(text))


@pytest.mark.parametrize("text", ["plain", "größer → ∑", "日本語", "emoji 🎉", "a  b"])
def test_ordinary_text_is_left_as_it_is(text: str) -> None:
    assert clean(text) == text


@given(st.dictionaries(st.text(), st.text()))
def test_json_says_the_same_without_control_characters(told: dict[str, str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        said: list[str] = []
        patch.setattr(typer, "echo", said.append)
        say_json(told)
    assert json.loads(said[0]) == told
    assert not UNSAFE & set(said[0])


def test_columns_are_as_wide_as_what_is_in_them(capsys: pytest.CaptureFixture[str]) -> None:
    table(["id", "n", "note"], [("a" * 40, 7, "x"), ("日本", 1234, "y\nz")], right=["n"])
    assert capsys.readouterr().out.splitlines() == [
        "ID" + " " * 38 + "     N  NOTE",
        "a" * 40 + "     7  x",
        "日本" + " " * 36 + "  1234  y\\x0az",
    ]
    table(["id"], [], empty="no jobs")
    assert capsys.readouterr().out == "no jobs\n"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0 ms"),
        (0.0032, "3.2 ms"),
        (0.25, "250 ms"),
        (1.5, "1.5 s"),
        (75, "75 s"),
        (240, "4 min"),
        (9000, "2.5 h"),
    ],
)
def test_a_duration_is_shown_in_the_unit_that_suits_it(value: float, shown: str) -> None:
    assert span(value) == shown


def test_the_past_and_the_future_are_told_apart() -> None:
    now = datetime.now(UTC)
    assert ago(now - timedelta(seconds=75)) == "75 s ago"
    assert ago(now + timedelta(hours=3)) == "in 3 h"
    assert ago(None) == ""


def test_moments_and_durations_are_read_as_people_write_them() -> None:
    now = datetime.now(UTC)
    asked = when("--since", "2h")
    assert asked is not None
    assert timedelta(0) <= asked - (now - timedelta(hours=2)) < timedelta(minutes=1)
    assert when("--at", "2030-01-31T12:00:00+02:00") == datetime(2030, 1, 31, 10, tzinfo=UTC)
    assert [seconds("--ttl", text) for text in ("90", "90s", "1.5m", "2h", "1d", None)] == [
        90,
        90,
        90,
        7200,
        86_400,
        None,
    ]
    for wrong in ("", "soon", "-5m", "5 weeks", "1e9"):
        with pytest.raises(typer.BadParameter, match="--ttl"):
            seconds("--ttl", wrong)
    for wrong in ("", "yesterday", "2030-13-01"):
        with pytest.raises(typer.BadParameter, match="--since"):
            when("--since", wrong)

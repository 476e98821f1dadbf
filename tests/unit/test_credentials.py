"""Keys, passwords, tries and scopes."""

import asyncio
import hashlib
import re
import statistics
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.eventually import eventually
from windlass.auth import keys, passwords, scopes
from windlass.auth.attempts import Attempts, names_max, network_of
from windlass.auth.passwords import Passwords
from windlass.errors import Forbidden, RequestError, TooManyRequests

# Keys. --------------------------------------------------------------------------------------------------------------


def test_a_key_is_whole_and_says_little_of_itself() -> None:
    made = keys.make()
    assert re.fullmatch(r"wl_[0-9A-Za-z]{49}", made.key)
    assert keys.is_whole(made.key)
    assert made.key.startswith(made.prefix)
    assert len(made.prefix) == 9
    assert made.digest == hashlib.sha256(made.key.encode()).digest()
    assert made.key not in repr(made)
    assert made.id.version == 7


def test_no_two_keys_are_alike() -> None:
    made = [keys.make() for _ in range(1000)]
    assert len({each.key for each in made}) == len({each.id for each in made}) == 1000


def test_a_mistyped_key_is_told_from_a_whole_one() -> None:
    key = keys.make().key
    for place in range(len(key)):
        for letter in "aZ0_":
            typed = key[:place] + letter + key[place + 1 :]
            assert keys.is_whole(typed) == (typed == key)
    for broken in (
        key[:-1],
        key[1:],
        key + "a",
        key + "\n",
        "",
        "wl_",
        key.upper(),
        key.replace("wl_", "xx_"),
        f" {key}",
    ):
        assert not keys.is_whole(broken)


@given(st.text(max_size=80))
def test_any_text_can_be_asked_whether_it_is_a_key(text: str) -> None:
    assert not keys.is_whole(text)
    assert not keys.is_whole(f"wl_{text}")


# Passwords. ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def checks() -> Passwords:
    made = Passwords()
    await made.prepare()
    return made


async def test_a_password_matches_its_own_hash_alone(checks: Passwords) -> None:
    stored = await checks.hashed("correct horse")
    assert stored.startswith("$argon2id$")
    assert await checks.match(stored, "correct horse")
    for wrong in ("", "correct hors", "correct horse ", "Correct horse", "correct horse\0", "x" * 1000):
        assert not await checks.match(stored, wrong)


async def test_the_same_password_is_stored_differently_each_time(checks: Passwords) -> None:
    assert await checks.hashed("correct horse") != await checks.hashed("correct horse")


async def test_how_a_letter_is_typed_does_not_matter(checks: Passwords) -> None:
    stored = await checks.hashed("pa\u0308ssword")
    assert await checks.match(stored, "p\u00e4ssword")


async def test_half_a_character_is_a_password_like_any_other(checks: Passwords) -> None:
    stored = await checks.hashed("half \ud83d of it")
    assert await checks.match(stored, "half \ud83d of it")


async def test_nobody_is_never_matched(checks: Passwords) -> None:
    for guess in ("", "nobody has this one", "x"):
        assert not await checks.match(None, guess)


async def test_a_hash_that_is_none_matches_nothing(checks: Passwords) -> None:
    for stored in ("", "nonsense", "$argon2id$v=19$m=8,t=1,p=1$"):
        assert not await checks.match(stored, "nonsense")


async def test_an_unknown_user_costs_the_time_of_a_known_one(checks: Passwords) -> None:
    stored = await checks.hashed("correct horse")
    taken: dict[str | None, list[float]] = {stored: [], None: []}
    for who in [stored, None] * 12:
        began_s = time.process_time()  # what others do on this machine counts for neither
        await checks.match(who, "wrong")
        taken[who].append(time.process_time() - began_s)
    known_s, unknown_s = (statistics.median(each) for each in taken.values())
    assert 0.5 < unknown_s / known_s < 2


async def test_few_are_checked_at_once_and_a_flood_is_told_to_come_back(
    checks: Passwords, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    go_on = threading.Event()

    def held(stored: str, _: str) -> bool:
        begun.append(stored)
        return not go_on.wait(30)

    monkeypatch.setattr(passwords, "_fits", held)
    asked = [asyncio.create_task(checks.match("stored", "x")) for _ in range(passwords.inside_max + 5)]
    await asyncio.to_thread(eventually, lambda: len(begun) == passwords.at_once_max)
    assert sum(each.done() and isinstance(each.exception(), TooManyRequests) for each in asked) == 5
    assert len(begun) == passwords.at_once_max
    go_on.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert answers.count(False) == passwords.inside_max
    assert not await checks.match(None, "x")


async def test_who_hangs_up_makes_no_room_for_more_at_once(checks: Passwords, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    go_on = threading.Event()

    def held(stored: str, _: str) -> bool:
        begun.append(stored)
        return not go_on.wait(30)

    monkeypatch.setattr(passwords, "_fits", held)
    asked = [asyncio.create_task(checks.match("stored", "x")) for _ in range(20)]
    await asyncio.to_thread(eventually, lambda: len(begun) == passwords.at_once_max)
    for each in asked:
        each.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    last = asyncio.create_task(checks.match("last", "x"))
    await asyncio.sleep(0)
    assert begun == ["stored"] * passwords.at_once_max
    go_on.set()
    assert not await last
    assert begun == ["stored"] * passwords.at_once_max + ["last"]


# Tries. -------------------------------------------------------------------------------------------------------------


def test_the_allowance_is_used_up_and_comes_back_over_a_minute() -> None:
    tries = Attempts(10)
    assert [tries.take("ann", 0) for _ in range(10)] == [0] * 10
    assert tries.take("ann", 0) == pytest.approx(6)
    assert tries.take("ann", 5) == pytest.approx(1)
    assert tries.take("ann", 6) == 0
    assert tries.take("ann", 6) == pytest.approx(6)
    assert tries.take("bob", 6) == 0
    assert [tries.take("ann", 1000) for _ in range(10)] == [0] * 10


def test_what_was_refused_does_not_count_further() -> None:
    tries = Attempts(10)
    for _ in range(1000):
        tries.take("ann", 0)
    assert tries.take("ann", 6) == 0


def test_what_succeeded_is_given_back() -> None:
    tries = Attempts(2)
    for _ in range(100):
        assert tries.take("ann", 0) == 0
        tries.give_back("ann")
    tries.give_back("unknown")


@given(st.integers(1, 100), st.lists(st.floats(0, 30), min_size=1, max_size=300))
def test_never_more_than_twice_the_allowance_in_any_minute(allowed: int, waits: list[float]) -> None:
    tries, now_s = Attempts(allowed), 0.0
    made: list[float] = []
    for wait in waits:
        now_s += wait
        if tries.take("ann", now_s) == 0:
            made.append(now_s)
    for begin in made:
        assert sum(begin <= each < begin + 60 for each in made) <= 2 * allowed


def test_the_names_that_are_counted_have_a_bound() -> None:
    tries = Attempts(1)
    for n in range(names_max + 500):
        tries.take(f"name {n}", 0)
    assert len(tries._whole_at) == names_max
    assert tries.take(f"name {names_max + 499}", 0) > 0


def test_neighbours_in_one_ipv6_network_are_one() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1") != network_of("10.0.0.2")
    assert network_of(None) == network_of("") == "unknown"
    assert network_of("testclient") == "testclient"


# Scopes. ------------------------------------------------------------------------------------------------------------


def test_nobody_gives_a_token_more_than_he_has() -> None:
    held = scopes.known(["submit", "read"])
    assert scopes.granted(held, None) == held
    assert scopes.granted(held, ["read"]) == {"read"}
    assert scopes.granted(held, []) == frozenset()
    for asked in (["operate"], ["admin"], ["read", "admin"]):
        with pytest.raises(Forbidden):
            scopes.granted(held, asked)  # type: ignore[arg-type]
    assert scopes.granted(scopes.known(["admin"]), ["operate"]) == {"operate"}


def test_scopes_are_read_as_people_write_them() -> None:
    assert scopes.parsed("submit,read") == scopes.parsed(" read  submit ") == {"submit", "read"}
    for wrong in ("", " ", ",", "root", "submit,raed", "Submit"):
        with pytest.raises(RequestError):
            scopes.parsed(wrong)

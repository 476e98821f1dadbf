"""A server that is not needed is asked while it is well, and by probes alone while it is not."""

from windlass.bus.redis.breaker import Breaker


def well(now_s: float = 0.0) -> Breaker:
    breaker = Breaker()
    breaker.probed(now_s, well=True)
    return breaker


def test_nobody_asks_before_a_first_probe_has_succeeded() -> None:
    breaker = Breaker()
    assert breaker.is_open
    assert breaker.pause_s == 0
    breaker.probed(0, well=False)
    assert breaker.is_open
    breaker.probed(1, well=True)
    assert not breaker.is_open


def test_a_time_out_opens_it_at_once() -> None:
    breaker = well()
    assert breaker.failed(100, timed_out=True)
    assert breaker.is_open


def test_other_failures_open_it_when_three_come_in_a_row() -> None:
    breaker = well()
    assert not breaker.failed(1)
    assert not breaker.failed(1)
    breaker.succeeded()
    assert not breaker.failed(2)
    assert not breaker.failed(2)
    assert not breaker.is_open
    assert breaker.failed(2)
    assert breaker.is_open


def test_what_fails_while_it_is_open_opens_nothing() -> None:
    breaker = well()
    assert [breaker.failed(1, timed_out=True) for _ in range(5)] == [True, False, False, False, False]


def test_probes_come_at_once_then_after_pauses_that_grow_to_five_seconds() -> None:
    breaker = well()
    breaker.failed(100, timed_out=True)
    pauses = []
    for n in range(9):
        pauses.append(breaker.pause_s)
        breaker.probed(100 + n, well=False)
    assert pauses == [0, 0.25, 0.5, 1, 2, 4, 5, 5, 5]


def test_one_that_was_well_for_long_begins_with_short_pauses_again() -> None:
    breaker = well()
    breaker.failed(100, timed_out=True)
    for n in range(9):
        breaker.probed(100 + n, well=False)
    breaker.probed(110, well=True)
    breaker.failed(120, timed_out=True)
    assert breaker.pause_s == 0


def test_one_that_answers_probes_and_nothing_else_is_probed_ever_less() -> None:
    breaker, now_s, cost = Breaker(), 0.0, 0
    while now_s < 600:
        now_s += breaker.pause_s
        breaker.probed(now_s, well=True)
        now_s += 0.05
        cost += breaker.failed(now_s, timed_out=True)
    assert cost < 130, "a time-out every five seconds, not one for each call"

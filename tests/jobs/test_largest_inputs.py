"""Built-in types at the largest and most awkward inputs a submitter may send: linear, bounded, and never on the loop.

Measured is the processor time of the loop's own thread, which a busy machine does not change.
"""

from time import thread_time
from typing import Any

import pytest

from tests.worker.placed import Placed
from windlass.config import JobsConfig
from windlass.errors import InvalidPayload
from windlass.jobs import app
from windlass.jobs.egress import Egress
from windlass.jobs.home import Means, using
from windlass.jobs.letters import Mail
from windlass.jobs.mail import _composed
from windlass.model import Status

MARK, JOINER, FLAG = "\u0308", "\u200d", "\U0001f1e6"
_loop_s_max = 0.5  # of these inputs, the quadratic ones took 15 s to hours
_MAIL = {"to": "ann@example.org", "from": "shop@example.com", "subject": "Hello"}
_FINAL = (Status.FAILED, 1)


@pytest.mark.parametrize(
    ("type_", "payload", "ends"),
    [
        ("reverse_string", {"text": MARK * 500_000}, (Status.COMPLETED, 1)),
        ("reverse_string", {"text": JOINER * 300_000}, (Status.COMPLETED, 1)),
        ("reverse_string", {"text": FLAG * 250_000}, (Status.COMPLETED, 1)),
        ("reverse_string", {"text": "ab" * 500_000}, (Status.COMPLETED, 1)),
        ("reverse_string", {"text": "ab" * 500_001}, _FINAL),
        ("email", _MAIL | {"to": "a" + " " * 1_000_000 + "a"}, _FINAL),
        ("email", _MAIL | {"cc": ["a" + " " * 10_000 + "<"] * 50}, _FINAL),
        ("email", _MAIL | {"to": ["ann@example.org"] * 50_000}, _FINAL),
        ("email", _MAIL | {"reply_to": "<" * 1_000_000}, _FINAL),
        ("email", _MAIL | {"subject": "=?" * 500_000}, _FINAL),
        ("webhook", {"url": "http://[::1]/", "headers": {f"X-{n}": "a b" * 2_000 for n in range(50)}}, _FINAL),
        ("webhook", {"url": "http://[::1]/", "headers": {f"X-{n}": "a" for n in range(50_000)}}, _FINAL),
        ("webhook", {"url": "http://[::1]/" + "a" * 1_000_000}, _FINAL),
        ("large_array_sum", {"numbers": [10**4000] * 250}, (Status.COMPLETED, 1)),
        ("large_array_sum", {"numbers": [0.1] * 250_000}, (Status.COMPLETED, 1)),
        ("add_numbers", {"a": 10**4299, "b": 10**4299}, (Status.COMPLETED, 1)),
        ("default", {"task": "a" * 1_000_000, "duration_s": 0}, _FINAL),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_the_largest_input_costs_the_loop_little(
    type_: str, payload: Any, ends: tuple[Status, int], worker: Placed
) -> None:
    began_s = thread_time()
    with using(Means(JobsConfig(smtp_host="127.0.0.1"), Egress())):
        job = await worker.run(type_, payload)
    assert thread_time() - began_s < _loop_s_max
    assert (job.status, job.attempt) == ends, job.error
    if job.status is Status.FAILED:
        assert job.error is not None
        assert len(job.error.message) < 500


def test_numbers_of_a_million_digits_are_refused_at_once() -> None:
    began_s = thread_time()
    for digits in ("9" * 1_000_000, "-" + "9" * 1_000_000):
        with pytest.raises(InvalidPayload):
            app.types["add_numbers"].arguments(f'{{"a":{digits},"b":1}}')
    assert thread_time() - began_s < _loop_s_max


async def test_a_long_mail_is_not_composed_on_the_loop() -> None:
    began_s = thread_time()
    letter = await _composed(Mail(to="ann@example.org", subject="Hello", body="\n" * 1_000_000), "shop@example.com", 7)
    assert thread_time() - began_s < 0.2  # 0.65 s of work
    assert len(letter.text) > 1_000_000

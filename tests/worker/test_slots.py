"""The slots: what one process writes another reads, whole, also after the writer was killed."""

import os
import subprocess
import sys
import timeit
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest

from tests.eventually import eventually
from windlass.worker.groups import Head
from windlass.worker.slots import Begun, Slots, State

JOB = UUID("0199c0de-0000-7000-8000-00000000cafe")

WRITER = """
import os, signal, sys
from uuid import UUID
from windlass.worker.slots import Slots, State
slots = Slots(int(sys.argv[1]))
slots.begin(0, UUID(sys.argv[2]), 1, 1.5, 2.5)
slots.begin(2, UUID(sys.argv[2]), 2, 3.5, 4.5, State.ISOLATED)
slots.begin(3, UUID(sys.argv[2]), 3, 5.5, 6.5)
slots.end(3)
slots.mark(0, State.STUCK_BY_CANCEL)
slots.pulse_s, slots.claimed_s, slots.lost_threads = 7.25, 8.25, 1
os.kill(os.getpid(), signal.SIGKILL)
"""

SCRIBBLER = """
import sys
from uuid import UUID
from windlass.worker.slots import Slots
slots = Slots(int(sys.argv[1]))
jobs = [UUID(int=n) for n in range(64)]
print("on", flush=True)
while True:
    for n, job in enumerate(jobs):
        slots.begin(0, job, n, float(n), float(n))
        slots.end(0)
"""


@pytest.fixture
def slots() -> Iterator[Slots]:
    made = Slots.create(4)
    yield made
    made.close()


def test_what_a_killed_process_had_begun_can_still_be_read(slots: Slots) -> None:
    done = subprocess.run([sys.executable, "-c", WRITER, str(slots.fd), str(JOB)], pass_fds=[slots.fd], check=False)
    assert done.returncode == -9
    assert slots.begun() == [
        Begun(0, JOB, 1, 1.5, 2.5, State.STUCK_BY_CANCEL),
        Begun(2, JOB, 2, 3.5, 4.5, State.ISOLATED),
    ]
    assert slots.started() == {(JOB, 1), (JOB, 2), (JOB, 3)}, "also what had ended"
    assert (slots.pulse_s, slots.claimed_s, slots.lost_threads) == (7.25, 8.25, 1)


def test_the_last_starts_are_kept_and_older_ones_are_forgotten(slots: Slots) -> None:
    for n in range(1, 10_001):
        slots.begin(n % 4, UUID(int=n), n, 0.0, 1.0)
        slots.end(n % 4)
    assert slots.started() == {(UUID(int=n), n) for n in range(10_000 - 4_096 + 1, 10_001)}
    assert slots.begun() == []


def test_the_lease_goes_the_other_way(slots: Slots) -> None:
    slots.lease_until_s = 12.5
    program = "import sys; from windlass.worker.slots import Slots; print(Slots(int(sys.argv[1])).lease_until_s)"
    said = subprocess.check_output([sys.executable, "-c", program, str(slots.fd)], pass_fds=[slots.fd], text=True)
    assert float(said) == 12.5


def test_an_entry_is_never_half_of_one_job_and_half_of_the_next(slots: Slots) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIBBLER, str(slots.fd)], pass_fds=[slots.fd], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"on\n"
        # What changes faster than it can be read is passed over: look until some have been caught.
        seen = eventually(lambda: [entry for _ in range(5_000) for entry in slots.begun()], 20)
        writer.kill()
    for entry in seen:
        assert entry.job_id.int == entry.attempt == entry.began_s == entry.deadline_s


def test_the_child_of_a_job_is_known_until_the_next_begins_there(slots: Slots) -> None:
    slots.begin(1, JOB, 1, 0.0, 1.0, State.ISOLATED)
    assert slots.children() == []
    slots.set_child(1, Head(4711, 2**40))
    assert slots.children() == [Head(4711, 2**40)]
    assert slots.begun() == [Begun(1, JOB, 1, 0.0, 1.0, State.ISOLATED)]
    slots.end(1)
    assert slots.children() == []
    slots.begin(1, JOB, 2, 0.0, 1.0)
    assert slots.children() == []


def test_a_state_that_user_code_overwrote_is_taken_for_begun(slots: Slots) -> None:
    slots.begin(1, JOB, 1, 0.0, 1.0)
    slots._map[64 + 56 + 20] = 99
    assert [entry.state for entry in slots.begun()] == [State.BEGUN]


@pytest.mark.skipif(sys.platform != "linux", reason="seals are Linux's")
def test_the_memory_cannot_be_cut_short_under_its_reader(slots: Slots) -> None:
    with pytest.raises(PermissionError):
        os.ftruncate(slots.fd, 0)


def test_begin_and_end_cost_little(slots: Slots) -> None:
    job = uuid4()
    count = 20_000

    def once() -> None:
        slots.begin(1, job, 1, 1.0, 2.0)
        slots.end(1)

    took_s = min(timeit.repeat(once, number=count, repeat=5))
    print(f"begin and end: {took_s / count * 1e6:.2f} µs")
    assert took_s / count < 10e-6  # 1 µs on a quiet machine; this one may be busy

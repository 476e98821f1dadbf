"""What a subject of the API may submit: its quotas, judged over plain values. Pure.

Two kinds. The widest and the longest job are limits of a single job: what is beyond them is refused for good
(BeyondQuota). Waiting jobs, threads and submissions a second are limits of what is there now: what is beyond them may
come later (QuotaExceeded).
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from windlass.errors import BeyondQuota, QuotaExceeded
from windlass.model import NewJob

# The namespace of the application itself: of what it enqueues on the database, without the API.
default_namespace: Final = "default"
quota_jobs_max: Final = 1_000_000
count_good_s: Final = 1.0  # for how long a count of a subject's jobs is believed
_burst_s: Final = 1.0


@dataclass(frozen=True, slots=True)
class Submitter:
    """What one subject may submit; None: no limit. `namespace`: its idempotency keys and ids are shared with all
    subjects of that name; None: they are its own. `threads_max`: of its unfinished jobs together.
    `thread_demand_max`, `timeout_s_max`: of one job."""

    subject: str
    namespace: str | None = None
    waiting_max: int | None = None
    threads_max: int | None = None
    thread_demand_max: int | None = None
    timeout_s_max: float | None = None
    submissions_per_s: float | None = None

    @property
    def is_counted(self) -> bool:
        """Whether its unfinished jobs are counted."""
        return self.waiting_max is not None or self.threads_max is not None


class Use(NamedTuple):
    """The unfinished jobs of a subject: how many wait, and the threads of all that wait or run."""

    waiting: int = 0
    threads: int = 0

    def plus(self, other: "Use", sign: int = 1) -> "Use":
        return Use(self.waiting + sign * other.waiting, self.threads + sign * other.threads)


class QuotaUse(NamedTuple):
    """One quota as people see it. `current`: None where nothing is counted."""

    quota: str
    limit: float
    current: float | None


class SubmitterUse(NamedTuple):
    """A subject and its quotas."""

    subject: str
    quotas: tuple[QuotaUse, ...]


def namespace_of(subject: str, submitter: Submitter | None) -> str | None:
    """Whose keys and ids a subject uses; None: the application's. A subject's own never has the name of a configured
    one: those contain no colon."""
    if submitter is None or submitter.namespace is None:
        return f"subject:{subject}"
    return None if submitter.namespace == default_namespace else submitter.namespace


def use_of(jobs: Collection[NewJob]) -> Use:
    return Use(len(jobs), sum(job.thread_demand for job in jobs))


def quota_uses(submitter: Submitter, use: Use) -> list[QuotaUse]:
    """Every quota that is set."""
    said: Sequence[tuple[str, float | None, float | None]] = (
        ("waiting", submitter.waiting_max, use.waiting),
        ("threads", submitter.threads_max, use.threads),
        ("thread_demand", submitter.thread_demand_max, None),
        ("timeout_s", submitter.timeout_s_max, None),
        ("submissions_per_s", submitter.submissions_per_s, None),
    )
    return [QuotaUse(quota, limit, current) for quota, limit, current in said if limit is not None]


# Limits of one request. ---------------------------------------------------------------------------------------------


def check_job(submitter: Submitter, job: NewJob) -> None:
    """Refuse a job that is wider or may run longer than its submitter may ask for. Nothing is lowered silently: a job
    with less time than its type declares would be killed half-way."""
    widest = submitter.thread_demand_max
    if widest is not None and job.thread_demand > widest:
        raise BeyondQuota("thread_demand", "thread_demand", widest, job.thread_demand, "ask for fewer threads")
    longest_s = submitter.timeout_s_max
    if longest_s is not None and job.timeout_s > longest_s:
        raise BeyondQuota("timeout_s", "timeout_s", longest_s, job.timeout_s, "ask for a shorter time")


def check_size(submitter: Submitter, asked: Use) -> None:
    """Refuse what could not be taken if nothing else were there: to repeat it would never help."""
    if submitter.threads_max is not None and asked.threads > submitter.threads_max:
        raise BeyondQuota("thread_demand", "threads", submitter.threads_max, asked.threads, "submit less at once")
    if submitter.waiting_max is not None and asked.waiting > submitter.waiting_max:
        raise BeyondQuota("jobs", "waiting", submitter.waiting_max, asked.waiting, "submit fewer jobs at once")


# Limits of what is there now. ---------------------------------------------------------------------------------------


def check_use(submitter: Submitter, use: Use, asked: Use) -> None:
    """Refuse what would be too much beside what is there."""
    if submitter.waiting_max is not None and use.waiting + asked.waiting > submitter.waiting_max:
        raise QuotaExceeded("waiting", submitter.waiting_max, use.waiting, count_good_s)
    if submitter.threads_max is not None and use.threads + asked.threads > submitter.threads_max:
        raise QuotaExceeded("threads", submitter.threads_max, use.threads, count_good_s)


class SubmissionRates:
    """Submissions a second, by subject. What a second allows may come at once, at least one job. A bulk counts each
    of its jobs; it is taken if one job would be, and the next submission waits until all of it is worked off."""

    def __init__(self) -> None:
        self._free_at: dict[str, float] = {}

    def take(self, submitter: Submitter, jobs: int, now_s: float) -> None:
        """Count a submission, or raise QuotaExceeded; it did not count then."""
        if submitter.submissions_per_s is None:
            return
        each_s = 1 / submitter.submissions_per_s
        free_at = max(self._free_at.get(submitter.subject, now_s), now_s)
        early_s = free_at + each_s - now_s - max(_burst_s, each_s)
        if early_s > 1e-6:
            counted = round((free_at - now_s) / each_s, 1)
            raise QuotaExceeded("submissions_per_s", submitter.submissions_per_s, counted, early_s)
        self._free_at[submitter.subject] = free_at + jobs * each_s

    def keep(self, subjects: Iterable[str]) -> None:
        """Forget all others: they have no such quota any more."""
        self._free_at = {subject: self._free_at[subject] for subject in subjects if subject in self._free_at}

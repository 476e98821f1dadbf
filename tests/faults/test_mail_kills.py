"""Two mails never, whenever the worker that sends them is killed."""

from pathlib import Path

from tests.faults.mail_kills import kill_workers
from windlass.store.store import Store


async def test_no_address_gets_two_mails_and_every_undecided_job_says_so(
    url: str, store: Store, tmp_path: Path
) -> None:
    report = await kill_workers(store, url, tmp_path, kills=8)
    assert not report.wrong, report.table()
    assert report.kills == 8
    assert report.completed + report.undecided == report.jobs

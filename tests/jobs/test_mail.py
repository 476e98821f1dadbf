"""email, run by a real worker against a real SMTP server: what arrives is what was said, and nothing else."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.jobs.certificates import Authority
from tests.jobs.post_office import PostOffice, post_office
from tests.worker.placed import Placed
from windlass.config import JobsConfig
from windlass.errors import Fail
from windlass.jobs.egress import Egress
from windlass.jobs.home import Means, using
from windlass.jobs.letters import Mail, written
from windlass.model import Job, Status, needs_decision

PASSWORD = "correct-horse-battery-staple"
GOOD: dict[str, Any] = {"to": "ann@example.org", "subject": "Hello", "body": "Hello, Ann!"}


@contextmanager
def sending_by(office: PostOffice, **settings: Any) -> Iterator[None]:
    fields: dict[str, Any] = {
        "smtp_host": "127.0.0.1",
        "smtp_port": office.port,
        "smtp_security": "none",
        "mail_from": "shop@example.com",
    }
    with using(Means(JobsConfig(**(fields | settings)), Egress())):
        yield


@pytest.fixture
async def office() -> AsyncIterator[PostOffice]:
    async with post_office() as one:
        with sending_by(one):
            yield one


def read(office: PostOffice, n: int = -1) -> EmailMessage:
    return message_from_bytes(office.taken[n].text, policy=policy.default)


def result(job: Job) -> Any:
    return json.loads(job.result or "null")


async def test_a_mail_arrives_as_it_was_said(worker: Placed, office: PostOffice) -> None:
    mail = {
        "to": ["Ann Lee <ann@example.org>", "Jörg Müller <joerg@example.org>"],
        "cc": "cc@example.org",
        "from": "Lee, the boss <boss@example.com>",
        "reply_to": "help@example.com",
        "subject": "Grüße aus Köln: 100 % “ja”",
        "body": "Zeile 1\nZeile 2 mit Ümläuten\n",
        "html": "<p>Grüße</p>",
    }
    job = await worker.run("email", mail)
    assert job.status is Status.COMPLETED, job.error
    (taken,) = office.taken
    assert taken.sender == "boss@example.com"
    assert taken.recipients == ["ann@example.org", "joerg@example.org", "cc@example.org"]
    message = read(office)
    assert message["Subject"] == mail["subject"]
    assert [each.display_name for each in message["To"].addresses] == ["Ann Lee", "Jörg Müller"]
    assert message["From"].addresses[0].display_name == "Lee, the boss"
    assert message["Reply-To"] == "help@example.com"
    assert message["Message-ID"] == f"<{job.id}@example.com>" == result(job)["message_id"]
    plain, html = message.iter_parts()
    assert plain.get_content().replace("\r\n", "\n") == mail["body"]
    assert html.get_content().strip() == mail["html"]
    assert result(job)["accepted"] == taken.recipients


# Injection. ---------------------------------------------------------------------------------------------------------

BREAKS = (
    *(
        "\r\n",
        "\n",
        "\r",
        "\n\r",
        "\x0b",
        "\x0c",
        "\x1c",
        "\x1d",
        "\x1e",
        "\x85",
        "\u2028",
        "\u2029",
        "\x01",
        "\x7f",
        "\x1f",
    ),
    *("\t", "\x9f"),
)
ENCODED = ("=?utf-8?q?a=0D=0ABcc=3A_evil@example.net?=", "=?utf-8?b?DQpCY2M6IGV2aWxAZXhhbXBsZS5uZXQ=?=")
ADDRESSES = (
    *(
        "",
        " ",
        "ann",
        "@example.org",
        "ann@",
        "ann@@example.org",
        "a b@example.org",
        "ann@example.org, evil@example.net",
    ),
    *("ann@example.org evil@example.net", "ann@example.org;evil@example.net", "<ann@example.org> <evil@example.net>"),
    *("ann@example.org>\r\nRCPT TO:<evil@example.net", "ann@example.org> NOTIFY=SUCCESS", "<@relay:ann@example.org>"),
    *('"ann\r\n"@example.org', '"a b"@example.org', "ann@[127.0.0.1]", "ann@example.org(evil)", "ann(x)@example.org"),
    *(
        "evil%example.net@example.org",
        "example.net!evil@example.org",
        "ann@exa_mple.org",
        "ann@-example.org",
        "ann@.org",
    ),
    *(
        "ann@example..org",
        ".ann@example.org",
        "ann.@example.org",
        "a..b@example.org",
        "ä@example.org",
        "ann@exämple.org",
    ),
    *(
        "x" * 65 + "@example.org",
        "ann@" + "a." * 130 + "org",
        "Group: ann@example.org, evil@example.net;",
        "ann@example.org\x01",
    ),
    *(
        '"Ann" <evil@example.net>" <ann@example.org>',
        "Ann\\ <ann@example.org>",
        'A"nn <ann@example.org>',
        "ann@example.org.",
    ),
)


def attacks() -> list[dict[str, Any]]:
    """Every field that goes into a header or the envelope, with everything that could end a line or hide one."""
    evil = "Bcc: evil@example.net"
    found: list[dict[str, Any]] = []
    for each in (*BREAKS, *(f"{mark}{mark}" for mark in BREAKS[:4])):
        found += [
            {"subject": f"Hello{each}{evil}"},
            {"to": f"ann@example.org{each}{evil}"},
            {"to": f"Ann{each}{evil} <ann@example.org>"},
            {"cc": [f"Ann{each} <ann@example.org>"]},
            {"from": f"Shop{each}{evil} <shop@example.com>"},
            {"reply_to": f"shop@example.com{each}{evil}"},
        ]
    for each in ENCODED:
        found += [{"subject": each}, {"to": f"{each} <ann@example.org>"}, {"from": f"{each} <shop@example.com>"}]
    for each in ADDRESSES:
        found += [{"to": each}, {"cc": [each]}, {"from": each} if each else {"reply_to": each}]
    found += [
        {"to": []},
        {"to": [f"a{n}@example.org" for n in range(51)]},
        {"cc": [f"a{n}@example.org" for n in range(1000)]},
    ]
    found += [{"bcc": "evil@example.net"}, {"headers": {"Bcc": "evil@example.net"}}, {"To": "evil@example.net"}]
    return found


async def test_no_injection_is_sent(worker: Placed, office: PostOffice) -> None:
    tried = attacks()
    assert len(tried) >= 40
    ids = [await worker.enqueue("email", GOOD | attack) for attack in tried]
    for attack, job_id in zip(tried, ids, strict=True):
        job = await worker.reaches(job_id, Status.FAILED, Status.COMPLETED, Status.SCHEDULED, timeout_s=30)
        assert (job.status, job.attempt) == (Status.FAILED, 1), attack
    assert (office.taken, office.connections) == ([], 0)


BODIES = (
    *(
        "a\r\n.\r\nMAIL FROM:<evil@example.net>\r\nRCPT TO:<x@example.net>\r\nDATA\r\n",
        "a\n.\nMAIL FROM:<evil@example.net>\n",
    ),
    *(
        "a\r.\rMAIL FROM:<evil@example.net>\r",
        "a\r\n.\rQUIT\r",
        "a\n.\r\nQUIT",
        "a\r\n.\nQUIT",
        ".",
        "..",
        ".\r\n",
        "...\r\n.\r\n",
    ),
    *(
        "a\r\n\r\n.\r\n\r\nb",
        "\x1c.\x1c",
        "\x85.\x85",
        "\u2028.\u2028",
        "From x\n>From y",
        "x" * 5000,
        "=0D=0A.=0D=0A",
        "a \t\n b",
    ),
    *("--===============1==--", "", "\n\n\n", "Bcc: evil@example.net\n\nx", "\r\n.\x01\r\n"),
)


async def test_no_body_ends_the_mail_or_becomes_a_command(worker: Placed, office: PostOffice) -> None:
    for body in BODIES:
        office.taken.clear()
        job = await worker.run("email", GOOD | {"body": body, "html": body})
        assert job.status is Status.COMPLETED, job.error
        (taken,) = office.taken
        assert (taken.sender, taken.recipients) == ("shop@example.com", ["ann@example.org"])
        for part in read(office).iter_parts():
            arrived = part.get_content()
            assert _lines(arrived) == _lines(body), body


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")


@given(subject=st.text(max_size=200), name=st.text(max_size=60))
def test_what_is_written_reads_as_it_was_said_or_is_refused(subject: str, name: str) -> None:
    mail = Mail(to=f"{name} <ann@example.org>", subject=subject, body="x")
    try:
        letter = written(mail, "shop@example.com", "id", datetime.now(UTC))
    except Fail:
        return
    read = message_from_bytes(letter.text, policy=policy.default)
    assert [key for key, _ in read.items()][:6] == ["Subject", "From", "To", "Date", "Message-ID", "Auto-Submitted"]
    assert [each.addr_spec for each in read["To"].addresses] == letter.recipients == ["ann@example.org"]


@given(
    subject=st.text(st.characters(whitelist_categories=["L", "N", "P", "S"], whitelist_characters=" "), max_size=300),
)
def test_an_ordinary_subject_is_taken(subject: str) -> None:
    if "=?" not in subject:
        written(Mail(to="ann@example.org", subject=subject), "shop@example.com", "id", datetime.now(UTC))


# What the server says. ----------------------------------------------------------------------------------------------


async def test_what_the_server_refuses_for_good_is_final(worker: Placed, office: PostOffice) -> None:
    office.refusals = {"ann@example.org": "550 no such user"}
    job = await worker.run("email", GOOD)
    assert (job.status, job.attempt) == (Status.FAILED, 1)
    assert job.error is not None
    assert "550 no such user" in job.error.message
    office.refusals, office.after_data = {}, "554 looks like spam"
    assert (await worker.run("email", GOOD)).attempt == 1


async def test_what_the_server_refuses_for_now_is_tried_again(worker: Placed, office: PostOffice) -> None:
    office.refusals = {"ann@example.org": "450 greylisted"}
    first = await worker.enqueue("email", GOOD)
    await worker.reaches(first, Status.SCHEDULED)
    office.refusals, office.after_data = {}, "451 later"
    second = await worker.enqueue("email", GOOD)
    assert (await worker.reaches(second, Status.SCHEDULED)).failures == 1
    office.after_data = "250 yes"
    for each in (first, second):
        await worker.store.intake.run_now(each)
        worker.worker.hint()
        await worker.reaches(each, Status.COMPLETED)
    assert {read(office, n)["Message-ID"] for n in (0, 1)} == {f"<{each}@example.com>" for each in (first, second)}


async def test_only_those_who_have_not_got_it_get_it_again(worker: Placed, office: PostOffice) -> None:
    office.refusals = {"later@example.org": "450 greylisted", "never@example.org": "550 unknown"}
    to = ["ann@example.org", "later@example.org", "never@example.org"]
    job_id = await worker.enqueue("email", GOOD | {"to": to})
    await worker.reaches(job_id, Status.SCHEDULED)
    office.refusals.pop("later@example.org")
    await worker.store.intake.run_now(job_id)
    worker.worker.hint()
    job = await worker.reaches(job_id, Status.COMPLETED)
    assert [taken.recipients for taken in office.taken] == [["ann@example.org"], ["later@example.org"]]
    assert result(job)["accepted"] == ["ann@example.org", "later@example.org"]
    assert list(result(job)["refused"]) == ["never@example.org"]


# When nobody knows. -------------------------------------------------------------------------------------------------


async def test_a_mail_that_the_server_may_have_taken_waits_for_a_person(worker: Placed, office: PostOffice) -> None:
    office.hangs_up = True
    job_id = await worker.enqueue("email", GOOD)
    job = await worker.reaches(job_id, Status.HELD)
    assert (job.reason, job.failures) == (needs_decision, 0)
    assert "'mail' may have happened" in str((await worker.store.views.attempts(job_id))[0].error)
    office.hangs_up = False
    await worker.store.intake.decide(job_id, "done")
    worker.worker.hint()
    job = await worker.reaches(job_id, Status.COMPLETED)
    assert result(job)["accepted"] == ["ann@example.org"]
    assert len(office.taken) == 1


@pytest.mark.parametrize(("said", "mails"), [("repeat", 2), ("skip", 1)])
@pytest.mark.parametrize("by_payload", [True, False])
async def test_or_is_repeated_or_skipped_as_settings_or_the_job_say(
    worker: Placed, office: PostOffice, said: str, mails: int, by_payload: bool
) -> None:
    office.hangs_up = True
    settings = {} if by_payload else {"mail_if_unknown": said}
    with sending_by(office, **settings):
        job_id = await worker.enqueue("email", GOOD | ({"if_unknown": said} if by_payload else {}))
        await worker.reaches(job_id, Status.SCHEDULED)
        office.hangs_up = False
        await worker.store.intake.run_now(job_id)
        worker.worker.hint()
        await worker.reaches(job_id, Status.COMPLETED)
    assert len(office.taken) == mails
    assert {read(office, n)["Message-ID"] for n in range(mails)} == {f"<{job_id}@example.com>"}


async def test_a_refusal_of_the_mail_itself_leaves_nothing_to_decide(worker: Placed, office: PostOffice) -> None:
    office.after_data = "451 later"
    job_id = await worker.enqueue("email", GOOD)
    await worker.reaches(job_id, Status.SCHEDULED)
    office.after_data = "250 yes"
    await worker.store.intake.run_now(job_id)
    worker.worker.hint()
    await worker.reaches(job_id, Status.COMPLETED)
    assert len(office.taken) == 1


async def test_a_server_that_is_away_is_tried_again(worker: Placed) -> None:
    async with post_office() as gone:
        pass
    with sending_by(gone):
        await worker.reaches(await worker.enqueue("email", GOOD), Status.SCHEDULED)


async def test_without_a_server_or_a_sender_it_fails_at_once(worker: Placed, office: PostOffice) -> None:
    for settings in ({"smtp_host": None}, {"mail_from": None}):
        with sending_by(office, **settings):
            job = await worker.run("email", GOOD)
        assert (job.status, job.attempt) == (Status.FAILED, 1)
        assert job.error is not None
        assert "WINDLASS_" in job.error.message


# The password. ------------------------------------------------------------------------------------------------------


async def test_the_login_is_used_and_its_password_is_shown_nowhere(
    worker: Placed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "job")
    async with post_office(password=PASSWORD) as office:
        with sending_by(office, smtp_user="shop", smtp_password=PASSWORD):
            assert (await worker.run("email", GOOD)).status is Status.COMPLETED
        assert office.logins == [("shop", PASSWORD)]
        office.password, office.login_answer = "another", f"535 wrong password {PASSWORD} for shop"
        with sending_by(office, smtp_user="shop", smtp_password=PASSWORD):
            job_id = await worker.enqueue("email", GOOD)
            await worker.reaches(job_id, Status.SCHEDULED)
        (attempt,) = await worker.store.views.attempts(job_id)
        assert "refuses our login" in repr(attempt.error)
        assert PASSWORD not in repr(attempt) + caplog.text
        assert len(office.taken) == 1


async def test_a_server_without_tls_gets_neither_password_nor_mail(worker: Placed) -> None:
    async with post_office(password=PASSWORD) as office:
        with sending_by(office, smtp_user="shop", smtp_password=PASSWORD, smtp_security="starttls"):
            await worker.reaches(await worker.enqueue("email", GOOD), Status.SCHEDULED)
        with sending_by(office, smtp_user="shop", smtp_password=PASSWORD, smtp_security="none", smtp_host="mx.example"):
            job = await worker.run("email", GOOD)
        assert job.status is Status.FAILED, "to another machine no password goes unprotected"
        assert (office.logins, office.taken) == ([], [])


async def test_a_certificate_that_is_not_trusted_gets_neither(worker: Placed, tmp_path: Path) -> None:
    server = Authority(tmp_path).server("mx.test")
    async with (
        post_office(password=PASSWORD, starttls=server) as starting,
        post_office(password=PASSWORD, tls=server) as tls,
    ):
        for office, security in ((starting, "starttls"), (tls, "tls")):
            with sending_by(office, smtp_user="shop", smtp_password=PASSWORD, smtp_security=security):
                await worker.reaches(await worker.enqueue("email", GOOD), Status.SCHEDULED)
            assert (office.logins, office.taken) == ([], [])

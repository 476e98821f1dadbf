"""webhook, run by a real worker against a real server: what is sent, what an answer means, what is never shown."""

import base64
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from tests.eventually import aeventually
from tests.jobs.receiver import Heard, Receiver, receiving, said
from tests.worker.placed import Placed
from windlass.config import JobsConfig
from windlass.errors import Misconfigured
from windlass.jobs.addresses import networks
from windlass.jobs.egress import Egress
from windlass.jobs.home import Means, using
from windlass.jobs.signing import keys, signature
from windlass.masking import masked
from windlass.model import Job, Status

KEYS = [secrets.token_bytes(32) for _ in range(3)]
TEXTS = ["whsec_" + base64.b64encode(each).decode() for each in KEYS]
SETTING = f"{TEXTS[0]} shop={TEXTS[1]} shop={TEXTS[2]}"
PASSWORD = "correct-horse-battery-staple"


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as one:
        yield one


@pytest.fixture(autouse=True)
def here() -> Iterator[None]:
    with using(Means(JobsConfig(webhook_secret=SETTING), Egress(networks("127.0.0.1"), None, 5))):
        yield


async def once(worker: Placed, url: str, **fields: Any) -> Job:
    return await worker.run("webhook", {"url": url, **fields}, max_attempts=1)


def result(job: Job) -> Any:
    return json.loads(job.result or "null")


async def test_method_headers_and_body_arrive(worker: Placed, receiver: Receiver) -> None:
    body = {"event": "paid", "cents": 12_345_678_901_234_567_890, "names": ["Ää", None, 1.5]}
    headers = {"Authorization": "Bearer abc", "X-Shop": "7"}
    job = await once(worker, f"{receiver.url}/in?a=b", method="PUT", headers=headers, body=body)
    assert job.status is Status.COMPLETED
    assert result(job) == {"status": 200, "body": "ok", "cut": False}
    (heard,) = receiver.heard
    assert heard.line == "PUT /in?a=b HTTP/1.1"
    assert json.loads(heard.body) == body
    assert heard.headers["content-type"] == "application/json"
    assert (heard.headers["authorization"], heard.headers["x-shop"]) == ("Bearer abc", "7")
    assert heard.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert len(heard.names) == len(set(heard.names)), "no header twice"


async def test_a_text_is_sent_as_it_is(worker: Placed, receiver: Receiver) -> None:
    await once(worker, receiver.url, body="a=1&b=ü", headers={"Content-Type": "application/x-www-form-urlencoded"})
    await once(worker, receiver.url, method="GET")
    form, empty = receiver.heard
    assert form.body == "a=1&b=ü".encode()
    assert form.headers["content-type"] == "application/x-www-form-urlencoded"
    assert (empty.body, "content-type" in empty.headers) == (b"", False)


async def test_the_id_is_the_same_in_every_attempt_and_the_signature_holds(worker: Placed, receiver: Receiver) -> None:
    receiver.reply = said(500)
    job_id = await worker.enqueue("webhook", {"url": receiver.url, "body": {"a": 1}})
    for _ in range(2):
        await worker.reaches(job_id, Status.SCHEDULED)
        await worker.store.intake.run_now(job_id)
        worker.worker.hint()
        await aeventually(_heard(receiver, 2))
        receiver.reply = said(200)
    job = await worker.reaches(job_id, Status.COMPLETED)
    assert len(receiver.heard) == 3
    for attempt, heard in enumerate(receiver.heard, start=1):
        assert heard.headers["webhook-id"] == heard.headers["idempotency-key"] == str(job.id)
        assert heard.headers["windlass-attempt"] == str(attempt)
        stamp = int(heard.headers["webhook-timestamp"])
        assert heard.headers["webhook-signature"] == signature(KEYS[:1], str(job.id), stamp, heard.body)


def _heard(receiver: Receiver, count: int) -> Any:
    async def there() -> bool:
        return len(receiver.heard) >= count

    return there


async def test_a_receiver_of_its_own_name_gets_all_signatures_of_that_name(worker: Placed, receiver: Receiver) -> None:
    job = await once(worker, receiver.url, body="x", secret_name="shop")
    headers = receiver.heard[0].headers
    stamp = int(headers["webhook-timestamp"])
    assert headers["webhook-signature"] == signature(KEYS[1:], str(job.id), stamp, b"x")
    assert headers["webhook-signature"].count("v1,") == 2


async def test_a_name_without_a_key_sends_nothing(worker: Placed, receiver: Receiver) -> None:
    job = await worker.run("webhook", {"url": receiver.url, "secret_name": "nobody"})
    assert (job.status, job.attempt, receiver.connections) == (Status.FAILED, 1, 0)


async def test_an_answer_that_will_not_change_is_final(worker: Placed, receiver: Receiver) -> None:
    for status in (400, 401, 403, 404, 405, 409, 410, 413, 422, 300, 304, 418):
        receiver.reply = said(status, b"no" if status != 304 else b"")
        job = await worker.run("webhook", {"url": receiver.url})
        assert (job.status, job.attempt) == (Status.FAILED, 1), status
        assert job.error is not None
        assert str(status) in job.error.message


async def test_an_answer_that_may_change_is_tried_again(worker: Placed, receiver: Receiver) -> None:
    for status in (408, 429, 500, 501, 502, 503, 504, 599):
        receiver.reply = said(status)
        job_id = await worker.enqueue("webhook", {"url": receiver.url})
        job = await worker.reaches(job_id, Status.SCHEDULED, Status.FAILED)
        assert (job.status, job.failures) == (Status.SCHEDULED, 1), status


async def test_a_receiver_that_is_away_is_tried_again(worker: Placed) -> None:
    async with receiving() as gone:
        url = gone.url
    job = await worker.reaches(await worker.enqueue("webhook", {"url": url}), Status.SCHEDULED)
    assert job.failures == 1


def _moment(hours: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(hours=hours), usegmt=True)


async def test_retry_after_is_heeded(worker: Placed, receiver: Receiver) -> None:
    cases: list[tuple[str, float, float]] = [
        ("120", 110, 121),
        (_moment(2), 7000, 7201),
        ("99999999", 86_000, 86_401),  # a day at most
        (_moment(48), 86_000, 86_401),
        *((nonsense, 0, 10) for nonsense in ("soon", "-5", "1e9", "", "12.5")),  # as its policy says, then
    ]
    for text, least_s, most_s in cases:
        receiver.reply = said(429, Retry_After=text)
        job_id = await worker.enqueue("webhook", {"url": receiver.url})
        began = datetime.now(UTC)
        job = await worker.reaches(job_id, Status.SCHEDULED)
        assert job.ready_at is not None
        assert least_s <= (job.ready_at - began).total_seconds() <= most_s, text


async def test_a_moment_that_has_passed_means_at_once(worker: Placed, receiver: Receiver) -> None:
    receiver.reply = said(503, Retry_After=_moment(-2))
    job_id = await worker.enqueue("webhook", {"url": receiver.url}, max_attempts=2)
    job = await worker.reaches(job_id, Status.SCHEDULED, Status.FAILED)
    assert job.failures >= 1


# What must not get in. ----------------------------------------------------------------------------------------------

BAD_HEADERS: list[dict[str, str]] = [
    *({name: "x"} for name in ("Host", "content-length", "Transfer-Encoding", "Connection", "Upgrade", "TE", "Expect")),
    *({name: "x"} for name in ("webhook-id", "Webhook-Signature", "Idempotency-Key", "Proxy-Authorization")),
    *(
        {"X-A": value}
        for value in ("a\r\nX-B: c", "a\nb", "a\rb", "\x0b", "a\x7f", "é", "\u2028", " a", "a ", "x" * 9000)
    ),
    *({name: "x"} for name in ("", "X A", "X:A", "X\r\nB", "Xé", "a" * 101, "X\0B".replace("\0", "\x01"))),
    {f"X-{n}": "x" for n in range(51)},
]


async def test_a_header_that_would_change_the_message_is_refused(worker: Placed, receiver: Receiver) -> None:
    for headers in BAD_HEADERS:
        job = await worker.run("webhook", {"url": receiver.url, "headers": headers})
        assert (job.status, job.attempt) == (Status.FAILED, 1), headers
    assert receiver.connections == 0


# What must not get out. ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 404, 500])
async def test_a_secret_header_is_shown_nowhere_even_if_the_receiver_repeats_it(
    status: int, worker: Placed, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")

    async def echo(heard: Heard, writer: Any) -> None:
        await said(status, json.dumps(heard.headers | {"line": heard.line}).encode())(heard, writer)

    receiver.reply = echo
    headers = {"Authorization": f"Bearer {PASSWORD}", "X-Whatever": PASSWORD + '"2'}
    job = await once(worker, f"{receiver.url}/?token={PASSWORD}3", headers=headers)
    assert receiver.heard[0].headers["authorization"] == f"Bearer {PASSWORD}"
    logs = [each.log for each in await worker.store.views.attempts(job.id)]
    shown = [
        repr(job.result),
        repr(job.error),
        *map(str, logs),
        caplog.text,
        masked("webhook", job.payload or ""),
    ]
    assert [each for each in shown if PASSWORD in each] == []
    assert not any(text[6:] in each for text in TEXTS for each in shown)


async def test_what_is_sent_back_is_kept_in_part(worker: Placed, receiver: Receiver) -> None:
    receiver.reply = said(200, b"\0\xff" + b"x" * 100_000)
    job = await once(worker, receiver.url)
    assert result(job)["cut"]
    assert len(result(job)["body"]) == 65_536
    receiver.reply = said(200, b"\x1f\x8b...", Content_Encoding="gzip")
    assert result(await once(worker, receiver.url))["body"] == ""


# Signatures. --------------------------------------------------------------------------------------------------------


def test_the_signature_is_that_of_the_published_example() -> None:
    (key,) = keys("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", None)
    made = signature([key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}')
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_no_key_is_none() -> None:
    assert keys(None, None) == keys("", "shop") == []


@pytest.mark.parametrize(
    "setting", ["abc", "whsec_", "whsec_!!!!", "whsec_" + "A" * 20, "whsec_" + "A" * 200, "shop=abc"]
)
def test_a_key_that_is_none_is_refused_and_not_shown(setting: str) -> None:
    with pytest.raises(Misconfigured, match="WINDLASS_WEBHOOK_SECRET") as refused:
        keys(setting, None)
    assert "AAAA" not in str(refused.value)

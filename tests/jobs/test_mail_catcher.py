"""The mail catcher of development: takes what clients send, keeps a bounded part of it, and outlives what is no mail."""

import asyncio
import smtplib
import socket
import threading
from collections.abc import AsyncIterator, Callable
from email.message import EmailMessage
from pathlib import Path

import pytest

from windlass.mail_catcher.mailbox import Mailbox
from windlass.mail_catcher.receiver import MailReceiver, connections_max, message_bytes_max


@pytest.fixture
def mailbox(tmp_path: Path) -> Mailbox:
    return Mailbox(tmp_path / "mail", mails_max=5, bytes_max=30_000_000)


@pytest.fixture
async def port(mailbox: Mailbox) -> AsyncIterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        async with MailReceiver(door, mailbox):
            yield door.getsockname()[1]


def letter(subject: str, text: str = "Hello") -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "a@example.org", "b@example.org", subject
    message.set_content(text)
    return message


async def sent(port: int, *messages: EmailMessage) -> None:
    def send() -> None:
        with smtplib.SMTP("127.0.0.1", port, timeout=20) as client:
            for message in messages:
                client.send_message(message, "env@example.org", ["b@example.org", "c@example.org"])

    await asyncio.to_thread(send)


async def exchanged(port: int, *lines: bytes) -> list[bytes]:
    """Each line sent after the answer to the one before; all answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers = [await reader.readline()]
    for line in lines:
        writer.write(line)
        answers.append(await asyncio.wait_for(reader.readline(), 20))
    writer.close()
    return answers


async def test_a_mail_is_kept_as_it_was_sent(port: int, mailbox: Mailbox) -> None:
    text = "Grüße\n.\n..two dots\n" + "x" * 500
    await sent(port, letter("Füße 👣", text), letter("second"))
    second, first = mailbox.newest(10)
    assert (first.sender, list(first.recipients)) == ("env@example.org", ["b@example.org", "c@example.org"])
    assert (first.subject, second.subject) == ("Füße 👣", "second")
    assert (first.body("plain") or "").rstrip() == text
    assert first.body("html") is None
    assert dict(first.headers)["From"] == "a@example.org"
    assert mailbox.get(first.id) == first


async def test_only_the_newest_mails_are_kept(port: int, mailbox: Mailbox) -> None:
    await sent(port, *(letter(f"mail {n}") for n in range(8)))
    assert [mail.subject for mail in mailbox.newest(10)] == [f"mail {n}" for n in (7, 6, 5, 4, 3)]


def test_the_folder_has_a_size_and_the_newest_mail_stays(tmp_path: Path) -> None:
    mailbox = Mailbox(tmp_path, bytes_max=1_000)
    for text in (b"a" * 400, b"b" * 400, b"c" * 400):
        mailbox.add("x@y", ["z@y"], text)
    assert [mail.message[:1] for mail in mailbox.newest(10)] == [b"c", b"b"]
    mailbox.add("x@y", ["z@y"], b"d" * 5_000)
    assert [mail.message[:1] for mail in mailbox.newest(10)] == [b"d"]


@pytest.mark.parametrize("mail_id", ["../auth-secret", "/etc/passwd", "", "..", "1" * 13, "1" * 13 + "-deadbeef"])
def test_no_id_leads_out_of_the_folder(tmp_path: Path, mail_id: str) -> None:
    (tmp_path / "auth-secret").write_text("{}\nsecret")
    assert Mailbox(tmp_path / "mail").get(mail_id) is None


async def test_commands_out_of_order_and_nonsense_are_refused_and_the_next_mail_is_taken(
    port: int, mailbox: Mailbox
) -> None:
    answers = await exchanged(
        port, b"DATA\r\n", b"RCPT TO:<a@b>\r\n", b"MAIL FROM:a@b\r\n", b"\xff\xfe\r\n", b"\r\n", b"GET / HTTP/1.1\r\n",
        b"MAIL FROM:<a@b> SIZE=10\r\n", b"MAIL FROM:<c@d>\r\n", b"RCPT TO:<>\r\n", b"AUTH PLAIN x\r\n",
    )  # fmt: skip
    assert [answer[:3] for answer in answers] == [
        *(b"220", b"503", b"503", b"501", b"502", b"502", b"502", b"250", b"503", b"501", b"502"),
    ]
    assert mailbox.ids() == []
    await sent(port, letter("after that"))
    assert len(mailbox.ids()) == 1


async def test_a_dot_after_a_bare_line_feed_ends_no_mail(port: int, mailbox: Mailbox) -> None:
    said = b"Subject: one\r\n\r\ntext\n.\nMAIL FROM:<evil@x>\r\n.\r\n"
    answers = await exchanged(port, b"MAIL FROM:<a@b>\r\n", b"RCPT TO:<a@b>\r\n", b"DATA\r\n", said)
    assert answers[-1].startswith(b"250")
    (mail,) = mailbox.newest(10)
    assert (mail.sender, b"evil@x" in mail.message) == ("a@b", True)


async def test_a_mail_that_is_too_large_is_refused_and_one_of_a_single_long_line_is_not(
    port: int, mailbox: Mailbox
) -> None:
    head = [b"MAIL FROM:<a@b>\r\n", b"RCPT TO:<a@b>\r\n", b"DATA\r\n"]
    large = await exchanged(port, *head, b"y" * (message_bytes_max + 1) + b"\r\n.\r\n")
    assert large[-1].startswith(b"552")
    long = await exchanged(port, *head, b"z" * 300_000 + b"\r\n.\r\n")
    assert long[-1].startswith(b"250")
    assert [len(mail.message) for mail in mailbox.newest(10)] == [300_002]


async def test_a_command_without_an_end_and_endless_errors_end_the_connection(port: int) -> None:
    assert (await exchanged(port, b"x" * 100_000))[-1].startswith(b"500")
    answers = await exchanged(port, *[b"WHAT\r\n"] * 19, b"WHAT\r\nNOOP\r\n")
    assert answers[-1].startswith(b"502")


async def test_more_connections_than_it_takes_are_turned_away(port: int) -> None:
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(connections_max)]
    greetings = [await reader.readline() for reader, _ in opened]
    assert all(greeting.startswith(b"220") for greeting in greetings)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert (await reader.readline()).startswith(b"421")
    for _, each in [*opened, (reader, writer)]:
        each.close()


def test_mails_that_cannot_be_read_are_shown_as_they_came(tmp_path: Path) -> None:
    mailbox = Mailbox(tmp_path)
    broken = b"Content-Type: text/plain; charset=no-such\r\nSubject: =?utf-8?b?!!!?=\r\nTo: <<<\r\n\r\n\xff\xfe"
    mailbox.add("x", ["y"], broken)
    mailbox.add("x", ["y"], b"")
    empty, mail = mailbox.newest(10)
    assert (empty.subject, empty.source) == ("", "")
    assert "no-such" in mail.source
    assert isinstance(mail.subject, str)
    assert mail.headers
    mail.body("plain")


def test_reading_while_mails_are_added_and_removed_finds_whole_mails(tmp_path: Path) -> None:
    mailbox = Mailbox(tmp_path, mails_max=3)
    done = threading.Event()

    def until_done(look: Callable[[], None]) -> None:
        while not done.is_set():
            look()

    seen: list[bytes] = []
    reader = threading.Thread(target=until_done, args=(lambda: seen.extend(m.message for m in mailbox.newest(5)),))
    reader.start()
    for n in range(200):
        mailbox.add("x", ["y"], b"%03d" % n * 1000)
    done.set()
    reader.join()
    assert all(len(message) == 3000 for message in seen)

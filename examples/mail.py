"""An async job that is tried again: deliver a mail to a Maildir, which may be away for a while.

A worker that dies between the delivery and its settlement starts the job again: `ctx.once` keeps the delivery from
being repeated by later attempts.
"""

import asyncio
import mailbox
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from tempfile import gettempdir

from windlass import App, AsyncContext, Fail, RetryPolicy

app = App("mail")
OUTBOX = Path(gettempdir()) / "windlass-outbox"


@dataclass
class Mail:
    to: str
    subject: str
    body: str = ""


@app.job(max_attempts=5, timeout=30, retry=RetryPolicy(base_s=1, cap_s=60))
async def send(ctx: AsyncContext, mail: Mail, copies: int = 1) -> dict[str, str]:
    if "@" not in mail.to:
        raise Fail(f"{mail.to!r} is no address: trying again would not help")
    for n in range(copies):
        key = await ctx.once(f"copy {n}", asyncio.to_thread, deliver, mail)
        ctx.log.info("delivered", to=mail.to, key=key)
    return {"to": mail.to, "last": key}


def deliver(mail: Mail) -> str:
    """Any error raised here is a failed attempt: the job waits 1, 2, 4, 8 s and is tried again."""
    message = EmailMessage()
    message["To"], message["Subject"] = mail.to, mail.subject
    message.set_content(mail.body)
    box = mailbox.Maildir(OUTBOX)
    try:
        return box.add(message)
    finally:
        box.close()


def main() -> None:
    with app:
        handles = [send.enqueue(Mail(f"guest{n}@example.org", "Welcome"), copies=2) for n in range(3)]
        for handle in handles:
            print(handle.id, handle.result(timeout_s=60))
        print(f"look into {OUTBOX}/new")


if __name__ == "__main__":
    main()

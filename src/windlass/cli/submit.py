"""`windlass submit`: store a job, and wait for it if asked to."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from windlass.cli import remote
from windlass.cli.filters import seconds, when
from windlass.cli.jobs import note_held, show_end
from windlass.cli.output import Json, note, say, say_json
from windlass.errors import InvalidPayload

Type = Annotated[str, typer.Argument(help="The type of the job.", metavar="TYPE")]
Payload = Annotated[
    str | None, typer.Argument(help="What it is given, as JSON; @file reads a file, - stdin.", metavar="[PAYLOAD]")
]


def submit(
    type_: Type,
    payload: Payload = None,
    name: Annotated[str | None, typer.Option(help="What people call it.")] = None,
    queue: Annotated[str | None, typer.Option(help="The queue; else its type's.")] = None,
    priority: Annotated[int | None, typer.Option(help="Larger runs first.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads it needs.", min=1)] = None,
    delay: Annotated[str | None, typer.Option(help="Not before: 90s, 5m, 2h, 1d.", metavar="SPAN")] = None,
    at: Annotated[str | None, typer.Option(help="Not before this time, as RFC 3339.", metavar="TIME")] = None,
    max_attempts: Annotated[int | None, typer.Option(help="Failures until it is given up.", min=1)] = None,
    timeout: Annotated[
        str | None,
        typer.Option(help="An attempt may take: 30s, 5m. (How long --wait waits: --wait-timeout.)", metavar="SPAN"),
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag; may be given several times.")] = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key: stored once, however often submitted.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is finished, and print its result.")] = False,
    wait_timeout_s: Annotated[
        float | None, typer.Option("--wait-timeout", help="With --wait: stop waiting, in seconds.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Submit a job and print its id; with --wait, its result.

    Examples: windlass submit add_numbers '{"a": 2, "b": 3}' --wait · windlass submit email @mail.json --delay 10m ·
    echo '{"text": "abc"}' | windlass submit reverse_string - --priority 5 --tag demo
    """
    from windlass.sdk.asks import submission  # noqa: PLC0415 - help and completion do without

    document = _document(payload)
    delay_s, timeout_s, scheduled_at = seconds("--delay", delay), seconds("--timeout", timeout), when("--at", at)
    with remote.client() as client:
        job = submission(
            type_,
            document,
            name=name,
            queue=queue,
            priority=priority,
            thread_demand=threads,
            delay_s=delay_s,
            scheduled_at=scheduled_at,
            max_attempts=max_attempts,
            timeout_s=timeout_s,
            tags=tag or [],
            idempotency_key=key,
        )
        stored = client.submit_one(job)
        if not stored.payload_checked and not as_json:
            note("its payload was not checked: no living worker has declared this type, or their versions of it differ")
        if wait:
            show_end(client.finished(stored.id, wait_timeout_s, on_held=note_held), as_json=as_json)
        elif as_json:
            say_json({"id": stored.id, "duplicate": stored.duplicate, "payload_checked": stored.payload_checked})
        else:
            say(str(stored.id))
            if stored.duplicate:
                note("it was there already")


def _document(text: str | None) -> Any:
    """The payload that was said, read or piped in."""
    import json  # noqa: PLC0415

    if text is None:
        return None
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
        return json.loads(text)
    except OSError as error:
        raise typer.BadParameter(f"{text}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidPayload("payload", f"is no JSON ({error}); quote texts, as in '\"text\"'") from None

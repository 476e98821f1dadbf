"""`windlass jobs`: look at jobs, wait for them, and act on them, one or many."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from windlass.cli import following, many, remote
from windlass.cli.filters import (
    LimitOption,
    QueueOption,
    ReasonOption,
    SinceOption,
    StatusOption,
    TagOption,
    TypeOption,
    UntilOption,
    chosen,
)
from windlass.cli.ids import Id, Ids, resolve, resolve_all
from windlass.cli.output import (
    Json,
    Yes,
    ago,
    clean,
    clean_lines,
    counted,
    facts,
    moment,
    note,
    say,
    say_json,
    span,
    table,
)
from windlass.cli.quotas import use_words
from windlass.errors import JobCancelled, JobFailed, ResultNotStored
from windlass.model import FINISHED

if TYPE_CHECKING:
    from windlass import wire
    from windlass.sdk.asks import Action, Job

app = typer.Typer(help="Look at jobs, wait for them, and act on them.", no_args_is_help=True)

Preview = Annotated[bool, typer.Option("--preview", help="Only count; do nothing.")]


@app.command("list")
def list_(
    status: StatusOption = None,
    type_: TypeOption = None,
    queue: QueueOption = None,
    tag: TagOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    reason: ReasonOption = None,
    limit: LimitOption = 20,
    as_json: Json = False,
) -> None:
    """List jobs, newest first.

    Examples: windlass jobs list · windlass jobs list --status failed --since 2h · windlass jobs list --tag night --json
    · windlass jobs list --reason 'needs decision'
    """
    with remote.client() as client:
        found = list(client.jobs(limit=limit, **chosen(status, type_, queue, tag, since, until, reason)))
    if as_json:
        say_json({"jobs": found})
    else:
        show_jobs(found)


@app.command()
def show(job_id: Id, as_json: Json = False) -> None:
    """Show everything about one job: its fields, its attempts, what it was given and what it returned.

    Example: windlass jobs show 0190a4f2-7b1c-7def-8a35-2f4bb1a9c0de
    """
    with remote.client() as client:
        found = resolve(client, job_id)
        job, attempts = client.job(found), client.attempts(found)
    if as_json:
        say_json({"job": job, "attempts": attempts})
        return
    facts(_facts(job))
    _show_attempts(attempts)
    for name, value in (("payload", job.payload), ("result", job.result)):
        if value is not None:
            say(f"\n{name}")
            _show_document(value)
    if job.error is not None and job.error.traceback:
        say(f"\ntraceback\n{clean_lines(job.error.traceback).rstrip()}")


@app.command()
def cancel(
    ids: Ids = None,
    status: StatusOption = None,
    type_: TypeOption = None,
    queue: QueueOption = None,
    tag: TagOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    reason: Annotated[str | None, typer.Option(help="Why, for those who ask later.")] = None,
    preview: Preview = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Cancel jobs: what waits is cancelled at once, what runs is asked to stop.

    Examples: windlass jobs cancel ID · windlass jobs cancel --type email --queue mail --preview
    """
    filters = chosen(status, type_, queue, tag, since, until)
    _act("cancel", ids or [], filters, reason=reason, preview=preview, yes=yes, as_json=as_json)


@app.command()
def retry(
    ids: Ids = None,
    status: StatusOption = None,
    type_: TypeOption = None,
    queue: QueueOption = None,
    tag: TagOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    preview: Preview = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Run finished jobs once more, from the start.

    Examples: windlass jobs retry ID · windlass jobs retry --status failed --type webhook --since 1h
    """
    filters = chosen(status, type_, queue, tag, since, until)
    _act("retry", ids or [], filters, preview=preview, yes=yes, as_json=as_json)


@app.command("run-now")
def run_now(
    ids: Ids = None,
    status: StatusOption = None,
    type_: TypeOption = None,
    queue: QueueOption = None,
    tag: TagOption = None,
    preview: Preview = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Run scheduled or held jobs without waiting for their time.

    Examples: windlass jobs run-now ID · windlass jobs run-now --status scheduled --tag night --yes
    """
    _act("run-now", ids or [], chosen(status, type_, queue, tag), preview=preview, yes=yes, as_json=as_json)


class DecisionOption(StrEnum):
    DONE = "done"
    REDO = "redo"


@app.command()
def decide(
    job_id: Id,
    decision: Annotated[
        DecisionOption, typer.Argument(help="done: it has happened. redo: it has not, and is to be done again.")
    ],
    effect: Annotated[
        str | None, typer.Option("--effect", help="Which effect, where several wait.", metavar="KEY")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say whether an effect has happened, of a job that is held because it needs a decision; then it runs on.

    Examples: windlass jobs decide ID done · windlass jobs decide ID redo --effect welcome-mail
    """
    with remote.client() as client:
        from windlass.sdk import asks  # noqa: PLC0415 - help and completion do without

        many.act_on_one(client, asks.decide(resolve(client, job_id), decision.value, effect), as_json=as_json)


@app.command()
def wait(
    job_id: Id,
    timeout_s: Annotated[float | None, typer.Option("--timeout", help="Give up after so many seconds.", min=0)] = None,
    as_json: Json = False,
) -> None:
    """Wait until a job is finished, and print its result. Exits with an error if it failed or was cancelled.

    Example: windlass jobs wait "$(windlass submit add_numbers '{"a": 2, "b": 3}')" --timeout 30
    """
    with remote.client() as client:
        show_end(client.finished(resolve(client, job_id), timeout_s, on_held=note_held), as_json=as_json)


@app.command()
def logs(
    job_id: Id,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job is finished.")] = False,
    as_json: Json = False,
) -> None:
    """Print what the attempts of a job wrote; with --follow also what it writes from now on.

    Examples: windlass jobs logs 0190a4f2-7b1c-7def-8a35-2f4bb1a9c0de · windlass jobs logs 0190a4f2-7b1c-7d --follow
    """
    with remote.client() as client:
        if follow:
            following.follow(client, resolve(client, job_id), as_json=as_json)
            return
        found = client.logs(resolve(client, job_id))
    if as_json:
        say_json({"logs": found})
        return
    for each in found:
        say(f"attempt {each.attempt}\n{clean_lines(each.text).rstrip()}")
    if not found:
        say("it wrote nothing, or has not ended an attempt yet; --follow shows what a running one writes")


@app.command()
def explain(job_id: Id, as_json: Json = False) -> None:
    """Say why a job is where it is, and what would help.

    Example: windlass jobs explain 0190a4f2-7b1c-7def-8a35-2f4bb1a9c0de
    """
    with remote.client() as client:
        why = client.explain(resolve(client, job_id))
    if as_json:
        say_json(why)
        return
    say(clean(why.summary))
    for each in why.obstacles:
        if each.detail not in why.summary:
            say(f"  {clean(each.code)}: {clean(each.detail)}")
        if each.cure:
            say(f"  → {clean(each.cure)}")
    if why.submitter is not None:
        say(f"  counts against the quota of {clean(why.submitter.subject)}: {use_words(why.submitter.quotas)}")
    if why.ahead and why.status == "ready":
        able = f"{why.workers_able} can run it, {why.workers_free} of them now"
        say(f"  ahead of it in its queue: {counted(why.ahead, 'job')}; workers: {able}")


def show_jobs(jobs: "Iterable[Job]", *, expiry: bool = False) -> None:
    """`expiry`: with the time at which each is removed."""
    table(
        ["id", "type", "status", "queue", "priority", "attempts", "created", "expires" if expiry else "took", "note"],
        (
            (
                job.id,
                job.type,
                job.status,
                job.queue,
                job.priority,
                f"{job.attempts}/{job.max_attempts}",
                ago(job.created_at),
                (ago(job.expires_at) or "never") if expiry else span(job.execution_s),
                job_note(job),
            )
            for job in jobs
        ),
        right=["priority", "attempts", "created", "expires", "took"],
        empty="no jobs",
    )


def note_held(job: "Job") -> None:
    """For whoever waits for a job: nobody would guess that it waits for them, or for a worker that is not there."""
    note(f"{job.id} is held: {clean(job.reason or '')}; what would help: windlass jobs explain {job.id}")


def show_end(job: "Job", *, as_json: bool) -> None:
    """What became of a job that is finished: its result, or the error as the command's own."""
    if as_json:
        say_json(job)
    elif job.status == "completed":
        if job.error is not None and job.error.type == ResultNotStored.__name__:
            raise ResultNotStored(job.id, job.error)
        _show_document(job.result)
    if job.status == "failed":
        raise JobFailed(job.id, job.error) if not as_json else typer.Exit(JobFailed.exit_code)
    if job.status == "cancelled":
        raise JobCancelled(job.id, job.error) if not as_json else typer.Exit(JobCancelled.exit_code)


def _act(
    action: "Action",
    written: list[str],
    filters: Any,
    *,
    preview: bool,
    as_json: bool,
    yes: bool,
    reason: str | None = None,
) -> None:
    with remote.client() as client:
        from windlass.sdk import asks  # noqa: PLC0415 - help and completion do without

        ids = resolve_all(client, written)
        if len(ids) == 1 and not filters and not preview:
            many.act_on_one(client, asks.act(action, ids[0], reason), as_json=as_json)
            return
        many.act_on_many(
            client,
            lambda which: asks.act_on_many(action, which),
            verb=action.replace("-", " ").capitalize(),
            ids=ids,
            filters=filters,
            reason=reason,
            yes=yes or bool(ids),
            preview=preview,
            as_json=as_json,
        )


def job_note(job: "Job") -> str:
    """What matters most about a job, for the last column of a list."""
    if job.progress is not None and job.status == "running":
        return f"{job.progress:.0%} {job.progress_note or ''}".strip()
    if job.error is not None:
        failure = f"{job.error.type}: {job.error.message}"
        if job.status == "held":  # until somebody acts, whatever time its next try was due
            return f"{job.reason}; {failure}"
        if job.next_try_at is not None:
            return f"{_next_try(job.next_try_at)}; {failure}"
        return f"before: {failure}" if job.status == "running" else failure
    return job.name or job.reason or ""


def _next_try(at: datetime) -> str:
    waits = ago(at)
    return f"next try {waits}" if waits.startswith("in ") else "next try due"


def _facts(job: "Job") -> Iterator[tuple[str, object]]:
    yield from (("id", job.id), ("type", job.type), ("status", job.status), ("reason", job.reason), ("name", job.name))
    yield "queue", f"{job.queue}, priority {job.priority}"
    granted = "" if job.threads_granted is None else f", granted {job.threads_granted}"
    yield "threads", f"{job.thread_demand}{granted}; {job.if_too_wide} if too wide"
    yield "attempts", f"{job.attempts}, of them {job.failures} failed; at most {job.max_attempts} may"
    yield "timeout", span(job.timeout_s)
    yield "tags", ", ".join(job.tags) or None
    yield "key", job.idempotency_key
    for name, at in (("created", job.created_at), ("scheduled", job.scheduled_at), ("started", job.started_at)):
        yield name, moment(at)
    yield "finished", moment(job.finished_at)
    yield (
        "next try",
        None if job.next_try_at is None else f"{moment(job.next_try_at)}, {_next_try(job.next_try_at)[9:]}",
    )
    yield "expires", moment(job.expires_at)
    yield "queued for", span(job.queue_s) or None
    yield "ran for", span(job.execution_s) or None
    yield "worker", job.worker_id
    yield "progress", None if job.progress is None else f"{job.progress:.0%} {job.progress_note or ''}".strip()
    yield "cancel", "asked for" if job.cancel_requested else None
    yield (
        "error" if job.status in FINISHED else "last error",
        None if job.error is None else f"{job.error.type}: {job.error.message}",
    )


def _show_attempts(attempts: "list[wire.Attempt]") -> None:
    if not attempts:
        return
    say()
    table(
        ["attempt", "status", "started", "ended", "error"],
        (
            (
                each.attempt,
                each.status,
                moment(each.started_at),
                moment(each.ended_at),
                f"{each.error.type}: {each.error.message}" if each.error else "",
            )
            for each in attempts
        ),
        right=["attempt"],
    )


def _show_document(value: Any) -> None:
    import json  # noqa: PLC0415

    say(clean_lines(json.dumps(value, indent=2, ensure_ascii=False)))

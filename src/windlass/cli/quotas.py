"""The options by which commands say what a user or an API key may submit, said once."""

from typing import Annotated, Any

import typer

from windlass.cli.filters import seconds

Waiting = Annotated[
    int | None, typer.Option("--waiting", help="Most jobs of it that may wait at once.", metavar="N", min=0)
]
AllThreads = Annotated[
    int | None, typer.Option("--threads", help="Most threads of its unfinished jobs together.", metavar="N", min=0)
]
Widest = Annotated[
    int | None, typer.Option("--thread-demand", help="Most threads that one job may ask for.", metavar="N", min=1)
]
Longest = Annotated[
    str | None, typer.Option("--timeout", help="Longest time-out that one job may have: 90s, 5m, 2h.", metavar="TIME")
]
Rate = Annotated[
    float | None, typer.Option("--rate", help="Most submissions a second, in each API process.", metavar="N")
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        help="Share idempotency keys and ids with all of that namespace; default: with the application.",
        metavar="NAME",
    ),
]


def quota_said(
    waiting: int | None, threads: int | None, thread_demand: int | None, timeout: str | None, rate: float | None
) -> Any:
    from windlass import wire  # noqa: PLC0415 - help and completion do without

    return wire.Quota(
        waiting=waiting,
        threads=threads,
        thread_demand=thread_demand,
        timeout_s=seconds("--timeout", timeout),
        submissions_per_s=rate,
    )


def quota_words(quota: Any) -> str:
    """A quota as a list has it: `waiting 100, rate 5`."""
    if quota is None:
        return "none"
    said = {
        "waiting": quota.waiting,
        "threads": quota.threads,
        "thread-demand": quota.thread_demand,
        "timeout": None if quota.timeout_s is None else f"{quota.timeout_s:g}s",
        "rate": None if quota.submissions_per_s is None else f"{quota.submissions_per_s:g}",
    }
    return ", ".join(f"{name} {value}" for name, value in said.items() if value is not None)


def namespace_words(namespace: str | None) -> str:
    return "keys and ids of its own" if namespace is None else f"the keys and ids of the namespace {namespace}"


def use_words(quotas: Any) -> str:
    """What counts against each quota: `waiting 12 of 100, timeout_s 600`."""
    return ", ".join(
        f"{each.quota} {each.limit:g}" if each.current is None else f"{each.quota} {each.current:g} of {each.limit:g}"
        for each in quotas
    )

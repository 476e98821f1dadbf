"""What `windlass up` tells: for people, or as JSON."""

import json
import logging
import shlex
import sys
from pathlib import Path
from typing import Any, Final

import typer
from rich.console import Console
from rich.markup import escape

from windlass.cli.notices import is_json, say
from windlass.cli.wiring import default_data_dir

_EXAMPLE: Final = '{"type": "add_numbers", "payload": {"a": 2, "b": 3}}'
_HEALTH: Final = {
    True: "healthy: no job lost, doubled or miscounted",
    False: "NOT HEALTHY",
    None: "not checked: there are too many jobs to read all of them at a start",
}


def show(report: dict[str, Any], *, as_json: bool, curl: str | None = None) -> None:
    """One fact a line, each whole: addresses are there to be copied."""
    if as_json:
        typer.echo(json.dumps(report | ({"curl": curl} if curl else {})))
        return
    if is_json():
        _log_report(report)
        return
    console = Console(soft_wrap=True, highlight=False)
    after = f" after {report['up_after_s']:.1f} s" if "up_after_s" in report else ""
    console.print(f"[bold green]Windlass is up[/bold green]{after}")
    for name, value in _facts(report).items():
        console.print(f"  [bold]{name:<9}[/bold] {escape(value)}")
    if curl is None:
        return
    if report["auth"] == "off":
        console.print("\n[bold red]WINDLASS_AUTH=off: whoever reaches this address may do everything.[/bold red]")
    console.print(f"\nSubmit a job, from another terminal:\n\n  {escape(curl)}\n\nCtrl-C stops it.")


def stopped(*, as_json: bool) -> None:
    if is_json():
        say("Windlass is stopped")
    elif not as_json:
        typer.echo("stopped")


def _log_report(report: dict[str, Any]) -> None:
    """As a log line, and logs are kept and read by others: without the link that logs its reader in."""
    facts = {name: value for name, value in report.items() if name != "login"}
    if report.get("auth") == "off":
        say("WINDLASS_AUTH=off: whoever reaches this address may do everything", logging.WARNING, url=report["url"])
    say("Windlass is up" if "url" in report else "the database is ready", **facts)


def curl_line(url: str, bearer: str | None) -> str:
    """A line that works when it is pasted, in whatever folder."""
    said = f' -H "Authorization: Bearer {bearer}"' if bearer else ""
    return f"curl -s {url}/v1/jobs{said} -H 'Content-Type: application/json' -d '{_EXAMPLE}'"


def command(folder: Path) -> str:
    """How `windlass` is called here, so that it finds this folder."""
    beside = Path(sys.executable).with_name("windlass")
    program = shlex.quote(str(beside)) if beside.exists() else f"{shlex.quote(sys.executable)} -m windlass"
    return program if folder == default_data_dir() else f"WINDLASS_DATA_DIR={shlex.quote(str(folder))} {program}"


def _facts(report: dict[str, Any]) -> dict[str, str]:
    jobs = ", ".join(f"{n:,} {status}" for status, n in report["jobs"].items() if n)
    applied = report["migrations_applied"]
    facts = {
        "database": f"{report['database']}  (PostgreSQL {report['postgresql']})",
        "schema": f"{report['schema']}, " + (f"migrations {applied} applied now" if applied else "up to date"),
        **({"data": f"{report['data_dir']}"} if report["data_dir"] else {}),
        "jobs": jobs or "none yet",
        "workers": _workers(report),
        "store": _HEALTH[report["healthy"]],
    }
    if "url" not in report:
        return facts
    login = {}
    if report["login"]:
        login = {"log in": f"{report['login']}  (once, within 15 minutes; another: windlass login)"}
    elif report["log_in"]:
        login = {"log in": f"{report['log_in']}  (prints a link; here it is shown on a terminal only)"}
    first = {"API": f"{report['url']}  (reference: {report['url']}/docs)", **login}
    mail = {"mail": f"caught, see {report['mail']}  (SMTP at {report['smtp']})"} if report["mail"] else {}
    redis = {"redis": f"Valkey at {report['redis']}  (nothing in it is kept)"} if report.get("redis") else {}
    return first | facts | mail | redis | {"types": ", ".join(report["types"])}


def _workers(report: dict[str, Any]) -> str:
    """Those that were started here; with those of other supervisors on the same database told apart."""
    if "threads" not in report:
        return str(report["workers"])
    others = report["other_workers"]
    beside = f"; beside {others} of others on this database" if others else ""
    return f"{report['workers']}, with {_threads(report['threads'])}{beside}"


def _threads(widths: list[int]) -> str:
    if len(set(widths)) == 1:
        return f"{widths[0]} threads each"
    return " and ".join([", ".join(map(str, widths[:-1])), str(widths[-1])]) + " threads"

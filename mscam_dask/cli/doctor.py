"""`mscam-dask doctor`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mscam_dask.cli.console import relative, results_console, show
from mscam_dask.monitor.messages import printable
from mscam_dask.pipeline.run.doctor import CHECKS, Check, check_run

__all__ = ["run_checks"]

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def run_checks(run: Path | None) -> int:
    """Print the checks of this computer, or of a finished run, and return 1 if one failed."""
    console = results_console()
    if run is None:
        checks: Iterable[Check] = _of_this_computer(console)
        subject, failure = "Ready", "pipelines cannot run here"
    else:
        checks = check_run(run)
        subject, failure = f"{relative(run)} is valid", f"do not use the results of {relative(run)}"
    levels = []
    for check in checks:
        levels.append(check.level)
        show(console, _row(check))
    failed, warned = levels.count("fail"), levels.count("warn")
    console.print()
    if failed:
        console.print(f"{failed} of {len(levels)} checks failed: {failure}.")
        return 1
    warnings = f", {warned} with a warning" if warned else ""
    console.print(f"{subject}: {len(levels)} checks passed{warnings}.")
    return 0


def _of_this_computer(console: Console) -> Iterator[Check]:
    for name, check in CHECKS:
        with console.status(f"{name} ..."):
            result = check()
        yield result


def _row(check: Check) -> Table:
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_column(width=4, style=_STYLES[check.level])
    row.add_column(width=15, style="bold")
    row.add_column(overflow="fold")
    row.add_row(check.level, check.name, Text(printable(check.found)))
    if check.remedy:
        row.add_row("", "", Text(printable(check.remedy), style=_STYLES[check.level]))
    return row

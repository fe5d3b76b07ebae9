"""`mscam-dask doctor`."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from mscam_dask.cli.console import results_console, show
from mscam_dask.monitor.messages import printable
from mscam_dask.pipeline.run.doctor import CHECKS, Check

__all__ = ["run_checks"]

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def run_checks() -> int:
    """Run and print every check, and return 1 if one failed."""
    console = results_console()
    levels = []
    for name, check in CHECKS:
        with console.status(f"{name} ..."):
            result = check()
        levels.append(result.level)
        show(console, _row(result))
    failed, warned = levels.count("fail"), levels.count("warn")
    console.print()
    if failed:
        console.print(f"{failed} of {len(levels)} checks failed: pipelines cannot run here.")
        return 1
    warnings = f", {warned} with a warning" if warned else ""
    console.print(f"Ready: {len(levels)} checks passed{warnings}.")
    return 0


def _row(check: Check) -> Table:
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_column(width=4, style=_STYLES[check.level])
    row.add_column(width=15, style="bold")
    row.add_column(overflow="fold")
    row.add_row(check.level, check.name, Text(printable(check.found)))
    if check.remedy:
        row.add_row("", "", Text(printable(check.remedy), style=_STYLES[check.level]))
    return row

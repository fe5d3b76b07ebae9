"""`mscam-dask doctor`."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from mscam_dask.cli.console import results_console, show
from mscam_dask.monitor.messages import printable
from mscam_dask.pipeline.run.doctor import CHECKS, Check

__all__ = ["examine"]

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def examine() -> int:
    """Run every check, showing each as it is done; 1 when one failed."""
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
        console.print(f"{failed} of {len(levels)} checks failed: pipelines will not run here.")
        return 1
    remark = f", {warned} with a remark" if warned else ""
    console.print(f"Ready: {len(levels)} checks passed{remark}.")
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

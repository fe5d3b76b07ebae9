"""Options that several commands have; imports Click and nothing heavier."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

__all__ = ["Option", "execution_options", "no_url", "with_options"]

Option = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Gives a command an option."""


def no_url(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Refuse a URL where a directory is needed; for Click."""
    if path is not None and path.parts and path.parts[0] in ("s3:", "gs:", "file:"):
        raise click.BadParameter("run directories are on file systems only; give a directory.")
    return path


def execution_options(*, in_process: str) -> tuple[Option, ...]:
    """Return the options that say what runs the tasks; `in_process` says what is done without."""
    return (
        click.option(
            "--workers", type=click.IntRange(min=1), help="Worker processes; one per core."
        ),
        click.option(
            "--memory-limit", metavar="SIZE", help="Memory of a worker, for example '4 GiB'."
        ),
        click.option("--in-process", is_flag=True, help=f"No cluster: {in_process}."),
        click.option(
            "--scheduler", metavar="ADDRESS", help="Use the cluster at tls:// or tcp://host:port."
        ),
        click.option(
            "--workers-timeout",
            type=click.FloatRange(min=0, min_open=True),
            metavar="SECONDS",
            help="Seconds to wait without a usable worker; 60 by default.",
        ),
        click.option("--tls-ca", type=click.Path(), help="Certificate authority, for tls://."),
        click.option("--tls-cert", type=click.Path(), help="Your certificate, for tls://."),
        click.option("--tls-key", type=click.Path(), help="Its key, for tls://."),
        click.option("--insecure", is_flag=True, help="Allow tcp:// to another computer."),
    )


def with_options(*options: Option) -> Option:
    """Return what gives a command these options, in this order in its help."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate

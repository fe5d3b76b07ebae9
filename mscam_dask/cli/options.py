"""Options of several commands, and extensions of the command line; imports Click only."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

if TYPE_CHECKING:
    from mscam_dask.pipeline.config.toml_document import Document

PATH = click.Path(path_type=Path)
_SCHEMES = tuple(f"{scheme}:" for scheme in ("s3", "gs", "gcs", "az", "abfs", "file"))

Option = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Decorator that adds an option to a command."""


def no_url(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Click callback that refuses a URL as a run directory."""
    if path is not None and path.parts and path.parts[0] in _SCHEMES:
        raise click.BadParameter("a run directory is on a file system. Give a directory.")
    return path


max_bytes_option: Option = click.option(
    "--max-bytes",
    metavar="BYTES",
    help="Largest size in memory of an array of a file, or of a chunk of it, for example '32 GiB'; "
    "default: 8 GiB.",
)
"""Limit of what readers allocate."""


def execution_options(*, in_process: str) -> tuple[Option, ...]:
    """Return the options of the executor; `in_process` is the help text of that option."""
    return (
        click.option(
            "--cluster",
            metavar="TYPE",
            help="Type of the Dask cluster: local, slurm, pbs, sge, lsf, htcondor, oar, slurm-runner, "
            "gateway, kubernetes, ssh or module:Class.",
        ),
        click.option(
            "--cluster-option",
            "cluster_options",
            multiple=True,
            metavar="KEY=VALUE",
            help="Option of the cluster's class, for example queue=long; repeatable.",
        ),
        click.option(
            "--adapt", metavar="MIN:MAX", help="Adapt the number of workers to the tasks."
        ),
        click.option(
            "--lifetime", metavar="DURATION", help="Time after which a worker's job is replaced."
        ),
        click.option(
            "--lifetime-stagger", metavar="DURATION", help="Random difference of lifetimes."
        ),
        click.option(
            "--start-timeout",
            type=click.FloatRange(min=0, min_open=True),
            metavar="SECONDS",
            help="Seconds to wait for the first worker of a cluster that is started.",
        ),
        click.option(
            "--workers",
            type=click.IntRange(min=1),
            help="Number of worker processes; default: one per core.",
        ),
        click.option(
            "--memory-limit", metavar="SIZE", help="Memory limit of a worker, for example '4 GiB'."
        ),
        click.option("--in-process", is_flag=True, help=f"No cluster: {in_process}."),
        click.option(
            "--scheduler",
            metavar="ADDRESS",
            help="Address of a running cluster, tls:// or tcp://host:port.",
        ),
        click.option(
            "--scheduler-file",
            type=click.Path(),
            help="File of a running cluster, from dask scheduler --scheduler-file.",
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
    """Return a decorator that adds options to a command, in this order in its help."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


GROUP = "mscam_dask.experiments"
"""Group of the entry points; each names one `Extension`."""


class Extension(Protocol):
    """Commands that a package adds, and its files and directories in the built-in commands."""

    commands: tuple[click.Command, ...]

    def owns_tables(self, tables: Collection[str]) -> bool:
        """Return whether a TOML file with these tables is for this extension."""

    def owns_directory(self, directory: Path) -> bool:
        """Return whether this extension wrote a directory."""

    def run(self, document: Document, **options: Any) -> int:
        """Run a TOML file with the options of `mscam-dask run`, and return the exit code."""

    def resume(self, directory: Path) -> int:
        """Resume what was interrupted in a directory, and return the exit code."""

    def describe(self, directory: Path) -> None:
        """Print the content of a directory."""

    def write_report(self, directory: Path, output: Path | None) -> Path:
        """Write the report of a directory, and return its file."""


@functools.cache
def installed_extensions() -> tuple[Extension, ...]:
    """Return the extensions of all installed packages."""
    import importlib.metadata

    extensions = []
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            extensions.append(entry.load())
        except (AttributeError, ImportError) as error:
            raise click.ClickException(
                f"the entry point {entry.name} = {entry.value} of {GROUP} cannot be loaded ({error}). "
                "Reinstall the package that declares it."
            ) from error
    return tuple(extensions)


def extension_of_file(tables: Collection[str]) -> Extension | None:
    """Return the extension that a TOML file with these tables is for, None for a pipeline."""
    return next((each for each in installed_extensions() if each.owns_tables(tables)), None)


def extension_of_directory(directory: Path) -> Extension | None:
    """Return the extension that wrote a directory, None when no extension did."""
    return next((each for each in installed_extensions() if each.owns_directory(directory)), None)

"""Options of several commands, and extensions of the command line; imports nothing heavy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click
from msgspec import Struct

from mscam_dask.pipeline.config.settings import ExecutionTable, convert, texts_of
from mscam_dask.types.allowed import allowed_text, allowed_values, annotations_of

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


_CHECKED = (
    *("workers", "threads", "memory_limit", "lifetime", "lifetime_stagger"),
    *("start_timeout", "workers_timeout", "scheduler"),
)
_FILES = ("scheduler_file", "tls_ca", "tls_cert", "tls_key")


class _Value(click.ParamType):
    """Value of a key of a table of settings, with the check of the settings."""

    name = "value"

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            return convert(value, self._annotation, strict=False)
        except ValueError:
            self.fail(f"{value!r}; allowed is {allowed_text(self._annotation, value)}")


def key_option(table: type[Struct], key: str, *names: str, **attributes: Any) -> Option:
    """Return the option of a key of a table of settings, with its text, and its check unless repeatable."""
    annotation, text = annotations_of(table)[key], texts_of(table)[key]
    if "multiple" in attributes:
        text += " Repeatable."
    elif "is_flag" not in attributes:
        attributes = {"type": _Value(annotation), **attributes}
        if "metavar" not in attributes:
            text += f" [{allowed_values(annotation)}]"
    flags = names or (f"--{key.replace('_', '-')}",)
    return click.option(*flags, key, help=text.replace("`", ""), **attributes)


def execution_options() -> tuple[Option, ...]:
    """Return the options of the executor: keys of [execution], and --insecure."""
    many = {"multiple": True, "metavar": "KEY=VALUE"}
    return (
        key_option(ExecutionTable, "cluster"),
        key_option(ExecutionTable, "cluster_options", "--cluster-option", **many),
        key_option(ExecutionTable, "adapt", type=str, metavar="MIN:MAX"),
        key_option(ExecutionTable, "in_process", is_flag=True),
        *(key_option(ExecutionTable, key) for key in _CHECKED),
        *(key_option(ExecutionTable, key, metavar="FILE") for key in _FILES),
        click.option("--insecure", is_flag=True, help="Allow tcp:// to another computer."),
    )


def with_options(*options: Option) -> Option:
    """Return a decorator that adds options to a command, in this order in its help."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


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
    """Return the extensions that entry points of installed packages name."""
    import importlib.metadata

    entries = importlib.metadata.entry_points(group="mscam_dask.experiments")
    return tuple(entry.load() for entry in entries)


def extension_of_file(tables: Collection[str]) -> Extension | None:
    """Return the extension that a TOML file with these tables is for, None for a pipeline."""
    return next((each for each in installed_extensions() if each.owns_tables(tables)), None)


def extension_of_directory(directory: Path) -> Extension | None:
    """Return the extension that wrote a directory, None when no extension did."""
    return next((each for each in installed_extensions() if each.owns_directory(directory)), None)

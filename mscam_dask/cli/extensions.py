"""Extensions of the command line, found by entry points."""

from __future__ import annotations

import functools
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

if TYPE_CHECKING:
    from mscam_dask.pipeline.config.toml_document import Document

__all__ = [
    "GROUP",
    "Extension",
    "extension_of_directory",
    "extension_of_file",
    "installed_extensions",
]

GROUP = "mscam_dask.experiments"
"""Group of the entry points; each names one `Extension`."""


class Extension(Protocol):
    """Commands of a package, and its files and directories for the built-in commands.

    Attributes
    ----------
    commands
        Commands that are added to the command line.
    """

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
    """Return the extensions of all installed packages.

    Raises
    ------
    click.ClickException
        When an entry point names an object that cannot be imported.
    """
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

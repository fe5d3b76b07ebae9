"""Options of several commands, and extensions of the command line; imports nothing heavy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from mscam_dask.pipeline.settings import ExecutionTable, extras_of, texts_of
from mscam_dask.types.allowed import allowed_text, allowed_values, annotations_of

PATH = click.Path(path_type=Path)

Option = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Decorator that adds an option to a command."""


def run_directory(text: str) -> Path:
    """Return the path of a run directory; refuse a URL."""
    if "://" in text:
        raise click.BadParameter("a run directory is on a file system. Give a directory.")
    return Path(text)


def _checked(annotation: Any) -> Callable[[str], Any]:
    """Return the click type of a key of settings, which converts and checks as these do."""

    def value(text: str) -> Any:
        try:
            return msgspec.convert(text, annotation, strict=False)
        except ValueError as error:
            allowed = allowed_text(annotation, text)
            raise click.BadParameter(f"{text!r}; allowed is {allowed}") from error

    return value


def key_option(table: type[msgspec.Struct], key: str, *names: str, **attributes: Any) -> Option:
    """Return the option of a key of a table of settings, with its text, and its check unless repeatable."""
    annotation, text = annotations_of(table)[key], texts_of(table)[key]
    if "multiple" in attributes:
        text += " Repeatable."
    elif "is_flag" not in attributes:
        attributes = {"type": _checked(annotation), **attributes}
        if extras_of(annotation).get("path") == "always":
            attributes["metavar"] = "FILE"
        elif "metavar" not in attributes:
            text += f" [{allowed_values(annotation)}]"
    flags = names or (f"--{key.replace('_', '-')}",)
    return click.option(*flags, key, help=text.replace("`", ""), **attributes)


def execution_options() -> tuple[Option, ...]:
    """Return the options of the executor: keys of [execution], and --insecure."""
    others: dict[str, dict[str, Any]] = {
        "cluster_options": {"multiple": True, "metavar": "KEY=VALUE"},
        "adapt": {"type": str, "metavar": "MIN:MAX"},
        "in_process": {"is_flag": True},
    }
    names = {"cluster_options": ("--cluster-option",)}
    return (
        *(
            key_option(ExecutionTable, key, *names.get(key, ()), **others.get(key, {}))
            for key in annotations_of(ExecutionTable)
        ),
        click.option("--insecure", is_flag=True, help="Allow tcp:// to another computer."),
    )


def file_options(output: str) -> tuple[Option, ...]:
    """Return the options of commands that run a file; `output` is the help text of --output."""
    return (
        click.option(
            "--set",
            "assignments",
            multiple=True,
            metavar="TABLE.KEY=VALUE",
            help="A setting, for example cluster.n_clusters=7 or output.root=DIR; repeatable.",
        ),
        click.option("-o", "--output", type=run_directory, metavar="DIR", help=output),
        click.option("--overwrite", is_flag=True, help="Replace the results of an earlier run."),
        click.option(
            "--dry-run", is_flag=True, help="Show the plan and its memory without running."
        ),
    )


def with_options(*options: Option) -> Option:
    """Return a decorator that adds options to a command, in this order in its help."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@functools.cache
def installed_extensions() -> tuple[Any, ...]:
    """Return the extensions that entry points of installed packages name.

    They add commands, and handle their files and directories in the others; that of this package is
    `EXPERIMENTS` in benchmark/commands.py.
    """
    import importlib.metadata

    extensions = []
    for entry in importlib.metadata.entry_points(group="mscam_dask.experiments"):
        try:
            extensions.append(entry.load())
        except (AttributeError, ImportError) as error:
            raise click.ClickException(
                f"the entry point {entry.name} = {entry.value} of {entry.group} cannot be loaded ({error}). "
                "Reinstall the package that declares it."
            ) from error
    return tuple(extensions)


def extension_of_directory(directory: Path) -> Any:
    """Return the extension that wrote a directory, None when no extension did."""
    return next((each for each in installed_extensions() if each.owns_directory(directory)), None)

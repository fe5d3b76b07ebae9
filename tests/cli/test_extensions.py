"""Extensions of the command line are found by their entry points."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result

from mscam_dask.cli.options import GROUP, Extension, installed_extensions
from mscam_dask.pipeline.config.toml_document import Document

Call = Callable[..., Result]


@click.command()
def other() -> None:
    """Do something else."""
    click.echo("something else")


class Other(Extension):
    """An extension for files with [other] and directories with a file `other`."""

    commands = (other,)

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def owns_tables(self, tables: Collection[str]) -> bool:
        return "other" in tables

    def owns_directory(self, directory: Path) -> bool:
        return (directory / "other").is_file()

    def run(self, document: Document, **options: Any) -> int:
        self.calls.append(("run", document.path, options["dry_run"]))
        return 7

    def resume(self, directory: Path) -> int:
        self.calls.append(("resume", directory))
        return 8

    def describe(self, directory: Path) -> None:
        self.calls.append(("describe", directory))

    def write_report(self, directory: Path, output: Path | None) -> Path:
        self.calls.append(("report", directory, output))
        return directory / "other"


EXTENSION = Other()


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Have one entry point of the group, with this value."""

    def declare(value: str) -> None:
        entry_point, real = EntryPoint("other", value, GROUP), entry_points
        monkeypatch.setattr(
            "importlib.metadata.entry_points",
            lambda group: [entry_point] if group == GROUP else real(group=group),
        )
        installed_extensions.cache_clear()

    yield declare
    installed_extensions.cache_clear()


def test_commands_files_and_directories_go_to_the_extension_that_owns_them(
    here: Path, call: Call, entry: Callable[[str], None]
) -> None:
    entry(f"{__name__}:EXTENSION")
    Path("o.toml").write_text("[other]\n")
    Path("out").mkdir()
    Path("out/other").touch()
    assert "something else" in call("other").stdout
    assert "Do something else." in call("--help").stdout
    assert call("run", "o.toml", "--dry-run").exit_code == 7
    assert call("resume", "out").exit_code == 8
    assert call("describe", "out").exit_code == 0
    assert call("report", "out", "-o", "page.html").exit_code == 0
    assert EXTENSION.calls == [
        ("run", Path("o.toml"), True),
        ("resume", Path("out")),
        ("describe", Path("out")),
        ("report", Path("out"), Path("page.html")),
    ]


def test_an_entry_point_that_cannot_be_loaded_is_named(
    here: Path, call: Call, entry: Callable[[str], None]
) -> None:
    entry("mscam_dask.absent:EXTENSION")
    result = call("--help")
    assert result.exit_code == 1
    assert f"mscam_dask.absent:EXTENSION of {GROUP}" in result.stderr
    assert "mscam_dask.absent'" in result.stderr

"""Small data, a pipeline over it, and ways to call the command line."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mscam_dask.cli import main
from tests.synthetic import save_npz, three_subspaces

Call = Callable[..., Result]


def emptied(path: Path) -> Path:
    """Empty directory at a path; one that is there stays the same one, for processes that work in it."""
    path.mkdir(exist_ok=True)
    for item in path.iterdir():
        if item.is_dir() and not item.is_symlink():
            shutil.rmtree(item)
        else:
            item.unlink()
    return path


def kept_or_made(kept: Path, place: Path, make: Callable[[], object]) -> None:
    """Put the directory `place` there as an earlier test made it, or make it and keep a copy.

    A run records the paths of its data, so that a copy is that run only at the same path.
    """
    if not kept.exists():
        make()
        shutil.copytree(place, kept)
    else:
        shutil.copytree(kept, place)


def numbers(screen: str) -> list[list[str]]:
    """Return the numbers of each line of a screen, sorted as text, whatever the words around them."""
    return [sorted(re.findall(r"\d+(?:\.\d+)?", line)) for line in screen.splitlines()]


@pytest.fixture(scope="session")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("copies")


@pytest.fixture
def tmp_path(copies: Path) -> Path:
    """The same path in every test, empty, for `kept_or_made`."""
    return emptied(copies / "here")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with tiny.npz (60 samples, 3 clusters) and tiny.toml."""
    monkeypatch.chdir(tmp_path)
    save_npz(Path("tiny.npz"), three_subspaces())
    Path("tiny.toml").write_text(
        "[data]\nsource = 'tiny.npz'\n[cluster]\nn_clusters = 3\nconstants.auto_settings = false\nmax_iter = 3\n"
        "[report]\nenabled = false\n"
    )
    return tmp_path


@pytest.fixture
def call() -> Call:
    """Call the command line in this process."""

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(main, [str(item) for item in arguments], prog_name="mscam-dask")

    return invoke


@pytest.fixture
def run(here: Path, call: Call, copies: Path) -> Path:
    """A finished run of tiny.toml with a report."""
    with_report = ("--set", "report.enabled=true", "-o", "runs/one")

    def make() -> None:
        assert call("run", "tiny.toml", "--in-process", *with_report).exit_code == 0

    kept_or_made(copies / "run", here / "runs", make)
    return here / "runs" / "one"

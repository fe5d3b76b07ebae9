"""Small data, a pipeline over it, and ways to call the command line."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mscam_dask.cli import main
from tests.pipeline.runs import QUIET, again, write_tiny
from tests.synthetic import save_npz, three_subspaces

Call = Callable[..., Result]


def numbers(screen: str) -> list[list[str]]:
    """Return the numbers of each line of a screen, sorted as text, whatever the words around them."""
    return [sorted(re.findall(r"\d+(?:\.\d+)?", line)) for line in screen.splitlines()]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with tiny.npz (60 samples, 3 clusters) and tiny.toml."""
    monkeypatch.chdir(tmp_path)
    save_npz(Path("tiny.npz"), three_subspaces())
    write_tiny(tmp_path, "[report]\nenabled = false\n")
    return tmp_path


@pytest.fixture
def call() -> Call:
    """Call the command line in this process; it has to end with an exit code, by default 0."""

    def invoke(*arguments: str, code: int = 0) -> Result:
        line = [str(item) for item in arguments]
        result = CliRunner().invoke(main, line, prog_name="mscam-dask")
        assert result.exit_code == code, result.output
        return result

    return invoke


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A finished run of tiny.toml with one other setting, made when it is first asked for; tests change copies."""
    place = tmp_path_factory.mktemp("originals")
    save_npz(place / "tiny.npz", three_subspaces())
    file = write_tiny(place, QUIET)

    def path_of(setting: str) -> Path:
        if not (place / setting).exists():
            again(file, output=place / setting, sets=[setting])
        return place / setting

    return path_of


@pytest.fixture
def run(here: Path, original: Callable[[str], Path]) -> Path:
    """A finished run of tiny.toml with a report."""
    return Path(shutil.copytree(original("report.enabled=true"), here / "runs" / "one"))

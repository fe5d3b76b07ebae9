"""Small data, a pipeline over it, and ways to call the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mscam_dask.cli import main
from tests.synthetic import save_npz, three_subspaces

Call = Callable[..., Result]


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

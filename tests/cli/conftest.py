"""Small data, a pipeline over it, and ways to call the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from mscam_dask.cli import main
from mscam_dask.data.datasets import subspace_mixture

Call = Callable[..., Result]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with tiny.npz (60 samples, 3 clusters) and tiny.toml."""
    monkeypatch.chdir(tmp_path)
    data = subspace_mixture(60, 3, (5, 8), rng=np.random.default_rng(0))
    views = {f"view_{index}": view.read(0, 60) for index, view in enumerate(data.views)}
    np.savez("tiny.npz", allow_pickle=False, labels=np.asarray(data.labels), **views)
    Path("tiny.toml").write_text(
        "[data]\nsource = 'tiny.npz'\n"
        "[cluster]\nn_clusters = 3\nselection = 'none'\nmax_outer_iter = 3\n"
    )
    return tmp_path


@pytest.fixture
def call() -> Call:
    """Call the command line in this process."""

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(main, [str(item) for item in arguments], prog_name="mscam-dask")

    return invoke

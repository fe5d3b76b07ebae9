"""Small data, and pipelines that cluster them in less than a second."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mscam_dask.data.datasets import subspace_mixture


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """60 samples of 3 well separated clusters in two views, with labels."""
    data = subspace_mixture(60, 3, (5, 8), rng=np.random.default_rng(0))
    file = tmp_path / "tiny.npz"
    views = {f"view_{index}": view.read(0, 60) for index, view in enumerate(data.views)}
    np.savez(file, allow_pickle=False, labels=np.asarray(data.labels), **views)
    return file


@pytest.fixture
def pipeline(tmp_path: Path, tiny: Path) -> Callable[[str], Path]:
    """Write a pipeline over the small data; more text follows after [cluster] n_clusters."""

    def write(more: str = "") -> Path:
        file = tmp_path / "tiny.toml"
        file.write_text(
            f"[data]\nsource = '{tiny.name}'\n"
            f"[cluster]\nn_clusters = 3\nselection = 'none'\nmax_outer_iter = 3\n{more}\n"
        )
        return file

    return write

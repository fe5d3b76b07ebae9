"""Small data and experiments over them that take a second or two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mscam_dask.data.datasets import subspace_mixture

Write = Callable[[str], Path]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with tiny.npz (60 samples, 3 clusters) and other.npz (40 samples)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MSCAM_DATA", raising=False)
    for name, n_samples, seed in (("tiny", 60, 0), ("other", 40, 1)):
        data = subspace_mixture(n_samples, 3, (5, 8), rng=np.random.default_rng(seed))
        views = {f"view_{index}": view.read(0, n_samples) for index, view in enumerate(data.views)}
        np.savez(f"{name}.npz", allow_pickle=False, labels=np.asarray(data.labels), **views)
    return tmp_path


@pytest.fixture
def write(here: Path) -> Write:
    """Write an experiment file, run in this process."""

    def written(text: str) -> Path:
        file = here / "experiment.toml"
        file.write_text(f"{text}\n[execution]\nin_process = true\n")
        return file

    return written

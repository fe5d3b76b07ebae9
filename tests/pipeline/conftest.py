"""Small data, and pipelines that cluster them in less than a second."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mscam_dask.pipeline.run import steps
from tests.synthetic import save_npz, three_subspaces


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """60 samples of 3 well separated clusters in two views, with labels."""
    file = tmp_path / "tiny.npz"
    save_npz(file, three_subspaces())
    return file


@pytest.fixture
def pipeline(tmp_path: Path, tiny: Path) -> Callable[[str], Path]:
    """Write a pipeline over the small data; more text follows after [cluster] n_clusters."""

    def write(more: str = "") -> Path:
        file = tmp_path / "tiny.toml"
        file.write_text(
            f"[data]\nsource = '{tiny.name}'\n"
            f"[cluster]\nn_clusters = 3\nconstants.auto_settings = false\nmax_iter = 3\n{more}\n"
        )
        return file

    return write


@pytest.fixture
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work where the small data are: runs go below it."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The fits that were made, by what was handed down to them."""
    made: list[dict[str, Any]] = []
    fit = steps.cluster

    def counted(*arguments: Any, **options: Any) -> Any:
        start = options["start"]
        is_warm = start is not None and start.is_warm
        made.append({**start.arguments, "init_labels": start.init_labels} if is_warm else {})
        return fit(*arguments, **options)

    monkeypatch.setattr(steps, "cluster", counted)
    return made

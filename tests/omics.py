"""AnnData and MuData objects for tests; they are skipped where the packages are missing."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import sparse

_rng = np.random.default_rng(0)
N = 60
KINDS = np.repeat(np.arange(3), N // 3)
IDS = tuple(f"p{number:02d}" for number in range(N))
RNA = np.round(4 * _rng.normal(size=(3, 6)))[KINDS] + np.round(_rng.normal(size=(N, 6)))
PROTEIN = np.round(4 * _rng.normal(size=(3, 5)))[KINDS] + np.round(_rng.normal(size=(N, 5)))


@contextmanager
def writable_text() -> Iterator[None]:
    """Text of pandas as Python objects, which every version of anndata can write; its warnings hidden."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pd.option_context("future.infer_string", False):
            yield


def anndata_of(values: Any, ids: Any = IDS, *, prefix: str = "g") -> Any:
    """An AnnData with ids, names of variables, a sparse layer of squares and two columns in obsm."""
    anndata = pytest.importorskip("anndata", reason="anndata is not installed")
    dense: NDArray[np.float64] = values.toarray() if hasattr(values, "toarray") else values
    with writable_text():
        made = anndata.AnnData(
            values,
            obs=pd.DataFrame(index=pd.Index(ids, dtype=object)),
            var=pd.DataFrame(index=pd.Index([f"{prefix}{i}" for i in range(values.shape[1])])),
        )
        made.layers["squares"] = sparse.csr_matrix(dense**2)
        made.obsm["X_two"] = dense[:, :2].copy()
    return made


def mudata_of(**modalities: Any) -> Any:
    """A MuData of modalities."""
    mudata = pytest.importorskip("mudata", reason="mudata is not installed")
    with writable_text(), mudata.set_options(pull_on_update=False):
        return mudata.MuData(modalities)

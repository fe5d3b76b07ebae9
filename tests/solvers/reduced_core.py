"""What the reduced solver never forms: its self-representation in coordinates of the subspace."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mscam_dask.solvers.admm import AdmmState, ReducedProblem

__all__ = ["self_representation_core"]


def self_representation_core(problem: ReducedProblem, state: AdmmState) -> NDArray[np.float64]:
    """Ĉ (h, h) of Z = H Ĉ Hᵀ, formed."""
    gains = problem.squared_singular_values / (problem.squared_singular_values + problem.alpha)
    left, right = state.core
    return np.asarray(np.diag(gains) + left @ right.T, dtype=np.float64)

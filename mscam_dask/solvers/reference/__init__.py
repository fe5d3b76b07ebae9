"""The published Algorithms 1 (MSCAN) and 2 (MSCAM), dense and literal: the oracle.

Every published slip is a switch of `ReferenceCorrections`; `ReferenceCorrections.printed()` is the text
as it stands. Matrices are the paper's, n × n and formed in full: for small data, for tests and
for reading beside the article (arXiv:1709.03656).
"""

from __future__ import annotations

from mscam_dask.solvers.reference.algorithms import (
    ReferenceIteration,
    ReferenceSolution,
    solve_mscam,
    solve_mscan,
)
from mscam_dask.solvers.reference.options import ReferenceCorrections, ReferenceOptions
from mscam_dask.solvers.reference.steps import (
    ViewState,
    a_step,
    initial_state,
    m_step,
    multipliers,
    p_step,
    view_iteration,
    w_step,
    z_step,
    z_step_mscan,
)

__all__ = [
    "ReferenceCorrections",
    "ReferenceIteration",
    "ReferenceOptions",
    "ReferenceSolution",
    "ViewState",
    "a_step",
    "initial_state",
    "m_step",
    "multipliers",
    "p_step",
    "solve_mscam",
    "solve_mscan",
    "view_iteration",
    "w_step",
    "z_step",
    "z_step_mscan",
]

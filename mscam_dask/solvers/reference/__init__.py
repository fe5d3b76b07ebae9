"""Reference algorithms: Algorithms 1 (MSCAN) and 2 (MSCAM) of the paper with dense matrices.

Every published slip is a switch of `ReferenceCorrections`; `ReferenceCorrections.printed()` follows the
printed text. The n × n matrices of the paper (arXiv:1709.03656) are formed in full, so use this code for
small data and for tests.
"""

from __future__ import annotations

from mscam_dask.solvers.reference.algorithms import (
    ReferenceIteration,
    ReferenceSolution,
    solve_mscam,
    solve_mscan,
)
from mscam_dask.solvers.reference.steps import (
    ReferenceCorrections,
    ReferenceOptions,
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

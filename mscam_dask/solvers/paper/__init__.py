"""The published Algorithms 1 (MSCAN) and 2 (MSCAM), dense and literal: the oracle.

Every published slip is a switch of `PaperCorrections`; `PaperCorrections.printed()` is the text
as it stands. Matrices are the paper's, n × n and formed in full: for small data, for tests and
for reading beside the article (arXiv:1709.03656).
"""

from __future__ import annotations

from mscam_dask.solvers.paper.algorithms import (
    PaperIteration,
    PaperSolution,
    solve_mscam,
    solve_mscan,
)
from mscam_dask.solvers.paper.settings import PaperCorrections, PaperSettings
from mscam_dask.solvers.paper.steps import (
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
    "PaperCorrections",
    "PaperIteration",
    "PaperSettings",
    "PaperSolution",
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

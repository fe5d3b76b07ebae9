"""What a fit warns of when it has ended: clusters that may depend on chance, views left out."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from mscam_dask.data.views.validation import DataIssue
from mscam_dask.errors import ConvergenceWarning, DataWarning
from mscam_dask.types.result import Solution

__all__ = ["warn_duplicate_samples", "warn_excluded_views", "warn_unconverged_spectra"]


def warn_unconverged_spectra(solution: Solution, *, stacklevel: int) -> None:
    """Say so when clusters were cut from eigenvectors that had not converged."""
    rough = [record.iteration for record in solution.history if not record.spectrum_converged]
    if rough:
        warnings.warn(
            f"the graph's eigenvectors did not reach their tolerance in {len(rough)} of "
            f"{len(solution.history)} outer iterations (first: {rough[0]}), so clusters cut from "
            "them may depend on random_state. Fit with another random_state and compare; if the "
            "clusters differ, a larger n_neighbors (a better connected graph) or fewer n_clusters "
            "gives eigenvalues that are easier to tell apart.",
            ConvergenceWarning,
            stacklevel=stacklevel + 1,
        )


def warn_excluded_views(solution: Solution, *, stacklevel: int) -> None:
    """Say so when views had nothing in common with the others."""
    if solution.exclude_views:
        warnings.warn(
            f"view(s) {list(solution.exclude_views)} do not count: samples that are neighbours "
            "there are so in the other views no more often than by chance, and the partition is better "
            "without. Their rows may be in another order, or hold noise. Correct or leave out these views; "
            "exclude_views=[] makes them count.",
            DataWarning,
            stacklevel=stacklevel + 1,
        )


def warn_duplicate_samples(
    issues: Iterable[DataIssue], n_clusters: int, *, stacklevel: int
) -> None:
    """Say so when there are more clusters than samples that differ."""
    for finding in issues:
        n_distinct = finding.total - finding.count
        if finding.kind == "repeated samples" and n_clusters > n_distinct:
            warnings.warn(
                f"{n_clusters} clusters: {finding.message}",
                ConvergenceWarning,
                stacklevel=stacklevel + 1,
            )

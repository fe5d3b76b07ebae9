"""Warnings of a fit about its result and its data."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from mscam_dask.data.views.validation import DataIssue
from mscam_dask.errors import ConvergenceWarning, DataWarning, UnstableClustersWarning
from mscam_dask.types.result import Solution, Structure

__all__ = [
    "warn_duplicate_samples",
    "warn_excluded_views",
    "warn_few_shared_samples",
    "warn_no_structure",
    "warn_unconverged_spectra",
]

_SHOWN = 5


def warn_unconverged_spectra(solution: Solution, *, stacklevel: int) -> None:
    """Warn when clusters were cut from eigenvectors that did not converge."""
    rough = [record.iteration for record in solution.history if not record.spectrum_converged]
    if rough:
        warnings.warn(
            f"The eigenvectors of the graph did not reach their tolerance in {len(rough)} of "
            f"{len(solution.history)} outer iterations (first: {rough[0]}), so the clusters may depend "
            "on random_state. Fit with another random_state and compare; if the clusters differ, raise "
            "n_neighbors or lower n_clusters.",
            ConvergenceWarning,
            stacklevel=stacklevel + 1,
        )


def warn_excluded_views(solution: Solution, *, stacklevel: int) -> None:
    """Warn when views were excluded because their neighbors overlap with those of no other view."""
    if solution.exclude_views:
        warnings.warn(
            f"View(s) {list(solution.exclude_views)} were excluded: their nearest neighbors overlap "
            "with those of the other views no more than by chance, as with noise or rows in another "
            "order, and the partition scores higher without them. Correct or drop these views, or keep "
            "them with exclude_views=[].",
            DataWarning,
            stacklevel=stacklevel + 1,
        )


def warn_few_shared_samples(issues: Iterable[DataIssue], *, stacklevel: int) -> None:
    """Warn when few samples link the views."""
    for issue in issues:
        if issue.kind == "few shared samples":
            warnings.warn(issue.message, DataWarning, stacklevel=stacklevel + 1)


def warn_duplicate_samples(
    issues: Iterable[DataIssue], n_clusters: int, *, stacklevel: int
) -> bool:
    """Warn when there are more clusters than distinct samples, and return whether there are."""
    for issue in issues:
        n_distinct = issue.total - issue.count
        if issue.kind == "repeated samples" and n_clusters > n_distinct:
            warnings.warn(
                f"{n_clusters} clusters: {issue.message}",
                ConvergenceWarning,
                stacklevel=stacklevel + 1,
            )
            return True
    return False


def warn_no_structure(solution: Solution, *, stacklevel: int) -> None:
    """Warn when the data do not support the clusters, or support some of them only."""
    assessment = solution.assessment
    if assessment.structure in (Structure.CLEAR, Structure.TRIVIAL):
        return
    found = f"{assessment.message[:1].upper()}{assessment.message[1:]}."
    if assessment.structure is Structure.PARTLY:
        warnings.warn(
            f"{found} Compare with fewer clusters; cluster_tree_ says which to merge.",
            UnstableClustersWarning,
            stacklevel=stacklevel + 1,
        )
    else:
        warnings.warn(
            f"{found} Check that row i is the same sample in every view, and treat the data as having no "
            "clusters, or other numbers of them.",
            DataWarning,
            stacklevel=stacklevel + 1,
        )

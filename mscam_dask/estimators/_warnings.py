"""Warnings of a fit about its result and its data."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator

from mscam_dask.data.views.validation import DataIssue
from mscam_dask.errors import ConvergenceWarning, DataWarning, UnstableClustersWarning
from mscam_dask.types.result import Solution, Structure


def warn_of_data(issues: Iterable[DataIssue], *, stacklevel: int) -> None:
    """Warn before a fit when few samples link the views, and of features that may be labels."""
    for issue in issues:
        if issue.kind in ("few shared samples", "label columns"):
            warnings.warn(issue.message, DataWarning, stacklevel=stacklevel + 1)


def warn_of_result(
    solution: Solution, issues: Iterable[DataIssue], *, views_selected: bool, stacklevel: int
) -> None:
    """Warn after a fit whose clusters may depend on chance, or that the data do not support."""
    for message, kind in _found(solution, issues, views_selected=views_selected):
        warnings.warn(message, kind, stacklevel=stacklevel + 1)


def _found(
    solution: Solution, issues: Iterable[DataIssue], *, views_selected: bool
) -> Iterator[tuple[str, type[Warning]]]:
    rough = [record.iteration for record in solution.history if not record.spectrum_converged]
    if rough:
        message = (
            f"The eigenvectors of the graph did not reach their tolerance in {len(rough)} of "
            f"{len(solution.history)} outer iterations (first: {rough[0]}), so the clusters may depend "
            "on random_state. Fit with another random_state and compare; if the clusters differ, raise "
            "n_neighbors or lower n_clusters."
        )
        yield message, ConvergenceWarning
    n_clusters = solution.parameters.n_clusters
    for issue in issues:
        if issue.kind == "repeated samples" and n_clusters > issue.total - issue.count:
            yield f"{n_clusters} clusters: {issue.message}", ConvergenceWarning
    if views_selected and solution.exclude_views:
        message = (
            f"View(s) {list(solution.exclude_views)} were excluded: their nearest neighbors overlap "
            "with those of the other views no more than by chance, as with noise or rows in another "
            "order, and the partition scores higher without them. Correct or drop these views, or keep "
            "them with exclude_views=[]."
        )
        yield message, DataWarning
    assessment = solution.assessment
    message = f"{assessment.message[:1].upper()}{assessment.message[1:]}."
    if assessment.structure is Structure.PARTLY:
        advice = "Compare with fewer clusters; cluster_tree_ says which to merge."
        yield f"{message} {advice}", UnstableClustersWarning
    elif assessment.structure is Structure.NONE:
        advice = (
            "Check that row i is the same sample in every view, and treat the data as having no "
            "clusters, or other numbers of them."
        )
        yield f"{message} {advice}", DataWarning

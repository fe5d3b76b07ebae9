"""Warnings of a fit about its result and its data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.presence import present_samples
from mscam_dask.data.views.sources import RowSource
from mscam_dask.data.views.validation import DataIssue
from mscam_dask.errors import ConvergenceWarning, DataWarning, UnstableClustersWarning
from mscam_dask.solvers.row_blocks import row_blocks
from mscam_dask.types.result import Solution, Structure

__all__ = [
    "row_fingerprints",
    "warn_duplicate_samples",
    "warn_excluded_views",
    "warn_few_shared_samples",
    "warn_no_structure",
    "warn_split_duplicates",
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


# Odd, so that groups stay apart when they are added to fingerprints modulo 2**64.
_ODD = np.uint64(0x9E3779B97F4A7C15)


def warn_split_duplicates(
    views: Sequence[RowSource],
    labels: NDArray[np.int64],
    fingerprints_of: Callable[[RowSource], NDArray[np.uint64]],
    *,
    stacklevel: int,
) -> None:
    """Warn when samples that are equal in all views are in different clusters.

    Views are read from the narrowest to the widest, until no such samples are left.
    """
    split: NDArray[np.int64] | None = None  # at first all samples, without an array of them
    groups = np.zeros(0, dtype=np.uint64)
    for view in sorted(views, key=lambda one: one.shape[1]):
        fingerprints, present = fingerprints_of(view), present_samples(view)
        if present is not None:  # absent samples are alike in the view
            fingerprints = present.spread(fingerprints, 0)
        keys = fingerprints if split is None else groups * _ODD + fingerprints[split]
        repeated = _repeated(keys)
        if not repeated.size:
            return
        positions = np.searchsorted(repeated, keys)
        equal = np.flatnonzero(repeated[np.minimum(positions, repeated.size - 1)] == keys)
        split, positions = equal if split is None else split[equal], positions[equal]
        lowest = np.full(repeated.size, np.iinfo(np.int64).max)
        highest = np.full(repeated.size, -1)
        np.minimum.at(lowest, positions, labels[split])
        np.maximum.at(highest, positions, labels[split])
        differ = (lowest != highest)[positions]
        split, groups = split[differ], positions[differ].astype(np.uint64)
        if not split.size:
            return
    assert split is not None, "data have views"
    warnings.warn(
        f"{split.size} samples are in another cluster than a sample that equals them in every view "
        f"(first rows: {split[:_SHOWN].tolist()}). Drop the duplicates, or lower n_clusters: no "
        "feature separates equal samples.",
        DataWarning,
        stacklevel=stacklevel + 1,
    )


def _repeated(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Keys that occur twice or more, ascending; a sixteenth of all keys is sorted at a time."""
    found = []
    for part in range(16):
        low, high = np.uint64(part << 60), np.uint64(((part + 1) << 60) - 1)
        ordered = np.sort(keys[(keys >= low) & (keys <= high)])
        found.append(np.unique(ordered[1:][ordered[1:] == ordered[:-1]]))
    return np.concatenate(found)


def row_fingerprints(view: RowSource) -> NDArray[np.uint64]:
    """Fingerprint (n,) of each row: equal for equal rows, and for others only by rare collisions.

    It is computed from the bits of the values, so values of any magnitude are distinguished.
    """
    rng = np.random.default_rng(0)
    weights = rng.integers(2**63, size=view.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    numbers = []
    for start, stop in row_blocks(*view.shape):
        values = np.ascontiguousarray(view.read(start, stop), dtype=np.float64) + 0.0  # no -0.0
        bits = values.view(np.uint64)
        mixed = (bits ^ (bits >> np.uint64(32))) * _ODD
        mixed ^= mixed >> np.uint64(29)
        numbers.append((mixed * weights).sum(axis=1, dtype=np.uint64))
    return np.concatenate(numbers)

"""What changed between two runs of a pipeline on data that grew in between.

Clusters of the later run are named after those of the earlier one that they share most samples
with, so that cluster 3 stays cluster 3.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from mscam_dask.metrics import matched_labels

__all__ = ["DriftRecord", "drift_between", "moved_text", "renamed_clusters"]


class DriftRecord(Struct, frozen=True, kw_only=True):
    """How the clusters of a run differ from those of the run before.

    Attributes
    ----------
    earlier
        Name of the earlier run directory.
    start
        "warm": from the earlier clusters; "cold": afresh, with the reason in `reason`;
        "unchanged": the earlier clusters as they are, for the same views and settings; samples
        that have other ids by now are new, or moved.
    reason
        Why a run started afresh; empty otherwise.
    warm_runs
        Runs in a row that started from the one before, this one included.
    n_common, n_new, n_gone
        Samples in both runs, in the later only, in the earlier only.
    n_moved
        Common samples in another cluster than before, after matching.
    sizes_before, sizes_after
        Samples of each cluster of either run; 0 where it is not there.
    score_before, score_after
        Label-free scores; None when not finite.
    cluster_names
        Labels of the clusters that the sizes are of.
    """

    earlier: str
    start: str
    reason: str
    warm_runs: int
    cluster_names: tuple[int, ...]
    n_common: int
    n_new: int
    n_gone: int
    n_moved: int
    sizes_before: tuple[int, ...]
    sizes_after: tuple[int, ...]
    score_before: float | None
    score_after: float | None

    @property
    def share_moved(self) -> float:
        """Moved samples over common ones; 0 without common ones."""
        return self.n_moved / self.n_common if self.n_common else 0.0


def renamed_clusters(
    known: NDArray[np.int64], labels: NDArray[np.int64], n_clusters: int
) -> NDArray[np.int64]:
    """The same clusters, named after the earlier ones they match best.

    Parameters
    ----------
    known : (n,) int64
        Earlier cluster of each sample, −1 for new ones.
    labels : (n,) int64
        Clusters 0..c-1.
    n_clusters : int
        c; more where more names may be given.

    Returns
    -------
    (n,) int64
        Of 0..c-1 again: clusters without a counterpart take the names that are left, in order.
    """
    common = known >= 0
    names = np.full(n_clusters, -1, dtype=np.int64)
    if common.any():
        matched = matched_labels(known[common], labels[common])
        names[labels[common]] = np.where(matched < n_clusters, matched, -1)
        counts = np.bincount(names[names >= 0], minlength=n_clusters)
        assert counts.max(initial=0) <= 1, "one cluster, one name"
    free = np.setdiff1d(np.arange(n_clusters), names[names >= 0])
    names[names < 0] = free[: np.count_nonzero(names < 0)]
    return np.asarray(names[labels], dtype=np.int64)


def drift_between(
    known: NDArray[np.int64],
    labels: NDArray[np.int64],
    sizes_before: Mapping[int, int],
) -> dict[str, Any]:
    """Counts of a `DriftRecord`; `labels` have their final names, as those of `sizes_before`."""
    present, sizes = np.unique(labels, return_counts=True)
    sizes_after = dict(zip(present.tolist(), sizes.tolist(), strict=True))
    names = tuple(sorted(sizes_before.keys() | sizes_after.keys()))
    common = known >= 0
    n_common = int(np.count_nonzero(common))
    return {
        "n_common": n_common,
        "n_new": len(labels) - n_common,
        "n_gone": sum(sizes_before.values()) - n_common,
        "n_moved": int(np.count_nonzero(known[common] != labels[common])),
        "cluster_names": names,
        "sizes_before": tuple(sizes_before.get(name, 0) for name in names),
        "sizes_after": tuple(sizes_after.get(name, 0) for name in names),
    }


def moved_text(names: Sequence[str], known: NDArray[np.int64], labels: NDArray[np.int64]) -> bytes:
    """CSV of the samples that changed cluster: sample, before, after."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(("sample", "before", "after"))
    for index in np.flatnonzero((known >= 0) & (known != labels)).tolist():
        writer.writerow((names[index], int(known[index]), int(labels[index])))
    return stream.getvalue().encode()

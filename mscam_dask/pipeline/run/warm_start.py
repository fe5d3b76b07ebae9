"""How a run starts from an earlier one, and what has changed since.

The setting, the clusters and their names are handed down, sample by sample; see
`mscam_dask.engine.warm_start` for what a fit makes of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.results import StoredResult, read_result
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ViewDigest, row_ranges
from mscam_dask.engine.warm_start import UNKNOWN
from mscam_dask.errors import DataError
from mscam_dask.pipeline.config.settings import Settings
from mscam_dask.pipeline.run.drift import DriftRecord, drift_between, moved_text, renamed_clusters
from mscam_dask.pipeline.run.previous_runs import PreviousRun
from mscam_dask.pipeline.run.run_record import DataRecord, FitRecord, RunRecord
from mscam_dask.types.result import Solution
from mscam_dask.types.status import Status

__all__ = ["WarmStart", "drift_of", "last_comparable", "named_as_before", "warm_start_from"]


@dataclass(frozen=True, eq=False)
class WarmStart:
    """A start from an earlier run.

    Attributes
    ----------
    earlier
    known : (n,) int64
        Name of the earlier cluster of each sample, −1 where it was not there.
    arguments : dict
        Of the estimator: the setting handed down, and the clusters, numbered from 0. Empty for a
        start afresh.
    reason : str
        Why the run starts afresh although there is an earlier one; empty otherwise.
    """

    earlier: PreviousRun
    known: NDArray[np.int64]
    arguments: dict[str, Any]
    reason: str = ""

    @property
    def is_warm(self) -> bool:
        """Whether setting and clusters are handed down."""
        return not self.reason


def warm_start_from(
    runs: list[PreviousRun], settings: Settings, data: MultiViewData
) -> WarmStart | None:
    """How the last run with the same method and number of clusters starts this one.

    Returns
    -------
    WarmStart or None
        None when [incremental] is off or there is no such run. A run that cannot be started
        from (too few samples in common, too many in a row) still gives its clusters their names.
    """
    if not settings.incremental.enabled:
        return None
    earlier = last_comparable(runs, settings)
    if earlier is None:
        return None
    try:
        names, labels = earlier.labels()
        result = read_result(earlier.directory.result)
    except DataError as error:
        known = np.full(data.n_samples, UNKNOWN, dtype=np.int64)
        return WarmStart(earlier, known, {}, f"the last run cannot be read: {error}")
    known, reason = _known(data, names, labels, earlier.data)
    common = np.count_nonzero(known != UNKNOWN) / data.n_samples
    drift = earlier.record.drift
    in_a_row = 0 if drift is None else drift.warm_runs
    if not reason and common < settings.incremental.min_overlap:
        reason = f"{common:.0%} of the samples were in the last run"
    if not reason and in_a_row >= settings.incremental.max_warm_runs:
        reason = f"{in_a_row} runs in a row started from the one before"
    return WarmStart(
        earlier,
        known,
        {}
        if reason
        else {
            **_handed_down(earlier.record, result, settings),
            "init_labels": _numbered(known, np.unique(labels)),
        },
        reason,
    )


def last_comparable(runs: list[PreviousRun], settings: Settings) -> PreviousRun | None:
    """Return the first of runs, the last ended first, that one with these settings starts from."""
    if not settings.incremental.enabled:
        return None
    return next((run for run in runs if _is_comparable(run.record, settings)), None)


def _is_comparable(record: RunRecord, settings: Settings) -> bool:
    fit = record.fit
    return (
        fit is not None
        and fit.has_requested_components
        and record.method == settings.cluster.method
        and _asked_count(record) == settings.cluster.n_clusters
    )


def _asked_count(record: RunRecord) -> int | None:
    """Clusters that a run asked for; None where it chose the number, or took a chosen one over."""
    assert record.fit is not None
    asked = ((record.settings or {}).get("cluster") or {}).get("parameters") or {}
    return None if asked.get("n_clusters") == "auto" else record.fit.n_clusters


def _known(
    data: MultiViewData, names: list[str], labels: NDArray[np.int64], then: DataRecord
) -> tuple[NDArray[np.int64], str]:
    """Earlier clusters by sample, and why there are none."""
    known = np.full(data.n_samples, UNKNOWN, dtype=np.int64)
    if tuple(view.name for view in then.views) != data.view_names:
        return known, "the views are not those of the last run"
    if data.sample_ids is not None and then.has_sample_ids:
        place = {name: index for index, name in enumerate(names)}
        for index, sample in enumerate(data.sample_ids):
            if sample in place:
                known[index] = labels[place[sample]]
        return known, ""
    if data.sample_ids is not None or then.has_sample_ids:
        return known, "only one of the two runs has sample ids"
    n_before = len(labels)
    digests = {view.name: view.digest for view in then.views}
    if n_before > data.n_samples or any(
        digest != digests[name] for name, digest in _first_rows(data, n_before)
    ):
        return known, "samples have no ids, and the first rows are not those of the last run"
    known[:n_before] = labels
    return known, ""


def _numbered(known: NDArray[np.int64], names: NDArray[np.int64]) -> NDArray[np.int64]:
    """Clusters as a fit takes them, 0 to c − 1: names stay when clusters vanish, and so have gaps."""
    return np.where(known == UNKNOWN, UNKNOWN, np.searchsorted(names, known)).astype(np.int64)


def _first_rows(data: MultiViewData, n_rows: int) -> Iterator[tuple[str, str]]:
    """Digest of the first rows of each view, as of a view of its own."""
    for view in data.views:
        digest = ViewDigest((n_rows, view.shape[1]))
        for start, stop in row_ranges(view):
            if start < n_rows:
                digest.update(view.read(start, min(stop, n_rows)))
        yield view.name, digest.hexdigest()


def _handed_down(record: RunRecord, result: StoredResult, settings: Settings) -> dict[str, Any]:
    """The setting of a run, and the graph weight at which its path should have begun."""
    assert record.fit is not None
    setting = record.fit.setting
    handed: dict[str, Any] = {
        "scale": setting.scale,
        "alpha": setting.alpha,
        "n_neighbors": setting.n_neighbors,
        "exclude_views": setting.exclude_views,
        "graph_weight": settings.cluster.parameters["graph_weight"],
    }
    if setting.views is not None:
        handed["scale"] = {name: view.scale for name, view in setting.views.items()}
        handed["alpha"] = {name: view.alpha for name, view in setting.views.items()}
    if len(result.history["graph_weight"]):
        by_score = int(np.argmax(result.history["score"].values))
        index = -1 if result.status == Status.CONVERGED.name else by_score
        handed["graph_weight"] = float(result.history["graph_weight"].values[index])
    given = settings.cluster.parameters
    if settings.cluster.n_clusters is None:
        handed |= {"n_clusters": record.fit.n_clusters, "max_clusters": None}
    for name in ("scale", "alpha", "n_neighbors", "exclude_views"):
        if given.get(name) is not None:
            handed[name] = given[name]
    return handed


def named_as_before(start: WarmStart | None, solution: Solution) -> Solution:
    """The solution, its clusters named after those of the run it started from.

    A cluster keeps its name also when there are fewer now, so that names may have gaps.
    """
    if start is None or not (start.known != UNKNOWN).any():
        return solution
    n_clusters = int(max(solution.labels.max(), start.known.max())) + 1
    labels = renamed_clusters(start.known, solution.labels, n_clusters)
    return dataclasses.replace(solution, labels=labels)


def drift_of(
    start: WarmStart | None, solution: Solution, fit: FitRecord, data: MultiViewData
) -> tuple[DriftRecord | None, bytes | None]:
    """What changed since the run that a run started from, and the samples that moved."""
    if start is None:
        return None, None
    before = start.earlier.record
    assert before.fit is not None
    counts = drift_between(start.known, solution.labels, before.fit.sizes)
    warm_runs = 0 if before.drift is None else before.drift.warm_runs
    names = data.sample_ids or [str(index) for index in range(data.n_samples)]
    drift = DriftRecord(
        earlier=start.earlier.name,
        start="warm" if start.is_warm else "cold",
        reason=start.reason,
        warm_runs=warm_runs + 1 if start.is_warm else 0,
        score_before=before.fit.score,
        score_after=fit.score,
        **counts,
    )
    return drift, moved_text(names, start.known, solution.labels)

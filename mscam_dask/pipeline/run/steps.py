"""What steps of a run check, record and note; `mscam_dask.pipeline.run.run` orders them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.results import read_model, read_result
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.validation import ValidationReport, validate
from mscam_dask.errors import (
    ConvergenceWarning,
    DataWarning,
    MemoryPlanWarning,
    UnstableClustersWarning,
)
from mscam_dask.estimators._search_space import excluded_positions, most_clusters
from mscam_dask.estimators.mscam import MSCAM
from mscam_dask.monitor.messages import plural
from mscam_dask.monitor.run_record import (
    AssessmentEntry,
    BatchesEntry,
    DriftRecord,
    FitRecord,
    RefinementEntry,
    SettingEntry,
    ViewSettingsEntry,
)
from mscam_dask.pipeline.config.settings import ClusterTable
from mscam_dask.pipeline.run.sample_tables import FORMATS, has_parquet, sample_table, table_bytes
from mscam_dask.types.result import Solution

_NOTED = (ConvergenceWarning, DataWarning, MemoryPlanWarning, UnstableClustersWarning)


@dataclass
class StepSummary:
    """Text and notes of a step, shown when it ends."""

    text: str = ""
    notes: tuple[str, ...] = ()


def validate_data(data: MultiViewData, table: ClusterTable) -> ValidationReport:
    """Refuse data that cannot be clustered with the settings, before a cluster is started."""
    excluded_positions(table.parameters.get("exclude_views"), data.view_names)
    n_clusters = table.n_clusters
    if n_clusters is None:
        n_clusters = most_clusters(table.parameters["max_clusters"], data.n_samples)
    return validate(data, n_clusters=n_clusters, n_neighbors=table.parameters["n_neighbors"] or 1)


def fit_summary(fit: FitRecord) -> str:
    """Return the summary of the step cluster."""
    clusters = plural(fit.n_clusters, "cluster")
    summary = (
        f"{plural(fit.n_connected_components, 'connected component')} for {clusters}, "
        f"{plural(fit.n_outer_iterations, 'outer iteration')}"
    )
    standing = None if fit.assessment is None else fit.assessment.standing_clusters
    return summary if standing is None else f"{summary}, {len(standing)} of {clusters} separated"


@contextmanager
def warnings_as_notes() -> Iterator[list[str]]:
    """Yield a list that gets our own warnings on leaving; others stay warnings."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        for category in _NOTED:
            warnings.filterwarnings("always", category=category)
        yield notes
    for each in caught:
        if issubclass(each.category, _NOTED):
            notes.append(str(each.message))
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def drift_notes(drift: DriftRecord | None) -> tuple[str, ...]:
    """Return what changed since the previous run, as notes."""
    if drift is None:
        return ()
    how = {
        "warm": f"started from {drift.earlier}",
        "cold": f"cold start ({drift.reason}); clusters are named as in {drift.earlier}",
        "unchanged": f"clusters of {drift.earlier}",
    }[drift.start]
    counts = (
        f"{drift.n_new} new samples, {drift.n_gone} removed, {drift.n_moved} of {drift.n_common}"
    )
    return (f"{how}: {counts} moved to another cluster ({drift.share_moved:.1%})",)


def fit_record(solution: Solution, batches: BatchesEntry | None = None) -> FitRecord:
    """Return the entry of a fit in run.json."""
    parameters, assessment = solution.parameters, solution.assessment
    by_view = parameters.view_settings is not None
    selected = {
        each.view: {"agreement": float(each.agreement), "margin_se": float(each.ahead)}
        for each in solution.selected_view_settings
    }
    views = {
        prepared.view: ViewSettingsEntry(
            scale=chosen.scale, alpha=float(chosen.alpha), **selected.get(prepared.view, {})
        )
        for prepared, chosen in zip(solution.prepared, parameters.view_settings or (), strict=False)
    }
    candidates = msgspec.json.decode(msgspec.json.encode(solution.settings))
    graph = candidates[solution.chosen]["initial_graph"] if solution.chosen >= 0 else "mean"
    counted, learned = solution.n_clusters_selection, solution.refinement
    support = AssessmentEntry(structure=assessment.structure.name, message=assessment.message)
    if (borders := assessment.borders) is not None:
        support = msgspec.structs.replace(
            support,
            standing_clusters=assessment.standing_clusters,
            largest_p_values=tuple(borders.p_values.max(axis=1).tolist()),
        )
    names, sizes = np.unique(solution.labels, return_counts=True)
    return FitRecord(
        status=solution.status.name,
        message=solution.status.message,
        has_requested_components=True,
        n_clusters=parameters.n_clusters,
        n_connected_components=int(solution.n_connected_components),
        n_outer_iterations=len(solution.history),
        score=float(solution.score),
        setting=SettingEntry(
            scale="by view" if by_view else parameters.scale,
            alpha=None if by_view else float(parameters.alpha),
            n_neighbors=int(solution.n_neighbors),
            initial_graph=graph,
            views=views or None,
            exclude_views=solution.exclude_views,
        ),
        n_clusters_curves=None if counted is None else msgspec.to_builtins(counted),
        refinement=None
        if learned is None
        else RefinementEntry(scores=learned.scores, n_accepted=learned.taken),
        candidate_settings=tuple(candidates),
        selected_setting=solution.chosen,
        view_contributions={
            name: float(share) for name, share in solution.view_contributions.items()
        },
        cluster_sizes=tuple(sizes.tolist()),
        cluster_names=tuple(names.tolist()),
        assessment=support,
        batches=batches,
    )


def batches_entry(estimator: MSCAM, batches: NDArray[Any]) -> BatchesEntry:
    """Return the entry of the batches (n,) of a fit in run.json."""
    counts, shares = estimator.cluster_batches(batches), estimator.batch_shares_
    return BatchesEntry(
        names=tuple(map(str, counts.columns)),
        counts=tuple(map(tuple, counts.to_numpy().tolist())),
        shares={view: (one.before, one.after, one.expected) for view, one in shares.items()},
        is_corrected=any(one.before != one.after for one in shares.values()),
    )


def samples_files(result: Path, data: MultiViewData) -> dict[str, bytes]:
    """Return samples.csv, and samples.parquet where pyarrow is installed, of a result store."""
    labels, model = read_result(result).labels, read_model(result)
    assert model is not None, "a run writes one"
    names, of_views = np.unique(labels), model.arrays["view_votes"].T
    votes = {
        view: np.where(column < 0, column, names[column])
        for view, column in zip(model.records["encoders"], of_views, strict=True)
    }
    table = sample_table(data.sample_ids, labels, model.arrays["membership"], names, votes)
    suffixes = FORMATS if has_parquet() else (".csv",)
    return {f"samples{suffix}": table_bytes(table, suffix) for suffix in suffixes}

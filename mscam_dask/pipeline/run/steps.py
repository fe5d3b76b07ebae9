"""What each step of a pipeline does; the order is `mscam_dask.pipeline.run.running`'s."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.validation import ValidationReport, validate
from mscam_dask.engine.checkpoint import CheckpointStore
from mscam_dask.engine.fit import Observer
from mscam_dask.errors import ConvergenceWarning, DataWarning
from mscam_dask.estimators import MSCAM, MSCAN
from mscam_dask.metrics import score_partition
from mscam_dask.monitor.messages import plural
from mscam_dask.pipeline.config.settings import ClusterTable
from mscam_dask.pipeline.run.drift import DriftRecord
from mscam_dask.pipeline.run.run_record import (
    FitRecord,
    RefinementEntry,
    SettingEntry,
    ViewSettingsEntry,
)
from mscam_dask.types.events import CandidateSettings, RefinementFinished, ViewSettingsSelected
from mscam_dask.types.parameters import ViewSettings
from mscam_dask.types.result import Solution
from mscam_dask.types.search_space import Fixed, most_clusters

__all__ = [
    "StepSummary",
    "cluster",
    "drift_notes",
    "evaluate",
    "findings_summary",
    "fit_record",
    "fit_summary",
    "labels_text",
    "validate_data",
]

_NOTED = (ConvergenceWarning, DataWarning)

_SCORES = (
    "accuracy",
    "normalized_mutual_information",
    "adjusted_rand_index",
    "purity",
    "pairwise_f_score",
)


@dataclass
class StepSummary:
    """What a step says when it ends."""

    summary: str = ""
    notes: tuple[str, ...] = ()


def validate_data(data: MultiViewData, table: ClusterTable) -> ValidationReport:
    """Refuse data that cannot be clustered as asked, before a cluster is started for them."""
    Fixed(exclude_views=table.parameters.get("exclude_views")).excluded_positions(data.view_names)
    given = table.n_clusters
    n_clusters = (
        most_clusters(table.parameters["max_clusters"], data.n_samples) if given is None else given
    )
    return validate(data, n_clusters=n_clusters, n_neighbors=table.n_neighbors or 1)


def findings_summary(n_findings: int) -> str:
    """Say how validation went."""
    if not n_findings:
        return "finite, consistent, nothing odd"
    return f"usable, {n_findings} finding{'s' if n_findings > 1 else ''}"


def fit_summary(fit: FitRecord) -> str:
    """Say how clustering went."""
    return (
        f"{plural(fit.n_connected_components, 'connected component')} for "
        f"{plural(fit.n_clusters, 'cluster')}, {plural(fit.n_outer_iterations, 'outer iteration')}"
    )


def cluster(
    data: MultiViewData,
    table: ClusterTable,
    *,
    client: Any,
    n_threads: int | None,
    observers: Sequence[Observer],
    checkpoint_store: CheckpointStore | None = None,
    from_previous_fit: Mapping[str, Any] | None = None,
) -> tuple[Solution, tuple[str, ...]]:
    """Fit the estimator that [cluster] names.

    Parameters
    ----------
    data
        Labels among them are not looked at.
    table
    client
        `distributed.Client` of the cluster that runs the tasks; None for this process.
    n_threads
        Of a fit in this process; None for all cores.
    observers
        Called with each event of the fit.
    checkpointer
        Keeps the state after each outer iteration, and may have one to go on from.
    from_previous_fit
        Arguments of the estimator that an earlier run gives, in place of the table's.

    Returns
    -------
    solution : Solution
    notes : tuple of str
        What the fit warned of.
    """
    estimator_class = MSCAM if table.method == "mscam" else MSCAN
    estimator = estimator_class(
        **{**table.parameters, **(from_previous_fit or {})},
        client=client,
        n_jobs=n_threads,
        callbacks=tuple(observers),
        checkpoint_store=checkpoint_store,
    )
    with _warnings_noted() as notes:
        estimator.fit(data)
    return estimator.solution_, tuple(notes)


@contextmanager
def _warnings_noted() -> Iterator[list[str]]:
    """Take our own warnings as notes; others stay warnings."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        for category in _NOTED:
            warnings.filterwarnings("always", category=category)
        yield notes
    for warning in caught:
        if issubclass(warning.category, _NOTED):
            notes.append(str(warning.message))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


def drift_notes(drift: DriftRecord | None) -> tuple[str, ...]:
    """Say in sentences what changed since the run before."""
    if drift is None:
        return ()
    how = {
        "warm": f"started from {drift.earlier}",
        "cold": f"started afresh ({drift.reason}); clusters are named as in {drift.earlier}",
        "unchanged": f"clusters of {drift.earlier}",
    }[drift.start]
    sentence = (
        f"{how}: {drift.n_new} new samples, {drift.n_gone} gone, {drift.n_moved} of "
        f"{drift.n_common} moved to another cluster ({drift.share_moved:.1%})"
    )
    return (sentence,)


def fit_record(solution: Solution) -> FitRecord:
    """Return what run.json says of a fit."""
    by_view = solution.parameters.view_settings is not None
    names, sizes = np.unique(solution.labels, return_counts=True)
    agreed = {record.view: record for record in solution.agreed}
    return FitRecord(
        status=solution.status.name,
        message=solution.status.message,
        has_requested_components=solution.status.reached,
        n_clusters=solution.parameters.n_clusters,
        n_connected_components=int(solution.n_connected_components),
        n_outer_iterations=len(solution.history),
        score=float(solution.score),
        setting=SettingEntry(
            scale="by view" if by_view else solution.parameters.scale,
            alpha=None if by_view else float(solution.parameters.alpha),
            n_neighbors=int(solution.n_neighbors),
            initial_graph=_first_graph(solution),
            views={
                record.view: _preparation_entry(chosen, agreed.get(record.view))
                for record, chosen in zip(
                    solution.prepared, solution.parameters.view_settings or (), strict=False
                )
            }
            or None,
            exclude_views=solution.exclude_views,
        ),
        n_clusters_curves=None
        if solution.counted is None
        else msgspec.to_builtins(solution.counted),
        refinement=_refinement_entry(solution.learned),
        candidate_settings=tuple(_tried(setting) for setting in solution.settings),
        selected_setting=solution.chosen,
        view_contributions={
            name: float(share) for name, share in solution.view_contributions.items()
        },
        cluster_sizes=tuple(sizes.tolist()),
        cluster_names=tuple(names.tolist()),
    )


def _tried(setting: CandidateSettings) -> dict[str, Any]:
    """A setting as run.json has it, which knows lists alone."""
    lists = {
        "view_settings": [list(one) for one in setting.view_settings],
        "exclude_views": list(setting.exclude_views),
    }
    return {**msgspec.to_builtins(setting), **lists}


def _first_graph(solution: Solution) -> str:
    """What the path began with; the distances where there was none."""
    return solution.settings[solution.chosen].initial_graph if solution.chosen >= 0 else "distances"


def _refinement_entry(learned: RefinementFinished | None) -> RefinementEntry | None:
    if learned is None:
        return None
    return RefinementEntry(scores=learned.scores, n_accepted=learned.taken)


def _preparation_entry(
    chosen: ViewSettings, record: ViewSettingsSelected | None
) -> ViewSettingsEntry:
    return ViewSettingsEntry(
        scale=chosen.scale,
        alpha=float(chosen.alpha),
        agreement=None if record is None else float(record.agreement),
        margin_se=None if record is None else float(record.ahead),
    )


def evaluate(labels_true: NDArray[np.int64], labels_pred: NDArray[np.int64]) -> dict[str, float]:
    """Score the clusters against the labels."""
    scores = score_partition(labels_true, labels_pred)
    return {name: float(getattr(scores, name)) for name in _SCORES}


def labels_text(data: MultiViewData, labels: NDArray[np.int64]) -> bytes:
    """Return labels.csv: a sample's id (its row without ids) and its cluster, in UTF-8."""
    names = data.sample_ids or range(data.n_samples)
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(("sample", "cluster"))
    writer.writerows(zip(names, labels.tolist(), strict=True))
    return stream.getvalue().encode()

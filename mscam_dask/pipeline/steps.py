"""What each step of a pipeline does; the order is `mscam_dask.pipeline.running`'s."""

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

from mscam_dask.data.multiview import MultiViewData
from mscam_dask.data.validation import ValidationReport, validate
from mscam_dask.engine.checkpointing import Checkpointer
from mscam_dask.engine.fit import Observer
from mscam_dask.errors import ConvergenceWarning, DataWarning
from mscam_dask.estimators import MSCAM, MSCAN
from mscam_dask.metrics import score_partition
from mscam_dask.model.candidates import Fixed, most_clusters
from mscam_dask.model.parameters import Preparation
from mscam_dask.model.records import LearningEnded, PreparationRecord, SettingRecord
from mscam_dask.model.solution import Solution
from mscam_dask.monitor.pace import plural
from mscam_dask.pipeline.drift import DriftRecord
from mscam_dask.pipeline.record import FitRecord, LearningEntry, PreparationEntry, SettingEntry
from mscam_dask.pipeline.settings import ClusterTable

__all__ = [
    "Said",
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
class Said:
    """What a step says when it ends."""

    summary: str = ""
    notes: tuple[str, ...] = ()


def validate_data(data: MultiViewData, table: ClusterTable) -> ValidationReport:
    """Refuse data that cannot be clustered as asked, before a cluster is started for them."""
    Fixed(left_out=table.parameters.get("left_out")).positions_left_out(data.view_names)
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
    checkpointer: Checkpointer | None = None,
    handed_down: Mapping[str, Any] | None = None,
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
    handed_down
        Arguments of the estimator that an earlier run gives, in place of the table's.

    Returns
    -------
    solution : Solution
    notes : tuple of str
        What the fit warned of.
    """
    estimator_class = MSCAM if table.method == "mscam" else MSCAN
    estimator = estimator_class(
        **{**table.arguments, **(handed_down or {})},
        client=client,
        n_jobs=n_threads,
        callbacks=tuple(observers),
        checkpointer=checkpointer,
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
    by_view = solution.parameters.preparations is not None
    names, sizes = np.unique(solution.labels, return_counts=True)
    agreed = {record.view: record for record in solution.agreed}
    return FitRecord(
        status=solution.status.name,
        message=solution.status.message,
        reached=solution.status.reached,
        n_clusters=solution.parameters.n_clusters,
        n_connected_components=int(solution.n_connected_components),
        n_outer_iterations=len(solution.history),
        score=float(solution.score),
        setting=SettingEntry(
            scale="by view" if by_view else solution.parameters.scale,
            alpha=None if by_view else float(solution.parameters.alpha),
            n_neighbors=int(solution.n_neighbors),
            first_graph=_first_graph(solution),
            views={
                record.view: _preparation_entry(chosen, agreed.get(record.view))
                for record, chosen in zip(
                    solution.prepared, solution.parameters.preparations or (), strict=False
                )
            }
            or None,
            left_out=solution.left_out,
        ),
        cluster_counts=None if solution.counted is None else msgspec.to_builtins(solution.counted),
        learning=_learning_entry(solution.learned),
        settings_tried=tuple(_tried(setting) for setting in solution.settings),
        setting_taken=solution.chosen,
        view_contributions={
            name: float(share) for name, share in solution.view_contributions.items()
        },
        cluster_sizes=tuple(sizes.tolist()),
        cluster_names=tuple(names.tolist()),
    )


def _tried(setting: SettingRecord) -> dict[str, Any]:
    """A setting as run.json has it, which knows lists alone."""
    lists = {
        "preparations": [list(one) for one in setting.preparations],
        "left_out": list(setting.left_out),
    }
    return {**msgspec.to_builtins(setting), **lists}


def _first_graph(solution: Solution) -> str:
    """What the path began with; the distances where there was none."""
    return solution.settings[solution.chosen].first_graph if solution.chosen >= 0 else "distances"


def _learning_entry(learned: LearningEnded | None) -> LearningEntry | None:
    return None if learned is None else LearningEntry(scores=learned.scores, taken=learned.taken)


def _preparation_entry(chosen: Preparation, record: PreparationRecord | None) -> PreparationEntry:
    return PreparationEntry(
        scale=chosen.scale,
        alpha=float(chosen.alpha),
        agreement=None if record is None else float(record.agreement),
        ahead=None if record is None else float(record.ahead),
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

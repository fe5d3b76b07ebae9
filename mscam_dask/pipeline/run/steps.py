"""Steps of a run: ingest, validate, cluster, evaluate, write; `mscam_dask.pipeline.run.run` orders them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mscam_dask.data.checkpoints import Checkpoint, FileCheckpointStore, ObjectCheckpointStore
from mscam_dask.data.results import read_model, read_result
from mscam_dask.data.store.object_store import Location, as_location
from mscam_dask.data.views.conversion import labeled_samples
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.validation import ValidationReport, validate
from mscam_dask.engine.checkpoint import CheckpointStore
from mscam_dask.engine.session import Observer
from mscam_dask.errors import (
    ConvergenceWarning,
    DataError,
    DataWarning,
    MemoryPlanWarning,
    MscamError,
    UnstableClustersWarning,
)
from mscam_dask.estimators._search_space import excluded_positions, most_clusters
from mscam_dask.estimators.mscam import MSCAM
from mscam_dask.metrics import score_partition
from mscam_dask.monitor.events import Event, StepFinished, StepStarted
from mscam_dask.monitor.messages import plural
from mscam_dask.monitor.run_record import (
    AssessmentEntry,
    BatchesEntry,
    DriftRecord,
    FitRecord,
    RefinementEntry,
    SettingEntry,
    SourceRecord,
    ViewSettingsEntry,
)
from mscam_dask.pipeline.config.settings import ClusterTable, Settings
from mscam_dask.pipeline.run.open_data import (
    NAME_DIGITS,
    OpenData,
    changed_data,
    data_fingerprint,
    fit_fingerprint,
    open_again,
    open_data,
    retry_if_replaced,
    run_fingerprint,
    source_records,
    stamps_of,
)
from mscam_dask.pipeline.run.previous_runs import PreviousRun, WarmStart, link_tree, reusable_store
from mscam_dask.pipeline.run.run_directory import RunDirectory
from mscam_dask.pipeline.run.sample_tables import FORMATS, has_parquet, sample_table, table_bytes
from mscam_dask.types.events import CandidateSettings, RefinementFinished, ViewSettingsSelected
from mscam_dask.types.parameters import ViewSettings
from mscam_dask.types.result import Assessment, Solution

_NOTED = (ConvergenceWarning, DataWarning, MemoryPlanWarning, UnstableClustersWarning)

_SCORES = (
    "accuracy",
    "normalized_mutual_information",
    "adjusted_rand_index",
    "purity",
    "pairwise_f_score",
)


@dataclass
class StepSummary:
    """Text and notes of a step, shown when it ends."""

    text: str = ""
    notes: tuple[str, ...] = ()


def last_step(
    name: str,
    tell: Callable[[Event], None],
    work: Callable[[], str],
    *,
    failed: str,
    note: Callable[[Exception], str],
) -> None:
    """Run a step after the results, which are complete whether or not it works."""
    started = time.perf_counter()
    tell(StepStarted(step=name))
    notes: tuple[str, ...] = ()
    try:
        summary = work()
    except (MscamError, OSError) as error:
        summary, notes = failed, (f"The results are complete, but {note(error)}",)
    seconds = time.perf_counter() - started
    tell(StepFinished(step=name, summary=summary, notes=notes, seconds=seconds))


def ingest_data(
    settings: Settings,
    output: Path,
    runs: Sequence[PreviousRun],
    *,
    run: str | None,
    is_resumed: bool,
) -> tuple[OpenData, tuple[SourceRecord, ...], str]:
    """Open the data of a run, or reuse those of a previous one; with their sources and fingerprint."""
    table = settings.data
    stamps = stamps_of(table)
    sources = source_records(table)
    fingerprint = retry_if_replaced(lambda: data_fingerprint(table))
    if run is not None and run != run_fingerprint(settings, fingerprint):
        raise _changed(sources, is_resumed=is_resumed)
    earlier = reusable_store(list(runs), fingerprint)
    if earlier is not None:
        link_tree(earlier.directory.data, output)
        return open_again(table, output, earlier.data), sources, fingerprint
    opened = open_data(table, output)
    is_same = (
        stamps_of(table) == stamps if opened.is_new else data_fingerprint(table) == fingerprint
    )
    if not is_same:
        raise _changed(sources, is_resumed=is_resumed)
    return opened, sources, fingerprint


def _changed(sources: Sequence[SourceRecord], *, is_resumed: bool) -> MscamError:
    names = ", ".join(item.source for item in sources)
    if not is_resumed:
        return changed_data(names)
    return DataError(
        f"{names} changed since the run was started. Restore the old data, or start a new run."
    )


def validate_data(data: MultiViewData, table: ClusterTable) -> ValidationReport:
    """Refuse data that cannot be clustered with the settings, before a cluster is started."""
    excluded_positions(table.parameters.get("exclude_views"), data.view_names)
    n_clusters = table.n_clusters
    if n_clusters is None:
        n_clusters = most_clusters(table.parameters["max_clusters"], data.n_samples)
    return validate(data, n_clusters=n_clusters, n_neighbors=table.n_neighbors or 1)


def validation_summary(n_issues: int) -> str:
    """Return the summary of the step validate."""
    return f"OK, {plural(n_issues, 'data warning')}" if n_issues else "OK"


def fit_summary(fit: FitRecord) -> str:
    """Return the summary of the step cluster."""
    standing = None if fit.assessment is None else fit.assessment.standing_clusters
    separated = (
        ""
        if standing is None
        else f", {len(standing)} of {plural(fit.n_clusters, 'cluster')} separated"
    )
    return (
        f"{plural(fit.n_connected_components, 'connected component')} for "
        f"{plural(fit.n_clusters, 'cluster')}, {plural(fit.n_outer_iterations, 'outer iteration')}"
        f"{separated}"
    )


def cluster(  # noqa: PLR0913 - data, settings and targets of a fit
    data: MultiViewData,
    table: ClusterTable,
    *,
    client: Any,
    n_threads: int | None,
    observers: Sequence[Observer],
    checkpoint_store: CheckpointStore | None = None,
    start: WarmStart | None = None,
    results_directory: Path | None = None,
    batches: NDArray[Any] | None = None,
    partial_labels: NDArray[Any] | None = None,
) -> tuple[MSCAM, tuple[str, ...]]:
    """Fit the estimator that [cluster] names."""
    estimator = table.estimator(
        **(start.arguments if start else {}),
        client=client,
        n_jobs=n_threads,
        callbacks=tuple(observers),
        checkpoint_store=checkpoint_store,
    )
    estimator._results_directory = results_directory
    with _warnings_noted() as notes:
        estimator.fit(
            data,
            batches=batches,
            partial_labels=partial_labels,
            init_labels=start.init_labels if start else None,
        )
    return estimator, tuple(notes)


@contextmanager
def _warnings_noted() -> Iterator[list[str]]:
    """Collect our own warnings as notes; others stay warnings."""
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
    """Return what changed since the previous run, as notes."""
    if drift is None:
        return ()
    how = {
        "warm": f"started from {drift.earlier}",
        "cold": f"cold start ({drift.reason}); clusters are named as in {drift.earlier}",
        "unchanged": f"clusters of {drift.earlier}",
    }[drift.start]
    sentence = (
        f"{how}: {drift.n_new} new samples, {drift.n_gone} removed, {drift.n_moved} of "
        f"{drift.n_common} moved to another cluster ({drift.share_moved:.1%})"
    )
    return (sentence,)


def fit_record(solution: Solution) -> FitRecord:
    """Return the entry of a fit in run.json."""
    by_view = solution.parameters.view_settings is not None
    names, sizes = np.unique(solution.labels, return_counts=True)
    selected = {record.view: record for record in solution.selected_view_settings}
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
            initial_graph=_initial_graph(solution),
            views={
                record.view: _view_settings_entry(chosen, selected.get(record.view))
                for record, chosen in zip(
                    solution.prepared, solution.parameters.view_settings or (), strict=False
                )
            }
            or None,
            exclude_views=solution.exclude_views,
        ),
        n_clusters_curves=None
        if solution.n_clusters_selection is None
        else msgspec.to_builtins(solution.n_clusters_selection),
        refinement=_refinement_entry(solution.refinement),
        candidate_settings=tuple(_candidate_entry(setting) for setting in solution.settings),
        selected_setting=solution.chosen,
        view_contributions={
            name: float(share) for name, share in solution.view_contributions.items()
        },
        cluster_sizes=tuple(sizes.tolist()),
        cluster_names=tuple(names.tolist()),
        assessment=_assessment_entry(solution.assessment),
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


def _assessment_entry(assessment: Assessment) -> AssessmentEntry:
    borders = assessment.borders
    return AssessmentEntry(
        structure=assessment.structure.name,
        message=assessment.message,
        standing_clusters=None if borders is None else assessment.standing_clusters,
        largest_p_values=None if borders is None else tuple(borders.p_values.max(axis=1).tolist()),
    )


def _candidate_entry(setting: CandidateSettings) -> dict[str, Any]:
    """Return a candidate with lists in place of tuples, as JSON has it."""
    lists = {
        "view_settings": [list(view) for view in setting.view_settings],
        "exclude_views": list(setting.exclude_views),
    }
    return {**msgspec.to_builtins(setting), **lists}


def _initial_graph(solution: Solution) -> str:
    """Return the kind of the initial graph."""
    return solution.settings[solution.chosen].initial_graph if solution.chosen >= 0 else "mean"


def _refinement_entry(learned: RefinementFinished | None) -> RefinementEntry | None:
    if learned is None:
        return None
    return RefinementEntry(scores=learned.scores, n_accepted=learned.taken)


def _view_settings_entry(
    chosen: ViewSettings, record: ViewSettingsSelected | None
) -> ViewSettingsEntry:
    return ViewSettingsEntry(
        scale=chosen.scale,
        alpha=float(chosen.alpha),
        agreement=None if record is None else float(record.agreement),
        margin_se=None if record is None else float(record.ahead),
    )


def evaluate(labels_true: NDArray[np.int64], labels_pred: NDArray[np.int64]) -> dict[str, float]:
    """Score the clusters of the labeled samples against the ground truth."""
    has_label = labeled_samples(labels_true)
    scores = score_partition(labels_true[has_label], labels_pred[has_label])
    return {name: float(getattr(scores, name)) for name in _SCORES}


def labels_text(data: MultiViewData, labels: NDArray[np.int64]) -> bytes:
    """Return labels.csv in UTF-8: the id of each sample (its row without ids) and its cluster."""
    names = data.sample_ids or range(data.n_samples)
    return table_bytes(pd.DataFrame({"sample": names, "cluster": labels}))


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


def place_of(
    settings: Settings, directory: RunDirectory, *, clustering: str, start: str | None
) -> Location:
    """Return the place of the checkpoints of a fit."""
    root = settings.output.checkpoints
    if root is None:
        return directory.checkpoints
    return as_location(root) / f"{settings.name}-{fit_fingerprint(clustering, start)[:NAME_DIGITS]}"


def check_reach(settings: Settings) -> None:
    """Refuse an unreachable place for checkpoints before anything is computed."""
    root = settings.output.checkpoints
    if root is not None:
        _store(as_location(root) / "reach").load()


class RunCheckpoints:
    """Checkpoint store of a run; see `mscam_dask.engine.checkpoint.CheckpointStore`.

    `record_resume` gets the last outer iteration of a loaded checkpoint, and damaged files; signals are
    deferred in the context that `writing` returns.
    """

    def __init__(
        self,
        place: Location,
        record_resume: Callable[[int, tuple[str, ...]], None],
        writing: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.place = place
        self._store = _store(place)
        self._record_resume = record_resume
        self._writing = writing

    def load(self) -> Checkpoint | None:
        """Return the last saved checkpoint; None without one."""
        checkpoint = self._store.load()
        if checkpoint is not None:
            self._record_resume(int(checkpoint.record["iteration"]), self._store.damage)
        return checkpoint

    def save(self, checkpoint: Checkpoint) -> None:
        """Save a checkpoint, which survives the process when this returns."""
        with self._writing():
            self._store.save(checkpoint)

    def clear(self) -> None:
        """Remove every checkpoint."""
        self._store.clear()


def _store(place: Location) -> FileCheckpointStore | ObjectCheckpointStore:
    return FileCheckpointStore(place) if isinstance(place, Path) else ObjectCheckpointStore(place)

"""What run.json says: everything about a run but its arrays."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from mscam_dask.errors import DataError
from mscam_dask.pipeline.run.drift import DriftRecord

__all__ = [
    "RUN_FORMAT",
    "RUN_FORMAT_VERSION",
    "DataRecord",
    "ErrorRecord",
    "FitRecord",
    "RefinementEntry",
    "ResumeEntry",
    "RunRecord",
    "SettingEntry",
    "SourceRecord",
    "ViewEntry",
    "decode_record",
    "encode_record",
]

RUN_FORMAT = "mscam_dask.run"
RUN_FORMAT_VERSION = 1


class ViewEntry(Struct, frozen=True, kw_only=True):
    """One view as it was clustered; `digest` is its `mscam_dask.data.views.sources.ViewDigest`."""

    name: str
    view_type: str
    shape: tuple[int, int]
    dtype: str
    digest: str


class DataRecord(Struct, frozen=True, kw_only=True):
    """What was clustered.

    Attributes
    ----------
    store
        Directory that was read: inside the run directory, or a store that was there before.
    digest
        `MultiViewData.digest`: names, metrics, shapes and values.
    n_classes
        Distinct labels; None without labels.
    notes
        What reading the sources took for what, and what validation found odd.
    """

    store: str
    digest: str
    n_samples: int
    views: tuple[ViewEntry, ...]
    n_classes: int | None
    has_sample_ids: bool
    notes: tuple[str, ...] = ()


class SourceRecord(Struct, frozen=True, kw_only=True):
    """A source as the pipeline named it, with its SHA-256 where it is a single file."""

    source: str
    n_bytes: int | None = None
    sha256: str | None = None


class ViewSettingsEntry(Struct, frozen=True, kw_only=True):
    """Scale and α of one view, and the evidence for them.

    Attributes
    ----------
    scale, alpha
    agreement
        Neighbor overlap with the other views; None where scale and alpha were set by the user.
    margin_se
        Improvement over the default settings in standard errors; 0 where the default was kept.
    """

    scale: str
    alpha: float
    agreement: float | None = None
    margin_se: float | None = None


class SettingEntry(Struct, frozen=True, kw_only=True):
    """What was asked for or, where nothing was, chosen without labels.

    Attributes
    ----------
    scale
        "by view" where views differ.
    alpha
        None where views differ.
    n_neighbors
    views
        Of each view, its scale and alpha, where views differ; else None.
    initial_graph
        "distances" or "distances and views", see `mscam_dask.types.events.CandidateSettings`.
    exclude_views
        Views that did not count.
    """

    scale: str
    alpha: float | None
    n_neighbors: int
    views: dict[str, ViewSettingsEntry] | None = None
    initial_graph: str = "distances"
    exclude_views: tuple[str, ...] = ()


class RefinementEntry(Struct, frozen=True, kw_only=True):
    """Result of the refinement with learned distances.

    Attributes
    ----------
    scores
        Score of the partition of each round.
    n_accepted
        Number of rounds whose partition was accepted: always the first ones.
    """

    scores: tuple[float, ...]
    n_accepted: int


class FitRecord(Struct, frozen=True, kw_only=True):
    """What the clustering gave.

    Attributes
    ----------
    status, message
        Name and sentence of a `mscam_dask.types.status.Status`.
    has_requested_components
        Whether the graph has exactly `n_clusters` connected components.
    score
        Label-free score of the clusters; None when it is not finite.
    setting
        The setting of the fit.
    candidate_settings
        Every setting it was chosen from, with its score.
    selected_setting
        Index of the setting in `candidate_settings`; -1 where nothing was compared.
    cluster_sizes
        Samples of each cluster.
    cluster_names
        Label of each cluster in labels.csv, ascending. A cluster keeps its label from the previous
        run, so labels have gaps where the selected number of clusters has fallen.
    n_clusters_curves
        The `mscam_dask.types.events.NClustersSelected` of a number of clusters that was chosen;
        None when it was given.
    refinement
        Result of the refinement; None without one.
    """

    status: str
    message: str
    has_requested_components: bool
    n_clusters: int
    n_connected_components: int
    n_outer_iterations: int
    score: float | None
    setting: SettingEntry
    candidate_settings: tuple[dict[str, Any], ...]
    selected_setting: int
    view_contributions: dict[str, float]
    cluster_sizes: tuple[int, ...]
    cluster_names: tuple[int, ...]
    n_clusters_curves: dict[str, Any] | None = None
    refinement: RefinementEntry | None = None

    @property
    def sizes(self) -> dict[int, int]:
        """Number of samples of each cluster, by its label in labels.csv."""
        return dict(zip(self.cluster_names, self.cluster_sizes, strict=True))


class ErrorRecord(Struct, frozen=True, kw_only=True):
    """Why a run ended early."""

    type: str
    message: str


class ResumeEntry(Struct, frozen=True, kw_only=True):
    """One continuation of a run.

    Attributes
    ----------
    time
        When it began (UTC).
    state
        In which the run was found; "running" means killed.
    after_iteration
        Outer iterations that were done and not repeated; None when the clustering began again.
    warnings
        Why the result may differ from an undisturbed one, and what was found damaged.
    """

    time: str
    state: str
    after_iteration: int | None = None
    warnings: tuple[str, ...] = ()


class RunRecord(Struct, frozen=True, kw_only=True):
    """Everything about a run but its arrays.

    Attributes
    ----------
    state
        "running" until the last file is written; a run that was killed stays so. All but
        "finished" can be resumed.
    exit_code
        What the command returned; None while it runs.
    seed
        The estimator's random_state.
    executor
        What ran the tasks.
    seconds
        Wall time of each step.
    metrics
        Scores against the labels; None where there were none, or evaluation was off.
    settings
        The pipeline as it was understood: what a continuation goes by.
    resumed
        Continuations, oldest first.
    run_fingerprint, data_fingerprint, clustering_fingerprint
        See `mscam_dask.pipeline.run.fingerprints`.
    started_from
        Name of the run beside this one that the clustering started from or was compared with; empty
        for none, None before that was decided.
    drift
        What changed since that run.
    versions, blas
        Of this process, or of the last that continued the run.
    """

    format: str = RUN_FORMAT
    format_version: int = RUN_FORMAT_VERSION
    state: Literal["running", "finished", "failed", "interrupted"]
    pipeline: str
    method: str
    seed: int | None
    started: str
    ended: str | None = None
    exit_code: int | None = None
    executor: str | None = None
    sources: tuple[SourceRecord, ...] = ()
    data: DataRecord | None = None
    fit: FitRecord | None = None
    metrics: dict[str, float | None] | None = None
    seconds: dict[str, float] = {}
    versions: dict[str, str] = {}
    blas: tuple[dict[str, Any], ...] = ()
    error: ErrorRecord | None = None
    settings: dict[str, Any] | None = None
    run_fingerprint: str | None = None
    data_fingerprint: str | None = None
    clustering_fingerprint: str | None = None
    started_from: str | None = None
    drift: DriftRecord | None = None
    resumed: tuple[ResumeEntry, ...] = ()


def encode_record(record: RunRecord) -> bytes:
    """Return the record as indented JSON; what is not finite becomes null."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def decode_record(content: bytes, where: str) -> RunRecord:
    """Read what `encode_record` wrote.

    Raises
    ------
    DataError
        When it is no run record, or of a newer version.
    """
    try:
        record = msgspec.json.decode(content, type=RunRecord)
    except msgspec.DecodeError as error:
        raise DataError(f"{where} is no record of a run: {error}.") from error
    if record.format != RUN_FORMAT:
        raise DataError(f"{where} is no record of a run (format={record.format!r}).")
    if record.format_version != RUN_FORMAT_VERSION:
        raise DataError(
            f"{where} has format version {record.format_version}; this version reads "
            f"{RUN_FORMAT_VERSION}. Upgrade mscam_dask."
        )
    return record

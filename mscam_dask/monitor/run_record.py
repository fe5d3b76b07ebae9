"""Record of a run (run.json): everything about a run except its arrays, and software versions in it."""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import msgspec
from msgspec import Struct

from mscam_dask import __version__
from mscam_dask.errors import DataError, StoreCorruptError
from mscam_dask.types.result import Structure

__all__ = [
    "RUN_FORMAT",
    "RUN_FORMAT_VERSION",
    "DataRecord",
    "DriftRecord",
    "ErrorRecord",
    "FitRecord",
    "RefinementEntry",
    "ResumeEntry",
    "RunRecord",
    "SettingEntry",
    "SourceRecord",
    "ViewEntry",
    "blas_libraries",
    "decode_record",
    "encode_record",
    "software_versions",
]

RUN_FORMAT = "mscam_dask.run"
RUN_FORMAT_VERSION = 1
_CHECKSUM = "sha256"


class ViewEntry(Struct, frozen=True, kw_only=True):
    """One view as it was clustered; `digest` is its `mscam_dask.data.views.sources.ViewDigest`."""

    name: str
    view_type: str
    shape: tuple[int, int]
    dtype: str
    digest: str


class DataRecord(Struct, frozen=True, kw_only=True):
    """Clustered data of a run.

    Attributes
    ----------
    store
        Name inside the run directory, or path or URL of a store that existed before.
    digest
        `MultiViewData.digest`: names, view types, shapes and values.
    n_classes
        Distinct labels; None without labels.
    notes
        Interpretation of the sources by their readers, and data warnings.
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
    """Settings of a fit, set by the user or selected without labels.

    Attributes
    ----------
    scale
        "by view" where views differ.
    alpha
        None where views differ.
    n_neighbors
    views
        Scale and alpha of each view where views differ; else None.
    initial_graph
        "mean" or "mixed", see `mscam_dask.types.events.CandidateSettings`.
    exclude_views
        Names of the excluded views.
    """

    scale: str
    alpha: float | None
    n_neighbors: int
    views: dict[str, ViewSettingsEntry] | None = None
    initial_graph: str = "mean"
    exclude_views: tuple[str, ...] = ()


class RefinementEntry(Struct, frozen=True, kw_only=True):
    """Result of the refinement.

    Attributes
    ----------
    scores
        Score of the partition of each round.
    n_accepted
        Number of rounds whose partition was accepted: always the first ones.
    """

    scores: tuple[float, ...]
    n_accepted: int


_EARLIER = {"STABLE": "stable clusters", "UNSTABLE": "unstable clusters"}


class AssessmentEntry(Struct, frozen=True, kw_only=True):
    """Support of the data for the clusters.

    Attributes
    ----------
    structure
        Name of a `mscam_dask.types.result.Structure`; STABLE and UNSTABLE in runs of earlier versions.
    message
        Sentence that says why, and which clusters are not separated.
    standing_clusters
        Labels of the clusters that a border separates from each other cluster; None in runs of earlier
        versions and for trivial clusters.
    largest_p_values
        Largest p-value of the borders of each cluster, in the order of `FitRecord.cluster_names`;
        None likewise.
    """

    structure: str
    message: str
    standing_clusters: tuple[int, ...] | None = None
    largest_p_values: tuple[float, ...] | None = None

    @property
    def title(self) -> str:
        """Short text for tables and badges."""
        return _EARLIER.get(self.structure) or Structure[self.structure].value


class BatchesEntry(Struct, frozen=True, kw_only=True):
    """Batches of a fit.

    Attributes
    ----------
    names
        Of the batches, in the order of the columns of `counts`.
    counts
        Samples of each cluster, in the order of `cluster_names`, in each batch.
    shares
        Shares before, after and expected of `mscam_dask.types.result.BatchShares`, by feature view.
    is_corrected
        Whether there were effects, which were removed.
    """

    names: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    shares: dict[str, tuple[float, float, float]]
    is_corrected: bool


class FitRecord(Struct, frozen=True, kw_only=True):
    """Outcome of the fit.

    Attributes
    ----------
    status, message
        Name and sentence of a `mscam_dask.types.result.Status`.
    has_requested_components
        Whether the graph has exactly `n_clusters` connected components.
    score
        Label-free score of the clusters; None when it is not finite.
    setting
        Settings of the fit.
    candidate_settings
        Every candidate, with its score.
    selected_setting
        Index of the setting in `candidate_settings`; -1 where nothing was compared.
    cluster_sizes
        Number of samples of each cluster.
    cluster_names
        Label of each cluster in labels.csv, ascending. A cluster keeps its label from the previous
        run, so labels have gaps where the selected number of clusters has fallen.
    n_clusters_curves
        `mscam_dask.types.events.NClustersSelected` where the number of clusters was selected.
    refinement
        Result of the refinement; None without one.
    assessment
        None in records of earlier versions, for one cluster and for as many clusters as samples.
    batches
        None without batches.
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
    assessment: AssessmentEntry | None = None
    batches: BatchesEntry | None = None

    @property
    def sizes(self) -> dict[int, int]:
        """Number of samples of each cluster, by its label in labels.csv."""
        return dict(zip(self.cluster_names, self.cluster_sizes, strict=True))


class DriftRecord(Struct, frozen=True, kw_only=True):
    """Differences of the clusters of a run from those of the previous run.

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


class ErrorRecord(Struct, frozen=True, kw_only=True):
    """Why a run ended early."""

    type: str
    message: str


class ResumeEntry(Struct, frozen=True, kw_only=True):
    """One resumption of a run.

    Attributes
    ----------
    time
        Start (UTC).
    state
        State of the run before; "running" means killed.
    after_iteration
        Number of outer iterations that were not repeated; None when the fit started again.
    warnings
        Reasons why the result may differ from an undisturbed one, and damaged files.
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
        "running" until the last file is written, and after a kill. All but "finished" can be
        resumed.
    exit_code
        Exit code of the command; None during the run.
    seed
        The estimator's random_state.
    executor
        Description of the executor.
    seconds
        Wall time of each step.
    metrics
        Scores against the ground truth; None without ground truth, or with evaluation off.
    settings
        Settings with all defaults, from which the run is resumed.
    resumed
        Resumptions, oldest first.
    run_fingerprint, data_fingerprint, clustering_fingerprint
        See `mscam_dask.pipeline.run.open_data`.
    started_from
        Name of the previous run that the fit started from or was compared with; empty for none,
        None before that is known.
    drift
        Changes since that run.
    versions, blas
        Software of this process, or of the last that resumed the run.
    number
        Position among the runs of the same pipeline in the same root, by the order in which they
        finished; 0 until the run has finished.
    labels_sha256
        Digest of labels.csv; None before it is written.
    files_sha256
        Digests of the other tables with a row for each sample, by name.
    replaces
        Name of the directory whose run this one takes the place of when it has finished; None
        otherwise, and from then on.
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
    number: int = 0
    labels_sha256: str | None = None
    files_sha256: dict[str, str] = {}
    replaces: str | None = None


def encode_record(record: RunRecord) -> bytes:
    """Return the record as indented JSON with a checksum of its content; NaN becomes null."""
    content = msgspec.json.decode(msgspec.json.encode(record))
    with_checksum = {**content, _CHECKSUM: _checksum(content)}
    return msgspec.json.format(msgspec.json.encode(with_checksum), indent=2) + b"\n"


def _checksum(content: dict[str, Any]) -> str:
    """Return the SHA-256 of a record's values, whatever their order and spacing."""
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()


def decode_record(content: bytes, where: str) -> RunRecord:
    """Read what `encode_record` wrote.

    Raises
    ------
    StoreCorruptError
        When it is a damaged run record.
    DataError
        When it is no run record, or of a newer version.
    """
    try:
        values = msgspec.json.decode(content)
        if not isinstance(values, dict) or values.get("format") != RUN_FORMAT:
            raise DataError(
                f"{where} is not the record of a run: its format is not {RUN_FORMAT!r}."
            )
        version = values.get("format_version")
        if isinstance(version, int) and version > RUN_FORMAT_VERSION:
            raise DataError(
                f"{where} has format version {version}; this version reads {RUN_FORMAT_VERSION}. "
                "Upgrade mscam_dask."
            )
        checksum = values.pop(_CHECKSUM, None)
        if checksum != _checksum(values):
            raise _damaged(where, "its content does not have the recorded checksum")
        return msgspec.convert(values, RunRecord)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        if f'"{RUN_FORMAT}"'.encode() in content:
            raise _damaged(where, str(error)) from error
        raise DataError(f"{where} is not the record of a run: {error}.") from error


def _damaged(where: str, reason: str) -> StoreCorruptError:
    return StoreCorruptError(
        f"{where} is damaged: {reason}. Restore the file from a copy, or run the pipeline again "
        "with --overwrite."
    )


_PACKAGES = ("numpy", "scipy", "scikit-learn", "dask", "distributed", "zarr", "xarray")


def software_versions() -> dict[str, str]:
    """Return the versions of Python, this package and its numerical dependencies."""
    versions = {
        "mscam_dask": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "unknown"
    return versions


def blas_libraries() -> tuple[dict[str, Any], ...]:
    """Return the linear algebra libraries of this process, without their paths.

    A fit limits each to one thread, whatever `num_threads` is.
    """
    from threadpoolctl import threadpool_info

    return tuple(
        {
            key: library.get(key)
            for key in ("user_api", "internal_api", "version", "architecture", "num_threads")
        }
        for library in threadpool_info()
    )

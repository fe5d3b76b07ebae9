"""Record of a run (run.json): everything about a run except its arrays, and software versions in it."""

from __future__ import annotations

import datetime as dt
import hashlib
import platform
from importlib.metadata import version
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec import Struct

from mscam_dask import __version__
from mscam_dask.errors import DataError, StoreCorruptError
from mscam_dask.types.result import Solution, Structure

RUN_FORMAT = "mscam_dask.run"
RUN_FORMAT_VERSION = 1
_CHECKSUM = "sha256"
_PACKAGES = ("numpy", "scipy", "scikit-learn", "dask", "distributed", "zarr", "xarray")


class ViewEntry(Struct, frozen=True, kw_only=True):
    """One view as it was clustered; `digest` is its `mscam_dask.data.views.sources.ViewDigest`."""

    name: str
    view_type: str
    shape: tuple[int, int]
    dtype: str
    digest: str


class DataRecord(Struct, frozen=True, kw_only=True):
    """Clustered data of a run."""

    store: str  # name inside the run directory, or path or URL of a store that existed before
    digest: str  # of names, view types, shapes and values
    n_samples: int
    views: tuple[ViewEntry, ...]
    n_classes: int | None  # None without labels
    has_sample_ids: bool
    notes: tuple[str, ...] = ()  # how readers understood the sources, and data warnings


class SourceRecord(Struct, frozen=True, kw_only=True):
    """A source as the pipeline named it, with its SHA-256 where it is a single file."""

    source: str
    n_bytes: int | None = None
    sha256: str | None = None


class ViewSettingsEntry(Struct, frozen=True, kw_only=True):
    """Scale and α of one view, and the evidence for them."""

    scale: str
    alpha: float
    agreement: float | None = None  # neighbor overlap; None where set by the user
    margin_se: float | None = None  # improvement over the default in standard errors


class SettingEntry(Struct, frozen=True, kw_only=True):
    """Settings of a fit, set by the user or selected without labels."""

    scale: str  # "by view" where views differ
    alpha: float | None  # None where views differ
    n_neighbors: int
    views: dict[str, ViewSettingsEntry] | None = None  # where views differ
    initial_graph: str = "mean"  # see mscam_dask.types.events.CandidateSettings
    exclude_views: tuple[str, ...] = ()


class RefinementEntry(Struct, frozen=True, kw_only=True):
    """Score of the partition of each round of the refinement; the first `n_accepted` were accepted."""

    scores: tuple[float, ...]
    n_accepted: int


class AssessmentEntry(Struct, frozen=True, kw_only=True):
    """Support of the data for the clusters."""

    structure: str  # name of a mscam_dask.types.result.Structure
    message: str
    standing_clusters: tuple[int, ...] | None = None  # separated from each other; None if trivial
    largest_p_values: tuple[float, ...] | None = None  # of each cluster's borders; None likewise

    def __post_init__(self) -> None:
        """Refuse a structure of another version."""
        if self.structure not in Structure.__members__:
            raise ValueError(f"no structure {self.structure!r} in this version")

    @property
    def title(self) -> str:
        """Short text for tables and badges."""
        return Structure[self.structure].value


class BatchesEntry(Struct, frozen=True, kw_only=True):
    """Batches of a fit."""

    names: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]  # samples of each cluster in each batch
    # before, after and expected, by feature view, as in mscam_dask.types.result.BatchShares
    shares: dict[str, tuple[float, float, float]]
    is_corrected: bool  # whether there were effects, which were removed

    @property
    def message(self) -> str:
        """Sentence on the effects of the batches."""
        batches = f"{len(self.names)} batch{'es' if len(self.names) > 1 else ''}"
        if self.is_corrected:
            return f"The effects of {batches} were removed from the feature views."
        return f"No effects of {batches} were found."


class FitRecord(Struct, frozen=True, kw_only=True):
    """Outcome of the fit."""

    status: str  # name of a mscam_dask.types.result.Status
    message: str
    n_clusters: int
    n_connected_components: int
    n_outer_iterations: int
    score: float | None  # without labels; None when not finite
    setting: SettingEntry
    candidate_settings: tuple[dict[str, Any], ...]
    selected_setting: int  # index into these; -1 where nothing was compared
    view_contributions: dict[str, float]
    cluster_sizes: tuple[int, ...]
    cluster_names: tuple[int, ...]  # ascending; with gaps, as clusters keep the previous labels
    n_clusters_curves: dict[str, Any] | None = None  # mscam_dask.types.events.NClustersSelected
    refinement: RefinementEntry | None = None
    assessment: AssessmentEntry | None = None  # None for one cluster, and one for each sample
    batches: BatchesEntry | None = None

    @property
    def sizes(self) -> dict[int, int]:
        """Number of samples of each cluster, by its label in labels.csv."""
        return dict(zip(self.cluster_names, self.cluster_sizes, strict=True))


class DriftRecord(Struct, frozen=True, kw_only=True):
    """Differences of the clusters of a run from those of the previous run.

    It starts "warm" from these, "cold" afresh, or takes them for "unchanged" views and settings.
    """

    earlier: str  # name of that run directory
    start: str
    reason: str  # of a fresh start
    warm_runs: int  # in a row, this one included
    cluster_names: tuple[int, ...]  # of the sizes
    n_common: int
    n_new: int
    n_gone: int
    n_moved: int  # common samples in another cluster, after matching
    sizes_before: tuple[int, ...]  # 0 where a cluster is not there
    sizes_after: tuple[int, ...]

    @property
    def share_moved(self) -> float:
        """Moved samples over common ones; 0 without common ones."""
        return self.n_moved / self.n_common if self.n_common else 0.0


class ErrorRecord(Struct, frozen=True, kw_only=True):
    """Why a run ended early."""

    type: str
    message: str


class ResumeEntry(Struct, frozen=True, kw_only=True):
    """One resumption of a run."""

    time: str  # UTC
    state: str  # before; "running" means killed
    after_iteration: int | None = None  # None when the fit started again
    warnings: tuple[str, ...] = ()  # why the result may differ, and damaged files


class RunRecord(Struct, frozen=True, kw_only=True):
    """Everything about a run but its arrays; it is "running" until its last file is written, and after a kill."""

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
    metrics: dict[str, float | None] | None = None  # scores against the ground truth
    seconds: dict[str, float] = {}  # of each step
    versions: dict[str, str] = {}  # of the process that ran or last resumed it
    blas: tuple[dict[str, Any], ...] = ()
    error: ErrorRecord | None = None
    settings: dict[str, Any] | None = None  # with all defaults; a run is resumed from them
    run_fingerprint: str | None = None
    data_fingerprint: str | None = None
    clustering_fingerprint: str | None = None
    started_from: str | None = None  # previous run; "" for none, None before that is known
    drift: DriftRecord | None = None
    resumed: tuple[ResumeEntry, ...] = ()
    number: int = 0  # among runs of the pipeline in this root, in the order in which they finished
    labels_sha256: str | None = None  # of labels.csv, in records without it in `files_sha256`
    files_sha256: dict[str, str] = {}  # of the tables with a row for each sample
    replaces: str | None = None  # directory whose place this run takes when it has finished


def encode_record(record: RunRecord) -> bytes:
    """Return the record as indented JSON with a checksum of its content; NaN becomes null."""
    content = msgspec.json.decode(msgspec.json.encode(record))
    with_checksum = {**content, _CHECKSUM: _checksum(content)}
    return msgspec.json.format(msgspec.json.encode(with_checksum), indent=2) + b"\n"


def _checksum(content: dict[str, Any]) -> str:
    """Return the SHA-256 of a record's values, whatever their order and spacing."""
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()


def decode_record(content: bytes, where: str) -> RunRecord:
    """Read what `encode_record` wrote; StoreCorruptError if damaged, DataError if it is something else or newer."""
    try:
        values = msgspec.json.decode(content)
        if not isinstance(values, dict) or values.get("format") != RUN_FORMAT:
            raise _foreign(where, f"its format is not {RUN_FORMAT!r}")
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
        raise _foreign(where, str(error)) from error


def _foreign(where: str, reason: str) -> DataError:
    return DataError(
        f"{where} is not the record of a run: {reason}. Restore the file from a copy, or move its "
        "directory away."
    )


def _damaged(where: str, reason: str) -> StoreCorruptError:
    return StoreCorruptError(
        f"{where} is damaged: {reason}. Restore the file from a copy, or run the pipeline again "
        "with --overwrite."
    )


def now() -> str:
    """Return the time (UTC) in the format of records."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


def software_versions() -> dict[str, str]:
    """Return the versions of Python, this package and its numerical dependencies."""
    return {
        "mscam_dask": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{package: version(package) for package in _PACKAGES},
    }


def blas_libraries() -> tuple[dict[str, Any], ...]:
    """Linear algebra libraries of this process, without paths; a fit limits each to one thread."""
    from threadpoolctl import threadpool_info

    keys = ("user_api", "internal_api", "version", "architecture", "num_threads")
    return tuple({key: library.get(key) for key in keys} for library in threadpool_info())


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
    borders = assessment.borders
    support = AssessmentEntry(
        structure=assessment.structure.name,
        message=assessment.message,
        standing_clusters=None if borders is None else assessment.standing_clusters,
        largest_p_values=None if borders is None else tuple(borders.p_values.max(axis=1).tolist()),
    )
    names, sizes = np.unique(solution.labels, return_counts=True)
    return FitRecord(
        status=solution.status.name,
        message=solution.status.message,
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
        view_contributions=dict(solution.view_contributions),
        cluster_sizes=tuple(sizes.tolist()),
        cluster_names=tuple(names.tolist()),
        assessment=support,
        batches=batches,
    )

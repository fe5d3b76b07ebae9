"""What an experiment leaves behind: `experiment.json`, one document for each experiment.

    {
      "format": "mscam_dask.experiment", "format_version": 1,
      "kind": "comparison" | "robustness" | "sensitivity",
      "state": "running" until the last file is written, then "finished",
      "datasets": [...],     what was clustered, with digests
      "methods": [...],      what clustered it, with defaults and grid
      "rows": [...],         mean and standard deviation over runs, by data set, method, protocol
      "curves": [...],       robustness: accuracy over the corrupted share, the paper's beside it
      "heat_maps": [...],    sensitivity: scores over α × λ, and the best label-free choice
      "cells": [...]         every fit, also those that failed, with the reason
    }

Everything a reader needs is in it; no number is anywhere else. Scores keep the names of
`mscam_dask.metrics.PartitionScores`. What is not known is null. docs/experiments.md shows it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from mscam_dask.errors import DataError
from mscam_dask.pipeline.run.run_record import ViewEntry

__all__ = [
    "EXPERIMENT_FORMAT",
    "EXPERIMENT_FORMAT_VERSION",
    "PROTOCOLS",
    "SCORES",
    "CurveEntry",
    "DatasetEntry",
    "ExperimentRecord",
    "HeatMapEntry",
    "Kind",
    "MeanStd",
    "MethodEntry",
    "Outcome",
    "Protocol",
    "RowEntry",
    "TrialEntry",
    "decode_experiment",
    "encode_experiment",
]

EXPERIMENT_FORMAT = "mscam_dask.experiment"
EXPERIMENT_FORMAT_VERSION = 1

Kind = Literal["comparison", "robustness", "sensitivity"]
Protocol = Literal["defaults", "grid"]
Outcome = Literal["ok", "failed", "over time", "over memory", "worker lost"]

PROTOCOLS: dict[Protocol, str] = {
    "defaults": "label-free defaults: one setting for all data, no label seen",
    "grid": "best over the parameter grid, as in the paper: the setting was CHOSEN WITH LABELS",
}

SCORES = ("accuracy", "normalized_mutual_information", "adjusted_rand_index", "purity")
"""Scores of a cell against the labels, each in [0, 1] (ARI: [-0.5, 1])."""


class DatasetEntry(Struct, frozen=True, kw_only=True):
    """What was clustered.

    Attributes
    ----------
    source
        As the pipeline named it.
    digest
        `MultiViewData.digest`, with the labels': names, metrics, shapes and values.
    n_clusters
        Asked for; the number of classes unless the pipeline said otherwise.
    corrupted
        Robustness: the share of samples corrupted in each view.
    note
        What the reader has to know of the data; "" when nothing.
    """

    name: str
    source: str
    digest: str
    n_samples: int
    n_clusters: int
    n_classes: int
    views: tuple[ViewEntry, ...]
    corrupted: float | None = None
    note: str = ""


class MethodEntry(Struct, frozen=True, kw_only=True):
    """What clustered: name in pipelines, title for tables, where it is published."""

    name: str
    title: str
    reference: str
    defaults: dict[str, Any]
    grid: dict[str, tuple[Any, ...]]
    dense: bool


class MeanStd(Struct, frozen=True, kw_only=True):
    """Over runs: mean, and sample standard deviation (n − 1), null for a single run."""

    mean: float | None
    std: float | None


class RowEntry(Struct, frozen=True, kw_only=True):
    """One method on one data set under one protocol.

    Attributes
    ----------
    parameters
        Of the setting that was run.
    n_runs, n_failed
        Runs asked for, and those of them without a result.
    scores
        `SCORES`, "seconds" (of the fit alone) and "peak_memory_bytes", over the runs that ended.
    paper
        What the paper reports for this row: "accuracy", "normalized_mutual_information".
    reasons
        Why runs failed, each once.
    note
        What the reader has to know of the row; "" when nothing.
    """

    dataset: str
    method: str
    protocol: Protocol
    parameters: dict[str, Any]
    n_runs: int
    n_failed: int
    scores: dict[str, MeanStd]
    paper: dict[str, float] = {}
    reasons: tuple[str, ...] = ()
    note: str = ""


class CurveEntry(Struct, frozen=True, kw_only=True):
    """Accuracy of one method over the corrupted share of the samples; lists of equal length.

    Attributes
    ----------
    paper
        The paper's values; null where they are not known to us.
    """

    method: str
    protocol: Protocol
    corrupted: tuple[float, ...]
    mean: tuple[float | None, ...]
    std: tuple[float | None, ...]
    paper: tuple[float | None, ...]


class HeatMapEntry(Struct, frozen=True, kw_only=True):
    """Scores of one data set over α × λ.

    Attributes
    ----------
    alpha, graph_weight
        The axes: rows and columns of every map.
    with_labels
        Score name to map[i][j] at alpha[i], graph_weight[j]; `SCORES`. Empty without labels.
    label_free
        "cross_view_information" (nats), "eigengap", "modularity", "n_connected_components".
    best
        Label-free score name to the position (i, j) where it is largest; for
        "cross_view_information", the score by which `auto_settings=True` selects, this is the choice to take.
    fixed
        The other parameters, the same in every cell.
    """

    dataset: str
    method: str
    alpha: tuple[float, ...]
    graph_weight: tuple[float, ...]
    with_labels: dict[str, tuple[tuple[float | None, ...], ...]]
    label_free: dict[str, tuple[tuple[float | None, ...], ...]]
    best: dict[str, tuple[int, int]]
    fixed: dict[str, Any]


class TrialEntry(Struct, frozen=True, kw_only=True):
    """One fit, as kept in cells/<key>.json.

    Attributes
    ----------
    key
        Digest of everything that determines the result.
    seed
        Of the method; the samples are shuffled by it too when `shuffled`.
    outcome, reason
        "ok", or what went wrong and the message.
    scores
        `SCORES`, and for the cells of a sensitivity experiment the label-free ones.
    n_found
        Clusters in the result.
    seconds, peak_memory_bytes
        Of the fit alone: wall time, and resident memory above that of the process before it.
    limits
        "time_s" and "memory_bytes" that the cell was given; null for none.
    """

    key: str
    dataset: str
    method: str
    seed: int
    shuffled: bool
    parameters: dict[str, Any]
    outcome: Outcome
    reason: str = ""
    scores: dict[str, float | None] = {}
    n_found: int | None = None
    seconds: float | None = None
    peak_memory_bytes: int | None = None
    limits: dict[str, float | None] = {}
    ended: str = ""


class ExperimentRecord(Struct, frozen=True, kw_only=True):
    """The document; see the module.

    Attributes
    ----------
    command
        What makes it again.
    varies
        What differs between runs, in a sentence.
    protocols
        Name to sentence, of the protocols that were run.
    n_reused
        Cells that an earlier start of the same experiment had finished.
    """

    format: str = EXPERIMENT_FORMAT
    format_version: int = EXPERIMENT_FORMAT_VERSION
    kind: Kind
    name: str
    state: Literal["running", "finished", "failed", "interrupted"]
    command: str
    started: str
    ended: str | None = None
    seconds: float | None = None
    seeds: tuple[int, ...] = ()
    varies: str = ""
    protocols: dict[str, str] = {}
    executor: str | None = None
    versions: dict[str, str] = {}
    blas: tuple[dict[str, Any], ...] = ()
    n_reused: int = 0
    notes: tuple[str, ...] = ()
    datasets: tuple[DatasetEntry, ...] = ()
    methods: tuple[MethodEntry, ...] = ()
    rows: tuple[RowEntry, ...] = ()
    curves: tuple[CurveEntry, ...] = ()
    heat_maps: tuple[HeatMapEntry, ...] = ()
    trials: tuple[TrialEntry, ...] = ()


def encode_experiment(record: ExperimentRecord) -> bytes:
    """Return the document as indented JSON; what is not finite becomes null."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def decode_experiment(content: bytes, where: str) -> ExperimentRecord:
    """Read what `encode_experiment` wrote.

    Raises
    ------
    DataError
        When it is no record of an experiment, or of another format version.
    """
    try:
        record = msgspec.json.decode(content, type=ExperimentRecord)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{where} is no record of an experiment: {error}.") from error
    if record.format != EXPERIMENT_FORMAT:
        raise DataError(f"{where} is no record of an experiment (format={record.format!r}).")
    if record.format_version != EXPERIMENT_FORMAT_VERSION:
        raise DataError(
            f"{where} has format version {record.format_version}; this version reads "
            f"{EXPERIMENT_FORMAT_VERSION}. Use the mscam_dask that wrote it, or run it again."
        )
    return record

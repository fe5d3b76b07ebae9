"""Tables with a row for each sample: its cluster, confidence, next best cluster and votes."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.errors import ConfigurationError
from mscam_dask.monitor.report.confidence import next_clusters
from mscam_dask.pipeline.run.run_directory import encoded_id

__all__ = ["FORMATS", "SampleTable", "check_suffix", "has_parquet", "sample_table", "table_bytes"]

FORMATS = (".csv", ".parquet")

_NONE = -1  # no cluster

SampleTable = dict[str, Sequence[Any]]
"""Columns by name, in order: Python values, None where a sample has none."""


def has_parquet() -> bool:
    """Return whether Parquet files can be written here."""
    return find_spec("pyarrow") is not None


def check_suffix(suffix: str) -> None:
    """Refuse a file format of a table that cannot be written here.

    Raises
    ------
    ConfigurationError
    """
    if suffix not in FORMATS:
        raise ConfigurationError(
            f"The output file ends in {suffix!r}; allowed are {' and '.join(FORMATS)}. Choose another "
            "output file (-o)."
        )
    if suffix == ".parquet" and not has_parquet():
        raise ConfigurationError(
            "Parquet files need pyarrow. Install it (pip install 'mscam-dask[parquet]'), or write a "
            ".csv file."
        )


def sample_table(
    sample_ids: Sequence[str] | None,
    labels: NDArray[np.int64],
    membership: NDArray[np.float64] | None,
    cluster_names: NDArray[np.int64],
    view_votes: Mapping[str, NDArray[np.int64]] | None = None,
) -> SampleTable:
    """Return the columns id, label, confidence, next_cluster, and vote_VIEW for each view.

    Parameters
    ----------
    sample_ids
        None for samples that are known by position only; their id is their row.
    labels : (n,) int64
    membership : (n, c)
        None for a solver without memberships; the table then ends after label.
    cluster_names : (c,) int64
        Label of each column of `membership`, ascending.
    view_votes
        Cluster that the neighbors of each sample in a view prefer.
    """
    ids: Sequence[Any] = list(range(len(labels))) if sample_ids is None else list(sample_ids)
    table: SampleTable = {"id": ids, "label": labels.tolist()}
    if membership is None:
        return table
    rows, own = np.arange(len(labels)), np.searchsorted(cluster_names, labels)
    following = np.full(len(labels), _NONE)
    if len(cluster_names) > 1:
        following = cluster_names[next_clusters(membership, own)]
    table["confidence"] = membership[rows, own].tolist()
    table["next_cluster"] = _optional(following)
    for view, votes in (view_votes or {}).items():
        table[f"vote_{view}"] = _optional(votes)
    return table


def _optional(clusters: NDArray[np.int64]) -> list[int | None]:
    return [None if cluster == _NONE else cluster for cluster in clusters.tolist()]


def table_bytes(table: SampleTable, suffix: str) -> bytes:
    """Return a table as the content of a file.

    Parameters
    ----------
    table
    suffix
        One of `FORMATS`. In CSV files, ids and column names are harmless to spreadsheets
        (`mscam_dask.pipeline.run.run_directory.encoded_id`), and confidences have six decimals.

    Raises
    ------
    ConfigurationError
        The suffix is not known, or pyarrow is not installed.
    """
    check_suffix(suffix)
    if suffix == ".csv":
        return _csv(table)
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = io.BytesIO()
    columns = {name: _arrow(name, column) for name, column in table.items()}
    pq.write_table(pa.table(columns), stream)
    return stream.getvalue()


def _arrow(name: str, column: Sequence[Any]) -> Any:
    import pyarrow as pa

    if name == "id":
        return pa.array(column)
    return pa.array(column, type=pa.float64() if name == "confidence" else pa.int64())


def _csv(table: SampleTable) -> bytes:
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(encoded_id, table))
    writer.writerows(zip(*(map(_cell, column) for column in table.values()), strict=True))
    return stream.getvalue().encode()


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6f}"
    return "" if value is None else encoded_id(str(value))

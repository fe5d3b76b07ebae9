"""Tables with a row for each sample: labels.csv, moved.csv, samples.csv and .parquet, predictions."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mscam_dask.data.views.sample_ids import decoded_id, encoded_id
from mscam_dask.errors import ConfigurationError

FORMATS = (".csv", ".parquet")

_NONE = -1  # no cluster
_MAX_ENTRIES = 2**20  # of a block of memberships


def has_parquet() -> bool:
    """Return whether Parquet files can be written here."""
    return find_spec("pyarrow") is not None


def check_suffix(suffix: str) -> None:
    """Refuse a file format of a table that cannot be written here."""
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
    membership: NDArray[np.float64],
    cluster_names: NDArray[np.int64],
    view_votes: Mapping[str, NDArray[np.int64]] | None = None,
) -> pd.DataFrame:
    """Return the columns sample, cluster, confidence, next_cluster, and vote_VIEW for each view.

    `membership` is (n, c), with a column for each of the ascending `cluster_names`.
    """
    rows, own = np.arange(len(labels)), np.searchsorted(cluster_names, labels)
    following = np.full(len(labels), _NONE)
    if len(cluster_names) > 1:
        following = cluster_names[_next_clusters(membership, own)]
    optional = {"next_cluster": following}
    optional |= {f"vote_{view}": votes for view, votes in (view_votes or {}).items()}
    return pd.DataFrame(
        {
            "sample": rows if sample_ids is None else list(sample_ids),
            "cluster": labels,
            "confidence": membership[rows, own],
            **{
                name: pd.arrays.IntegerArray(column.astype(np.int64), column == _NONE)
                for name, column in optional.items()
            },
        }
    )


def _next_clusters(membership: NDArray[np.float64], own: NDArray[np.int64]) -> NDArray[np.int64]:
    """Column (n,) of the largest of at least two memberships (n, c) outside the own column (n,)."""
    found = np.empty(len(own), dtype=np.int64)
    step = max(1, _MAX_ENTRIES // membership.shape[1])
    for start in range(0, len(own), step):
        others = membership[start : start + step].copy()
        np.put_along_axis(others, own[start : start + step, None], -np.inf, axis=1)
        found[start : start + step] = others.argmax(axis=1)
    return found


def table_bytes(table: pd.DataFrame, suffix: str = ".csv") -> bytes:
    """Return a table as the content of a file; CSV files are harmless to spreadsheets and have confidences of six decimals."""
    if suffix == ".csv":
        safe = table.assign(sample=[encoded_id(str(sample)) for sample in table["sample"]])
        safe = safe.rename(columns=encoded_id)
        return str(safe.to_csv(index=False, float_format="%.6f", lineterminator="\n")).encode()
    stream = io.BytesIO()
    table.to_parquet(stream, engine="pyarrow", index=False)
    return stream.getvalue()


def read_clusters(content: bytes) -> tuple[list[str], NDArray[np.int64]]:
    """Return the ids of a CSV table of `table_bytes`, and its columns of clusters, (n, k)."""
    table: Any = pd.read_csv(io.BytesIO(content), dtype=str, na_filter=False, index_col=False)
    if "sample" not in table:
        raise ValueError("no column sample")
    clusters = table.drop(columns="sample").to_numpy().astype(np.int64)
    return [decoded_id(name) for name in table["sample"]], clusters

"""Tables of a report: cluster sizes and separation, contingency table, uncertain samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mscam_dask.monitor.report.figures import BlockMatrix
from mscam_dask.monitor.report.formatting import count, number, percent

__all__ = [
    "Bar",
    "Confidence",
    "Confusion",
    "SampleRow",
    "SeparationRow",
    "TableCell",
    "confusion",
    "next_clusters",
    "sample_confidence",
    "sample_rows",
    "separation_rows",
    "size_bars",
]

_MAX_TABLE = 40
_MAX_BARS = 60
_MAX_TOUCHING = 3  # clusters that are listed beside each cluster


@dataclass(frozen=True)
class TableCell:
    """Cell with a count, a shade from 0 to 9, and a tooltip."""

    text: str
    shade: int
    tip: str
    is_match: bool


@dataclass(frozen=True)
class Confusion:
    """Contingency table of ground truth and clusters.

    Attributes
    ----------
    clusters
        Clusters of the columns.
    rows
        Name of a class, its number of samples, and its cells.
    cut
        Sentence about rows and columns that are not shown; empty if all are shown.
    """

    clusters: tuple[int, ...]
    rows: tuple[tuple[str, str, tuple[TableCell, ...]], ...]
    cut: str


def confusion(
    labels_true: NDArray[np.int64], labels: NDArray[np.int64], names: Sequence[str] | None
) -> Confusion:
    """Count samples by class and cluster, with columns in the order of the best assignment.

    Parameters
    ----------
    labels_true, labels : (n,)
    names
        Names of the classes 0, 1, ..., or None.
    """
    from scipy.optimize import linear_sum_assignment

    classes, truth = np.unique(labels_true, return_inverse=True)
    clusters, codes = np.unique(labels, return_inverse=True)
    shape = (len(classes), len(clusters))
    totals = np.bincount(truth)
    kept_rows, row_of = _largest(totals)
    kept_columns, column_of = _largest(np.bincount(codes))
    rows, columns = row_of[truth], column_of[codes]
    shown = (rows >= 0) & (columns >= 0)
    kept_names = clusters[kept_columns]
    part = np.zeros((len(kept_rows), len(kept_columns)), dtype=np.int64)
    np.add.at(part, (rows[shown], columns[shown]), 1)
    first, second = linear_sum_assignment(-part)
    rest = np.setdiff1d(np.arange(part.shape[1]), second)
    order = np.concatenate((second, rest)).astype(np.int64)
    matched = dict(zip(first.tolist(), second.tolist(), strict=True))
    lines = [
        (
            _class_name(int(classes[row]), names),
            int(totals[row]),
            [(int(kept_names[j]), int(part[index, j]), matched.get(index) == j) for j in order],
        )
        for index, row in enumerate(kept_rows)
    ]
    n_hidden = len(labels) - int(part.sum())
    cut = (
        f"The {len(kept_rows)} largest of {count(shape[0])} classes and the {len(kept_columns)} "
        f"largest of {count(shape[1])} clusters are shown; {count(n_hidden)} samples are in others."
        if part.shape != shape
        else ""
    )
    return Confusion(
        clusters=tuple(int(kept_names[j]) for j in order),
        rows=tuple(
            (
                name,
                count(total),
                tuple(_cell(name, total, *entry, is_match=match) for *entry, match in entries),
            )
            for name, total, entries in lines
        ),
        cut=cut,
    )


def _largest(sizes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of the largest values, ascending, and the rank of each position, or -1."""
    kept = np.sort(np.argsort(-sizes, kind="stable")[:_MAX_TABLE])
    places = np.full(len(sizes), -1, dtype=np.int64)
    places[kept] = np.arange(len(kept))
    return kept, places


def _class_name(value: int, names: Sequence[str] | None) -> str:
    return str(value) if names is None else str(names[value])


def _cell(name: str, total: int, cluster: int, samples: int, *, is_match: bool) -> TableCell:
    share = samples / total
    tip = f"{count(samples)} of {count(total)} samples of class {name} are in cluster {cluster} ({percent(share)})"
    shade = 0 if samples == 0 else max(1, min(9, round(9 * share)))
    return TableCell(count(samples) if samples else "", shade, tip, is_match)


@dataclass(frozen=True)
class SampleRow:
    """Row of the table of the least certain samples.

    Attributes
    ----------
    row
        Row in the data.
    name
        Sample id, or the row.
    cluster, next_cluster
    confidence, in_degree
        Numbers to sort by.
    confidence_text, in_degree_text
    label
        Ground truth, or an empty text.
    point
        Position among the drawn samples; −1 if it is not drawn.
    """

    row: int
    name: str
    cluster: int
    next_cluster: int
    confidence: float
    confidence_text: str
    in_degree: float
    in_degree_text: str
    label: str
    point: int


@dataclass(frozen=True, eq=False, kw_only=True)
class SampleFacts:
    """Attributes of all samples.

    Attributes
    ----------
    labels : (n,)
    in_degree : (n,)
        Total weight of the edges from other samples.
    ids
        n ids, or None.
    labels_true : (n,) or None
    label_names
    """

    labels: NDArray[np.int64]
    in_degree: NDArray[np.float64]
    ids: Sequence[str] | None
    labels_true: NDArray[np.int64] | None
    label_names: Sequence[str] | None

    def name(self, row: int) -> str:
        """Id of a sample, or its row."""
        return str(row) if self.ids is None else self.ids[row]

    def label(self, row: int) -> str:
        """Class of a sample, or an empty text."""
        if self.labels_true is None:
            return ""
        return _class_name(int(self.labels_true[row]), self.label_names)


def sample_rows(
    rows: NDArray[np.int64], confidence: Confidence, facts: SampleFacts, drawn: NDArray[np.int64]
) -> tuple[SampleRow, ...]:
    """Return rows of the table of the least certain samples.

    Parameters
    ----------
    rows : (l,)
        Samples to list, in order.
    confidence, facts
    drawn : (m,)
        Rows of the drawn samples.
    """
    points = {int(row): point for point, row in enumerate(drawn)}
    return tuple(
        SampleRow(
            row=row,
            name=facts.name(row),
            cluster=int(facts.labels[row]),
            next_cluster=int(confidence.next_cluster[row]),
            confidence=round(float(confidence.values[row]), 6),
            confidence_text=f"{confidence.values[row]:.2f}",
            in_degree=round(float(facts.in_degree[row]), 6),
            in_degree_text=number(float(facts.in_degree[row]), 3),
            label=facts.label(row),
            point=points.get(row, -1),
        )
        for row in rows.tolist()
    )


@dataclass(frozen=True)
class Bar:
    """Bar of a cluster: number of samples, length relative to the longest bar, and tooltip."""

    cluster: int
    samples: str
    share: float
    tip: str


def size_bars(labels: NDArray[np.int64]) -> tuple[tuple[Bar, ...], str]:
    """Return bars of the cluster sizes, largest first, and a sentence about those not shown."""
    names, sizes = np.unique(labels, return_counts=True)
    order = np.argsort(-sizes, kind="stable")
    bars = tuple(
        Bar(
            int(names[position]),
            count(int(sizes[position])),
            float(sizes[position] / sizes.max()),
            f"cluster {names[position]}: {count(int(sizes[position]))} samples, "
            f"{percent(sizes[position] / len(labels))} of all",
        )
        for position in order[:_MAX_BARS]
    )
    rest = order[_MAX_BARS:]
    cut = (
        f"The {_MAX_BARS} largest of {count(len(sizes))} clusters; the others have "
        f"{count(int(sizes[rest].min()))} to {count(int(sizes[rest].max()))} samples, "
        f"{count(int(sizes[rest].sum()))} together."
        if len(rest)
        else ""
    )
    return bars, cut


@dataclass(frozen=True)
class SeparationRow:
    """Edges of one cluster to other clusters.

    Attributes
    ----------
    cluster
    samples
    share
        Weight of the edges that leave the cluster, as a share of the weight of all its edges.
    touching
        Clusters with the most weight to this one, and that weight as a share.
    """

    cluster: int
    samples: str
    share: str
    touching: tuple[tuple[int, str], ...]


def separation_rows(matrix: BlockMatrix) -> tuple[SeparationRow, ...]:
    """Return a row for each cluster with edges to others, the largest share first."""
    from scipy.sparse import diags_array

    between = matrix.between
    totals: NDArray[np.float64] = np.asarray(between.sum(axis=1)).ravel()
    off_diagonal = (between - diags_array(between.diagonal())).tocsr()
    off_diagonal.eliminate_zeros()
    leaving: NDArray[np.float64] = np.asarray(off_diagonal.sum(axis=1)).ravel()
    shares = np.divide(leaving, totals, out=np.zeros_like(leaving), where=totals > 0)
    order = [row for row in np.argsort(-shares, kind="stable") if shares[row] > 0]
    rows = []
    for row in order[:_MAX_TABLE]:
        start, stop = off_diagonal.indptr[row : row + 2]
        others, weights = off_diagonal.indices[start:stop], off_diagonal.data[start:stop]
        heaviest = np.argsort(-weights, kind="stable")[:_MAX_TOUCHING]
        rows.append(
            SeparationRow(
                cluster=int(matrix.clusters[row]),
                samples=count(int(matrix.sizes[row])),
                share=percent(float(shares[row]), 2),
                touching=tuple(
                    (
                        int(matrix.clusters[others[at]]),
                        percent(float(weights[at] / totals[row]), 2),
                    )
                    for at in heaviest
                ),
            )
        )
    return tuple(rows)


_MAX_ENTRIES = 2**20  # of a block of memberships


@dataclass(frozen=True, eq=False)
class Confidence:
    """Memberships of the samples in two clusters.

    Attributes
    ----------
    values : (n,)
        Membership in the cluster of the sample.
    next_cluster : (n,) int64
        Cluster of the largest other membership.
    """

    values: NDArray[np.float64]
    next_cluster: NDArray[np.int64]

    def least_certain(self, limit: int) -> NDArray[np.int64]:
        """Rows with the smallest values, smallest first, and ties in the order of rows."""
        return np.argsort(self.values, kind="stable")[:limit]


def sample_confidence(
    membership: NDArray[np.float64] | None, labels: NDArray[np.int64]
) -> Confidence | None:
    """Return the confidence of each sample.

    Parameters
    ----------
    membership : (n, c) or None
        Columns in ascending order of the labels of their clusters.
    labels : (n,)

    Returns
    -------
    Confidence or None
        None without memberships, and with a single cluster.
    """
    if membership is None or membership.shape[1] < 2:
        return None
    names = np.unique(labels)
    if len(names) < membership.shape[1]:
        names = np.arange(membership.shape[1])
    own = np.searchsorted(names, labels)
    values = np.take_along_axis(membership, own[:, None], axis=1)[:, 0]
    return Confidence(values, names[next_clusters(membership, own)])


def next_clusters(membership: NDArray[np.float64], own: NDArray[np.int64]) -> NDArray[np.int64]:
    """Column (n,) of the largest membership of each sample outside its own column.

    Parameters
    ----------
    membership : (n, c)
        c is at least 2.
    own : (n,) int64
    """
    found = np.empty(len(own), dtype=np.int64)
    step = max(1, _MAX_ENTRIES // membership.shape[1])
    for start in range(0, len(own), step):
        others = membership[start : start + step].copy()
        np.put_along_axis(others, own[start : start + step, None], -np.inf, axis=1)
        found[start : start + step] = others.argmax(axis=1)
    return found

"""Tables of a report: agreement with labels, least certain samples, sizes of clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mscam_dask.monitor.report.confidence import Confidence
from mscam_dask.monitor.report.formatting import count, number, percent

__all__ = ["Bar", "Confusion", "SampleRow", "confusion", "sample_rows", "size_bars"]

_LARGEST_TABLE = 40
_LARGEST_BARS = 60


@dataclass(frozen=True)
class TableCell:
    """A count, its shade from 0 to 9, and what its tooltip says."""

    text: str
    shade: int
    tip: str
    is_match: bool


@dataclass(frozen=True)
class Confusion:
    """Labels against clusters.

    Attributes
    ----------
    clusters
        Of the columns.
    rows
        A label's name, its samples, and its cells.
    cut
        What was left out, as a sentence; empty when nothing was.
    """

    clusters: tuple[int, ...]
    rows: tuple[tuple[str, str, tuple[TableCell, ...]], ...]
    cut: str


def confusion(
    labels_true: NDArray[np.int64], labels: NDArray[np.int64], names: Sequence[str] | None
) -> Confusion:
    """Count samples by label and cluster; columns in the order of the best assignment.

    Parameters
    ----------
    labels_true, labels : (n,)
    names
        Of label 0, 1, ..., or None.
    """
    from scipy.optimize import linear_sum_assignment

    classes, truth = np.unique(labels_true, return_inverse=True)
    clusters, found = np.unique(labels, return_inverse=True)
    shape = (len(classes), len(clusters))
    totals = np.bincount(truth)
    kept_rows, row_of = _largest(totals)
    kept_columns, column_of = _largest(np.bincount(found))
    rows, columns = row_of[truth], column_of[found]
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
    exclude_views = len(labels) - int(part.sum())
    cut = (
        f"The {len(kept_rows)} largest of {count(shape[0])} labels and the {len(kept_columns)} "
        f"largest of {count(shape[1])} clusters are shown; {count(exclude_views)} samples are in others."
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
    """Which are the largest, ascending, and the place of each among them: -1 of the others."""
    kept = np.sort(np.argsort(-sizes, kind="stable")[:_LARGEST_TABLE])
    places = np.full(len(sizes), -1, dtype=np.int64)
    places[kept] = np.arange(len(kept))
    return kept, places


def _class_name(value: int, names: Sequence[str] | None) -> str:
    return str(value) if names is None else str(names[value])


def _cell(name: str, total: int, cluster: int, samples: int, *, is_match: bool) -> TableCell:
    share = samples / total
    tip = f"{count(samples)} of {count(total)} samples labelled {name} are in cluster {cluster} ({percent(share)})"
    shade = 0 if samples == 0 else max(1, min(9, round(9 * share)))
    return TableCell(count(samples) if samples else "", shade, tip, is_match)


@dataclass(frozen=True)
class SampleRow:
    """A sample of the table of the least certain.

    Attributes
    ----------
    row
        Its row in the data.
    name
        Its id, or its row.
    cluster, next_cluster
    ratio, incoming
        As numbers, to sort by.
    ratio_text, incoming_text
    label
        Ground truth; empty without.
    point
        Its place among the drawn samples; −1 where it is not drawn.
    """

    row: int
    name: str
    cluster: int
    next_cluster: int
    ratio: float
    ratio_text: str
    incoming: float
    incoming_text: str
    label: str
    point: int


@dataclass(frozen=True, eq=False, kw_only=True)
class SampleFacts:
    """What is known of all samples.

    Attributes
    ----------
    labels : (n,)
    incoming : (n,)
        Weight of the edges that point to a sample.
    ids
        n texts or None.
    labels_true : (n,) or None
    label_names
    """

    labels: NDArray[np.int64]
    incoming: NDArray[np.float64]
    ids: Sequence[str] | None
    labels_true: NDArray[np.int64] | None
    label_names: Sequence[str] | None

    def name(self, row: int) -> str:
        """A sample's id, or its row."""
        return str(row) if self.ids is None else self.ids[row]

    def label(self, row: int) -> str:
        """A sample's label, or nothing."""
        if self.labels_true is None:
            return ""
        return _class_name(int(self.labels_true[row]), self.label_names)


def sample_rows(
    rows: NDArray[np.int64], confidence: Confidence, facts: SampleFacts, drawn: NDArray[np.int64]
) -> tuple[SampleRow, ...]:
    """Return lines of the table.

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
            ratio=round(float(confidence.distance_ratio[row]), 6),
            ratio_text=number(float(confidence.distance_ratio[row]), 3),
            incoming=round(float(facts.incoming[row]), 6),
            incoming_text=number(float(facts.incoming[row]), 3),
            label=facts.label(row),
            point=points.get(row, -1),
        )
        for row in rows.tolist()
    )


@dataclass(frozen=True)
class Bar:
    """One bar: a cluster, its samples, its share of the longest bar and what is said of it."""

    cluster: int
    samples: str
    share: float
    tip: str


def size_bars(labels: NDArray[np.int64]) -> tuple[tuple[Bar, ...], str]:
    """Return bars of cluster sizes, largest first, and what was left out."""
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
        for position in order[:_LARGEST_BARS]
    )
    rest = order[_LARGEST_BARS:]
    cut = (
        f"The {_LARGEST_BARS} largest of {count(len(sizes))} clusters; the others have "
        f"{count(int(sizes[rest].min()))} to {count(int(sizes[rest].max()))} samples, "
        f"{count(int(sizes[rest].sum()))} together."
        if len(rest)
        else ""
    )
    return bars, cut

"""Scores of partitions by the reference graphs of the views, without labels."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.rows import cache_chunks, sampled_view
from mscam_dask.data.views.sources import RowSource
from mscam_dask.engine.blocks import Stage
from mscam_dask.engine.executors.base import Handle
from mscam_dask.engine.views import FactoredView, SVDs, svd_view, view_shape
from mscam_dask.linalg.incomplete import PresentSamples
from mscam_dask.linalg.scaling import BY_ROWS
from mscam_dask.solvers.borders import JointPoints, column_steps
from mscam_dask.solvers.known_labels import n_missed
from mscam_dask.solvers.partition_score import (
    PartitionScore,
    ReferenceGraphs,
    argbest,
    reference_graphs,
    view_agreement,
    view_graph,
    view_scores,
)
from mscam_dask.solvers.ridge_view import (
    MAX_EXACT_GRAM,
    Encoder,
    EqualRowsError,
    classical_scaling,
    project_rows,
    with_loadings,
)
from mscam_dask.solvers.row_blocks import row_blocks
from mscam_dask.solvers.spectral_cut import sampled_rows
from mscam_dask.types.parameters import Scale
from mscam_dask.types.rules import CONSTANTS, SIZES

# Views whose reference graphs are compared; of more views, some of them.
_MAX_COMPARED = 16

# Samples whose values tell the steps of a column, and the most columns of a view with steps.
_N_STEPS = 256
_MAX_STEPS = 1024


def compared_views(names: Sequence[str]) -> tuple[str, ...]:
    """Views whose reference graphs are compared."""
    return tuple(names[index] for index in sampled_rows(len(names), _MAX_COMPARED))


@dataclasses.dataclass(frozen=True)
class BestPartition:
    """Labels of the best partition so far, its score, and the outer iteration that found it."""

    labels: Handle
    partition_score: PartitionScore
    iteration: int

    @property
    def score(self) -> float:
        """Cross-view information of the partition, in nats."""
        return self.partition_score.score


class Scorer:
    """Reference graphs of the views, and what a fit computes from them alone, submitted when first needed."""

    def __init__(
        self,
        stage: Stage,
        data: MultiViewData,
        rows: NDArray[np.int64] | None = None,
        svds: SVDs | None = None,
    ) -> None:
        self._stage = stage
        self._svds = {} if svds is None else svds  # of these rows
        self._views = {
            source.name: source if rows is None else sampled_view(source, rows)
            for source in data.views
        }
        self._row_scale = data.row_scale
        self._is_incomplete = data.is_incomplete
        self._n_neighbors = min(CONSTANTS.validation_neighbors, data.n_samples - 1)
        n_present = [source.shape[0] for source in data.views]
        mean = sum(n_present) / len(n_present)
        self._weights = {view.name: view.shape[0] / mean for view in data.views}
        self._submitted: dict[tuple[object, ...], Handle] = {}

    def _once(self, key: tuple[object, ...], function: Any, *args: Any, **parts: str) -> Handle:
        """Submit a task, or return the handle of the earlier one with this key."""
        if key not in self._submitted:
            self._submitted[key] = self._stage.submit(function, *args, **parts)
        return self._submitted[key]

    def graphs(self, names: Sequence[str]) -> list[Handle]:
        """Return the reference graphs of these views."""
        return [
            self._once(
                ("graphs", name),
                reference_graphs_of_view,
                self._views[name],
                self._n_neighbors,
                self._row_scale(name),
                self._weights[name],
                kind="reference_graphs",
                part=name,
            )
            for name in names
        ]

    def points(self, views: tuple[tuple[str, Scale], ...]) -> Handle:
        """Return the points of these views with these scalings."""
        most = min(SIZES.max_rank, max(1, SIZES.max_joint_rank // len(views)))
        own = [
            self._once(
                (name, scale, most),
                points_of_view,
                self._views[name],
                scale,
                most,
                self._svd(name, scale),
                part=f"{scale}/{name}",
            )
            for name, scale in views
        ]
        graphs = self.graphs([name for name, _ in views]) if self._is_incomplete else None
        return self._once(("points", views), joint_points, own, graphs, kind="points")

    def unit_points(self, names: Sequence[str]) -> Handle:
        """Return the points of these views with rows of unit length."""
        return self.points(tuple((name, self._row_scale(name)) for name in names))

    def _svd(self, name: str, scale: Scale) -> Handle | None:
        """SVD of a view, if it is known and a truncated one would have the same directions."""
        is_exact = min(self._views[name].shape) <= MAX_EXACT_GRAM
        return self._svds.get((name, scale)) if is_exact else None

    def view_agreement(self, names: tuple[str, ...]) -> Handle:
        """Return the agreement of each pair of these views."""
        return self._once(("agreement", names), view_agreement, self.graphs(names))


def best_partition(stage: Stage, partitions: Handle, scores: Handle) -> BestPartition:
    """Gather the scores of some partitions, and return the best one."""
    found = stage.value(scores)
    index = argbest(found)
    return BestPartition(stage.item(partitions, index), found[index], iteration=0)


def reference_graphs_of_view(
    source: RowSource, n_neighbors: int, row_scale: Scale = "unit", weight: float = 1.0
) -> ReferenceGraphs:
    """Read one view and build its reference graphs; `weight` is that of the view in mean scores."""
    source = cache_chunks(source)
    graphs = reference_graphs(
        source.read, view_shape(source), n_neighbors, row_scale=row_scale, dtype=np.float32
    )
    present = source.present
    if present is None and weight == 1.0:
        return graphs
    return dataclasses.replace(graphs, present=present, weight=weight)


@dataclasses.dataclass(frozen=True, slots=True)
class ViewPoints:
    """Principal coordinates (m, r) of the samples of a view, with mean s² of one, and these samples."""

    rows: NDArray[np.float64]
    present: PresentSamples | None
    steps: NDArray[np.float64]  # (q, r) change by one step of a column on a lattice


def points_of_view(
    source: RowSource, scale: Scale, max_rank: int, known: FactoredView | None
) -> ViewPoints:
    """Read one view and compute its first principal coordinates, the same whether its SVD is known or not.

    Rows with negative values keep their length: unit length would move the samples of an elongated
    cluster to two caps, with a valley between them.
    """
    source = cache_chunks(source)
    shape = view_shape(source)
    if shape.view_type != "features":
        rows = classical_scaling(source.read, shape, max_rank)
        return ViewPoints(rows, source.present, np.zeros((0, rows.shape[1])))
    if scale in BY_ROWS:
        blocks = row_blocks(shape.n_samples, shape.n_features)
        if any(source.read(start, stop).min() < 0.0 for start, stop in blocks):
            scale, known = "standard", None
    try:
        found = (known or svd_view(source, scale, max_rank)).view
        found = with_loadings(found, source.read, max_rank)
    except EqualRowsError:
        rows = np.zeros((shape.n_samples, 1))
        return ViewPoints(rows, source.present, np.zeros((0, 1)))
    loadings = np.ascontiguousarray(found.encoder.loadings[:, :max_rank])
    encoder = dataclasses.replace(found.encoder, loadings=loadings)
    lengths = np.sqrt(shape.n_samples * found.basis.singular_values_squared[:max_rank])
    rows = project_rows(source.read, 0, shape.n_samples, encoder, np.float64)
    return ViewPoints(rows * lengths, source.present, _lattice_steps(source, encoder) * lengths)


def _sampled_values(source: RowSource) -> NDArray[np.float64]:
    """Some rows of a view."""
    rows = sampled_rows(source.shape[0], _N_STEPS)
    return np.concatenate([source.read(row, row + 1) for row in rows])


def has_lattice(source: RowSource) -> bool:
    """Whether a view has a column whose values lie on a lattice, such as categories, grades or counts."""
    return bool(column_steps(_sampled_values(source)).any())


def _lattice_steps(source: RowSource, encoder: Encoder) -> NDArray[np.float64]:
    """Changes (q, r) of the singular vectors of a view by one step of each column on a lattice, the largest ones."""
    assert encoder.transform is not None, "the view has features"
    rows = _sampled_values(source)
    steps = encoder.transform.of_steps(column_steps(rows), rows)
    changes = steps[steps > 0.0, None] * encoder.loadings[steps > 0.0]
    longest = np.argsort(-np.einsum("ij,ij->i", changes, changes), kind="stable")[:_MAX_STEPS]
    return np.asarray(changes[longest])


def joint_points(views: list[ViewPoints], graphs: list[ReferenceGraphs] | None) -> JointPoints:
    """Points of all samples; the graphs of incomplete views.

    A sample that a view does not have gets the mean of its neighbors in the other views, or of the view.
    """
    widths = tuple(view.rows.shape[1] for view in views)
    steps = tuple(view.steps for view in views)
    if graphs is None:
        return JointPoints(np.hstack([view.rows for view in views]), widths, steps)
    total = functools.reduce(operator.add, [view_graph(graph) for graph in graphs])
    complete = []
    for view in views:
        if view.present is None:
            complete.append(view.rows)
            continue
        weights = csr_array(total[:, view.present.samples])
        sums: NDArray[np.float64] = np.asarray(weights.sum(axis=1)).reshape(-1, 1)
        rows = (weights @ view.rows) / np.where(sums > 0.0, sums, 1.0)
        rows[view.present.samples] = view.rows
        complete.append(rows)
    return JointPoints(np.hstack(complete), widths, steps)


def compared(labels: NDArray[np.int64], rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Labels of the samples of the reference graphs: all (None), or some of them."""
    return labels if rows is None else labels[rows]


def score_partitions(
    views: list[ReferenceGraphs],
    partitions: list[NDArray[np.int64]],
    rows: NDArray[np.int64] | None,
) -> list[list[float]]:
    """Scores by view, then by partition, in some samples (all for None); equal partitions are scored once."""
    if rows is not None:
        partitions = [np.unique(labels[rows], return_inverse=True)[1] for labels in partitions]
    positions: dict[bytes, int] = {}
    which = [positions.setdefault(labels.tobytes(), len(positions)) for labels in partitions]
    distinct = [partitions[which.index(i)] for i in range(len(positions))]
    return [
        [scores[i] for i in which] for scores in (view_scores(view, distinct) for view in views)
    ]


def partition_scores(
    groups: list[list[list[float]]],
    partitions: list[NDArray[np.int64]],
    known: NDArray[np.int64] | None,
) -> list[PartitionScore]:
    """Score of each partition by all views, and the known samples that it misses."""
    by_view = (scores for group in groups for scores in group)
    return [
        PartitionScore(scores, 0 if known is None else n_missed(labels, known))
        for scores, labels in zip(zip(*by_view, strict=True), partitions, strict=True)
    ]

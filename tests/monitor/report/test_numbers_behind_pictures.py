"""What the pictures of a report are made of, from their definitions."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from collections.abc import Callable
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist

from mscam_dask.monitor.report.figures import (
    LineChart,
    block_matrix,
    chart_axes,
    cluster_tree,
    line_chart,
    scatter,
)
from mscam_dask.monitor.report.page import confusion, separation_rows
from mscam_dask.plot.pictures import (
    contracted_graph,
    draw_curves,
    draw_samples,
    graph_layout,
    principal_planes,
    sample_property,
)
from tests.monitor.report.made_up import block_graph, some_labels


def test_many_clusters_take_little_memory() -> None:
    labels = some_labels(8000, 4000)
    made: list[Callable[[NDArray[np.int64]], object]] = [
        lambda labels: block_matrix(block_graph(labels), labels).weight_across,
        lambda labels: confusion(labels[::-1], labels, None),
    ]
    for make in made:
        make(labels[:10])  # what is imported is not counted
    tracemalloc.start()
    try:
        for make in made:
            make(labels)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 120e6  # a number for every pair of clusters is 128e6, for each sample 256e6


def test_text_truth_values_and_few_whole_numbers_are_categories_other_numbers_are_not() -> None:
    for values, names, codes in (
        ([10, 2, None, 2], ("2", "10"), [1, 0, np.nan, 0]),
        ([True, False, True], ("False", "True"), [1, 0, 1]),
        (["b", 3, 2.5, None], ("2.5", "3", "b"), [2, 1, 0, np.nan]),
        ([0.5, 2.0, None], None, [0.5, 2.0, np.nan]),
        (list(range(25)), None, list(range(25))),
    ):
        found, categories = sample_property(np.array(values, dtype=object))
        assert categories == names
        np.testing.assert_array_equal(found, codes)
    texts = [f"t{index:02d}" for index in range(40) for _ in range(40 - index)]
    found, categories = sample_property(texts)  # of which the most frequent are categories
    assert categories == (*(f"t{index:02d}" for index in range(23)), "other")
    assert found.tolist() == [min(int(text[1:]), 23) for text in texts]


def test_a_draw_holds_the_listed_samples_and_one_of_each_cluster() -> None:
    labels = some_labels(500, 5)
    labels[17] = 5  # a cluster of one
    listed = np.array([3, 99])
    rows = draw_samples(labels, listed=listed, limit=50)
    assert {3, 17, 99} <= set(rows.tolist())
    assert 50 <= len(rows) <= 53
    assert (np.diff(labels[rows]) >= 0).all()
    assert (draw_samples(labels, listed=listed, limit=50) == rows).all()


def test_contraction_keeps_components() -> None:
    labels = some_labels(300, 6)
    rows = draw_samples(labels, limit=60)
    contracted = contracted_graph(block_graph(labels), rows)
    n_components, component = connected_components(contracted, directed=False)
    assert n_components == 6
    assert len({*zip(component.tolist(), labels[rows].tolist(), strict=True)}) == 6
    assert contracted.diagonal().max() == 0


def test_pixels_outside_the_blocks_are_empty_and_weights_are_counted() -> None:
    labels = some_labels(1200, 3)
    graph = block_graph(labels)
    matrix = block_matrix(graph, labels)
    assert (matrix.levels.shape, matrix.levels.max()) == ((480, 480), 255)
    outside = matrix.levels.copy()
    for start, stop in itertools.pairwise((matrix.edges * 480).round().astype(int)):
        outside[start:stop, start:stop] = 0
    assert outside.max() == 0
    assert matrix.weight_across == 0
    assert matrix.between.trace() == pytest.approx(graph.sum())


def test_separation_lists_clusters_by_the_weight_that_leaves_them() -> None:
    weights = np.zeros((6, 6))
    weights[0, 1] = 6.0  # within cluster 0
    weights[2, 3] = 8.0  # within cluster 1
    weights[4, 5] = 1.0  # within cluster 2
    weights[1, 2] = 2.0  # between clusters 0 and 1
    matrix = block_matrix(csr_array(weights), np.array([0, 0, 1, 1, 2, 2]))
    assert matrix.weight_across == pytest.approx(2 / 17)
    # of (A + Aᵀ)/2: half of an edge lies on either side, all of it within
    for row, (cluster, other, share) in zip(
        separation_rows(matrix), ((0, 1, 1 / 7), (1, 0, 1 / 9)), strict=True
    ):
        assert row[:2] == (cluster, 2)
        assert row[2] == pytest.approx(share)
        assert row[3] == [(other, row[2])]
    apart = csr_array(np.where(weights == 2, 0, weights))
    assert separation_rows(block_matrix(apart, np.array([0, 0, 1, 1, 2, 2]))) == []


def test_nodes_are_near_those_they_are_connected_with_also_weakly() -> None:
    blocks = contracted_graph(block_graph(np.arange(90) % 2, 2), np.arange(90))
    places = graph_layout(blocks)
    start, end = blocks.tocoo().coords
    edges = np.linalg.norm(places[start] - places[end], axis=1)
    assert edges.mean() < 0.5 * pdist(places).mean()
    np.testing.assert_array_equal(graph_layout(blocks), places)
    for size in (1, 3):
        assert np.isfinite(graph_layout(csr_array(np.ones((size, size))))).all()
    weights = np.triu(np.random.default_rng(0).random((1000, 1000)) < 0.024, 1).astype(float)
    weights[:, -1] = 0.0
    weights[0, -1] = 0.3
    places = graph_layout(csr_array(weights + weights.T))
    radii = np.hypot(*(places - np.median(places, axis=0)).T)
    assert radii.max() < 20 * np.median(radii)  # 180 times where eigenvectors are the start


def test_planes_keep_distances_and_frames_give_the_coordinates_back() -> None:
    values = np.random.default_rng(0).standard_normal((50, 4)) * [3.0, 1.0, 1e-9, 1e-9]
    planes = principal_planes(values)
    np.testing.assert_allclose(pdist(planes[0]), pdist(values), rtol=1e-6)
    planes[0][7] = np.nan  # an absent sample
    plot = scatter(planes, np.zeros(50, dtype=np.int64))
    assert plot.names == ("axes 1 and 2", "axes 3 and 4")
    assert texts(plot.svg) == ["0"]  # the number of the cluster, and none of an axis
    x, y, unit = plot.frames[0]
    drawn = np.array(plot.planes[0]).reshape(-1, 2)
    found = np.column_stack((x + (drawn[:, 0] - 500) * unit, y - (drawn[:, 1] - 500) * unit))
    has = np.arange(50) != 7
    np.testing.assert_allclose(found[has], planes[0][has], atol=0.51 * unit)
    assert (drawn[7] < 0).all()
    (narrow,) = principal_planes(np.arange(6.0)[:, None])
    assert narrow.shape == (6, 2)


def texts(picture: str) -> list[str]:
    return [text.text or "" for text in ET.fromstring(f"<svg>{picture}</svg>").iter("text")]


def chart_of(values: list[float], *, name: str = "", log: bool = False) -> LineChart | None:
    ax = chart_axes()
    draw_curves(ax, range(len(values)), [(name, 0, values)], log=log)
    ax.set(xlabel="iteration", ylabel="nats")
    return line_chart("a", ax, [(name, 0, values)], title="A")


def test_gaps_break_a_line_and_nothing_is_no_chart() -> None:
    chart = chart_of([1.0, math.nan, 3.0, 4.0], name="v")
    ((name, style, marks),) = chart.lines
    assert (name, style) == ("v", 0)
    assert [mark.tip for mark in marks] == [
        f"v, iteration {at}: nats {value}" for at, value in ((0, 1), (2, 3), (3, 4))
    ]
    assert [(mark.at, mark.value) for mark in marks] == [(0.0, 1.0), (2.0, 3.0), (3.0, 4.0)]
    (curve,) = (
        path.get("d", "")
        for path in ET.fromstring(f"<svg>{chart.svg}</svg>").iter("path")
        if path.get("class", "").startswith("curve k0")
    )
    assert curve.count("M") == 2
    assert curve.endswith(f"L{marks[-1].x:g} {marks[-1].y:g}")  # marks are on the line
    assert chart_of([math.nan]) is chart_of([0.0], log=True) is None


@pytest.mark.parametrize("values", [[4.0], [4.0, 4.0], [1.0, 2.0, 3.0]])
def test_ticks_of_whole_numbers_are_whole(values: list[float]) -> None:
    shown = [text for text in texts(chart_of(values).svg) if text != "iteration"]
    assert shown
    assert all(text.isdecimal() for text in shown)


def test_the_tree_has_each_merge() -> None:
    merges = np.array([[1, 2, 0.5, 2], [0, 3, 4.0, 3]])
    tree = cluster_tree(merges, (5, 7, 9))
    assert tree["csv"].splitlines() == ["first,second,distance", "7,9,0.5", "5,7 9,4"]
    assert "7 with 9; 5 with 7 and 9" in tree["text"]
    assert sorted(texts(tree["svg"])) == ["5", "7", "9"]


def test_columns_follow_the_best_assignment() -> None:
    truth = np.array([0, 0, 0, 1, 1, 1, 1])
    labels = np.array([1, 1, 2, 0, 0, 0, 2])
    table = confusion(truth, labels, ["<b>", "two"])
    assert table["clusters"] == [1, 0, 2]
    assert table["rows"] == [
        ("<b>", 3, [(2, True), (0, False), (1, False)]),
        ("two", 4, [(0, False), (3, True), (1, False)]),
    ]

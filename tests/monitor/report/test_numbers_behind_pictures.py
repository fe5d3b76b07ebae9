"""What the pictures of a report are made of, from their definitions."""

from __future__ import annotations

import itertools
import math
import re
import struct
import tracemalloc
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist

from mscam_dask.monitor.palette import sample_property
from mscam_dask.monitor.report.charts import Axes, line_chart, log_ticks, ticks
from mscam_dask.monitor.report.figures import (
    BlockMatrix,
    block_matrix,
    cluster_order,
    encode_png,
)
from mscam_dask.monitor.report.scatter import (
    contracted_graph,
    draw_samples,
    graph_layout,
    principal_planes,
    scatter,
)
from mscam_dask.monitor.report.tables import (
    confusion,
    sample_confidence,
    separation_rows,
    size_bars,
)
from tests.messages import quotes
from tests.monitor.report.made_up import block_graph

NO_ROWS = np.empty(0, dtype=np.int64)


def some_labels(n_samples: int, n_clusters: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    rng = np.random.default_rng(n_samples)
    return rng.permutation(np.arange(n_samples) % n_clusters).astype(np.int64)


# ---- many clusters ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "made",
    [
        lambda labels: block_matrix(block_graph(labels), labels).weight_across,
        lambda labels: confusion(labels[::-1], labels, None),
    ],
    ids=["matrix", "confusion"],
)
def test_many_clusters_take_little_memory(made: Callable[[NDArray[np.int64]], object]) -> None:
    labels = some_labels(8000, 4000)
    made(labels[:10])  # what is imported is not counted
    tracemalloc.start()
    try:
        made(labels)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 120e6  # a number for every pair of clusters is 128e6, for each sample 256e6


# ---- confidence -------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [(0, 1, 2), (1, 4, 6)])
def test_confidence_is_the_membership_in_the_own_cluster(names: tuple[int, int, int]) -> None:
    labels = np.array(names)[some_labels(40, 3)]
    membership = np.random.default_rng(1).dirichlet(np.ones(3), size=40)
    found = sample_confidence(membership, labels)
    assert found is not None
    for row in range(40):
        by_name = dict(zip(names, membership[row].tolist(), strict=True))
        assert found.values[row] == by_name.pop(int(labels[row]))
        assert found.next_cluster[row] == max(by_name, key=lambda name: by_name[name])
    first = found.least_certain(3)
    assert first.tolist() == np.argsort(found.values)[:3].tolist()
    assert len(found.least_certain(100)) == 40


def test_an_empty_cluster_may_be_the_next() -> None:
    found = sample_confidence(np.array([[0.5, 0.1, 0.4], [0.6, 0.3, 0.1]]), np.array([0, 1]))
    assert found is not None
    assert found.values.tolist() == [0.5, 0.3]
    assert found.next_cluster.tolist() == [2, 0]


def test_nothing_to_compare_is_none() -> None:
    labels = np.zeros(5, dtype=np.int64)
    assert sample_confidence(None, np.arange(5)) is None
    assert sample_confidence(np.ones((5, 1)), labels) is None


# ---- properties of the samples -----------------------------------------------------------------


def test_few_whole_numbers_truth_values_and_text_are_categories() -> None:
    for values, names, codes in (
        ([10, 2, None, 2], ("2", "10"), [1, 0, np.nan, 0]),
        ([True, False, True], ("False", "True"), [1, 0, 1]),
        (["b", "a", None], ("a", "b"), [1, 0, np.nan]),
        (["b", 3, 2.5], ("2.5", "3", "b"), [2, 1, 0]),
    ):
        found = sample_property(np.array(values, dtype=object))
        assert found.categories == names
        np.testing.assert_array_equal(found.values, codes)


def test_other_numbers_are_numbers() -> None:
    for values in ([0.5, 2.0, np.nan], list(range(25)), [1.5, None, 2]):
        found = sample_property(np.array(values, dtype=object))
        assert found.categories is None
        expected = [np.nan if value is None else float(value) for value in values]
        np.testing.assert_array_equal(found.values, expected)


def test_of_many_texts_the_most_frequent_are_categories() -> None:
    texts = [f"t{index:02d}" for index in range(40) for _ in range(40 - index)]
    found = sample_property(texts)
    assert found.categories == (*(f"t{index:02d}" for index in range(23)), "other")
    expected = [min(int(text[1:]), 23) for text in texts]
    assert found.values.tolist() == expected


# ---- what is drawn ---------------------------------------------------------------------------


def test_all_samples_are_drawn_when_there_are_few() -> None:
    labels = some_labels(30, 4)
    drawing = draw_samples(labels, NO_ROWS, limit=30)
    assert sorted(drawing.rows) == list(range(30))
    assert (np.diff(labels[drawing.rows]) >= 0).all()
    assert drawing.n_random == 30


def test_a_draw_holds_the_listed_samples_and_one_of_each_cluster() -> None:
    labels = some_labels(500, 5)
    labels[17] = 5  # a cluster of one
    listed = np.array([3, 99])
    drawing = draw_samples(labels, listed, limit=50)
    assert {3, 17, 99} <= set(drawing.rows.tolist())
    assert drawing.n_random == 50
    assert 50 <= len(drawing.rows) <= 53
    assert (draw_samples(labels, listed, limit=50).rows == drawing.rows).all()


def test_contraction_keeps_components_and_the_weight_between_territories() -> None:
    labels = some_labels(300, 6)
    graph = block_graph(labels)
    drawing = draw_samples(labels, NO_ROWS, limit=60)
    contracted = contracted_graph(graph, drawing.rows)
    n_components, component = connected_components(contracted, directed=False)
    assert n_components == 6
    assert len({*zip(component.tolist(), labels[drawing.rows].tolist(), strict=True)}) == 6
    assert abs(contracted - contracted.T).max() < 1e-12
    assert contracted.diagonal().max() == 0
    assert contracted.sum() <= graph.sum() + 1e-9


def test_contraction_of_a_path_graph_by_hand() -> None:
    # 0 - 1 - 2 - 3 - 4: 1 is nearest to 0 and 3 to 4; 2 is as near to both.
    steps = np.zeros((5, 5))
    for start, weight in enumerate((1.0, 2.0, 3.0, 4.0)):
        steps[start, start + 1] = weight
    contracted = contracted_graph(csr_array(steps), np.array([0, 4]))
    assert contracted[0, 1] in (1.0, 1.5)  # half of the edge 1-2 or of 2-3
    whole = contracted_graph(csr_array(steps), np.arange(5)).toarray()
    assert np.allclose(whole, (steps + steps.T) / 2)


# ---- the block matrix ------------------------------------------------------------------------


def test_clusters_lie_side_by_side_and_each_sample_once() -> None:
    labels = some_labels(90, 4)
    order = cluster_order(block_graph(labels), labels)
    assert sorted(order) == list(range(90))
    assert (np.diff(labels[order]) >= 0).all()


def test_pixels_outside_the_blocks_are_empty_and_weights_are_counted() -> None:
    labels = some_labels(1200, 3)
    graph = block_graph(labels)
    matrix = block_matrix(graph, labels)
    assert matrix.levels.shape == (480, 480)
    assert matrix.samples_per_pixel == 2.5
    corners = (matrix.edges * 480).round().astype(int)
    outside = matrix.levels.copy()
    for start, stop in itertools.pairwise(corners):
        outside[start:stop, start:stop] = 0
    assert outside.max() == 0
    assert matrix.levels.max() == 255
    assert matrix.weight_across == 0
    assert matrix.between.trace() == pytest.approx(graph.sum())


def test_weight_between_clusters_is_said() -> None:
    matrix = block_matrix(csr_array(np.ones((4, 4)) - np.eye(4)), np.array([0, 0, 1, 1]))
    assert matrix.weight_across == pytest.approx(8 / 12)


def test_separation_lists_clusters_by_the_weight_that_leaves_them() -> None:
    weights = np.zeros((6, 6))
    weights[0, 1] = 6.0  # within cluster 0
    weights[2, 3] = 8.0  # within cluster 1
    weights[4, 5] = 1.0  # within cluster 2
    weights[1, 2] = 2.0  # between clusters 0 and 1
    matrix = block_matrix(csr_array(weights), np.array([0, 0, 1, 1, 2, 2]))
    rows = separation_rows(matrix)
    assert [(row.cluster, row.samples) for row in rows] == [(0, "2"), (1, "2")]
    # of (A + Aᵀ)/2: half of an edge lies on either side, all of it within
    assert [row.share for row in rows] == ["14.29\u00a0%", "11.11\u00a0%"]
    assert [row.touching for row in rows] == [((1, "14.29\u00a0%"),), ((0, "11.11\u00a0%"),)]
    apart = block_matrix(
        csr_array(np.where(weights == 2, 0, weights)), np.array([0, 0, 1, 1, 2, 2])
    )
    assert separation_rows(apart) == ()


def test_numbers_that_no_cluster_goes_by_are_left_out() -> None:
    graph = csr_array(np.ones((4, 4)) - np.eye(4))
    labels = np.array([5, 5, 3, 5])
    matrix = block_matrix(graph, labels)
    assert (matrix.clusters.tolist(), matrix.sizes.tolist()) == ([3, 5], [1, 3])
    np.testing.assert_allclose(matrix.edges, [0, 0.25, 1])
    np.testing.assert_allclose(matrix.between.toarray(), [[0, 3], [3, 6]])
    bars, cut = size_bars(labels)
    assert ([(bar.cluster, bar.samples) for bar in bars], cut) == ([(5, "3"), (3, "1")], "")
    table = confusion(np.array([0, 0, 1, 0]), labels, None)
    assert (table.clusters, table.cut) == ((5, 3), "")


def test_no_weight_between_clusters_is_none_whatever_rounding_makes_of_the_sums() -> None:
    between = np.diag([0.1, 0.2, 0.3, 0.7, 0.11])
    assert between.sum() != np.trace(between), "this says nothing"
    nothing = np.zeros(0)
    matrix = BlockMatrix(
        levels=nothing.astype(np.uint8),
        clusters=np.arange(5),
        sizes=np.ones(5, dtype=np.int64),
        edges=nothing,
        samples_per_pixel=1.0,
        between=csr_array(between),
    )
    assert matrix.weight_across == 0


def test_a_picture_decodes_to_its_levels() -> None:
    levels = np.arange(12, dtype=np.uint8).reshape(3, 4)
    content = encode_png(levels, np.zeros((12, 3), dtype=np.uint8))
    at, chunks = 8, {}
    while at < len(content):
        length, kind = struct.unpack(">I4s", content[at : at + 8])
        body = content[at + 8 : at + 8 + length]
        (check,) = struct.unpack(">I", content[at + 8 + length : at + 12 + length])
        assert check == zlib.crc32(kind + body)
        chunks[kind] = body
        at += 12 + length
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), dtype=np.uint8).reshape(3, 5)
    assert (rows[:, 0] == 0).all()
    assert (rows[:, 1:] == levels).all()
    assert struct.unpack(">II", chunks[b"IHDR"][:8]) == (4, 3)


# ---- the plane -------------------------------------------------------------------------------


@pytest.mark.parametrize("n_samples", [1, 2, 3, 5, 90, 900])
def test_every_node_has_a_place_near_the_nodes_it_is_connected_with(n_samples: int) -> None:
    labels = np.sort(some_labels(n_samples, min(2, n_samples)))
    graph = contracted_graph(block_graph(labels, 2), np.arange(n_samples))
    places = graph_layout(graph, rng=np.random.default_rng(0))
    assert places.shape == (n_samples, 2)
    assert np.isfinite(places).all()
    again = graph_layout(graph, rng=np.random.default_rng(0))
    assert (places == again).all()
    if n_samples >= 90:
        start, end = graph.tocoo().coords
        edges = np.linalg.norm(places[start] - places[end], axis=1)
        assert edges.mean() < 0.5 * pdist(places).mean()


def test_a_weakly_attached_node_is_drawn_near_the_others() -> None:
    n_nodes = 1000
    weights = (np.random.default_rng(0).random((n_nodes, n_nodes)) < 24 / n_nodes).astype(float)
    weights[-1], weights[:, -1] = 0.0, 0.0
    weights[0, -1] = 0.3
    upper = np.triu(weights, 1)
    places = graph_layout(csr_array(upper + upper.T), rng=np.random.default_rng(0))
    radii = np.hypot(*(places - np.median(places, axis=0)).T)
    assert radii.max() < 20 * np.median(radii)  # 180 times where eigenvectors are the start


@pytest.mark.parametrize("spread", [1e-3, 1.0], ids=["tight", "loose"])
def test_planes_keep_distances_between_and_within_clusters(spread: float) -> None:
    rng = np.random.default_rng(0)
    corners = np.array([[0.0, 0], [4, 0], [0, 2], [4, 2]])
    values = np.repeat(corners, 20, axis=0) + spread * rng.standard_normal((80, 2))
    planes, names = principal_planes(values)
    assert names == ("axes 1 and 2",)
    np.testing.assert_allclose(pdist(planes[0]), pdist(values))
    plot = scatter(planes, np.repeat(np.arange(4), 20), names)
    drawn = pdist(np.array(plot.planes[0]).reshape(-1, 2).astype(float))
    scale = drawn.max() / pdist(values).max()
    np.testing.assert_allclose(drawn, scale * pdist(values), atol=2)


def test_each_pair_of_axes_has_a_plane() -> None:
    planes, names = principal_planes(np.random.default_rng(0).standard_normal((80, 4)))
    assert names == ("axes 1 and 2", "axes 3 and 4")
    assert [plane.shape for plane in planes] == [(80, 2)] * 2


def test_one_column_still_makes_a_plane() -> None:
    planes, names = principal_planes(np.arange(6.0)[:, None])
    assert planes[0].shape == (6, 2)
    plot = scatter(planes, np.zeros(6, dtype=np.int64), names)
    assert plot.dots[0].path.count("M") == 6
    assert len(plot.planes[0]) == 12


def test_frames_give_the_coordinates_back() -> None:
    plane = np.random.default_rng(0).standard_normal((50, 2)) * [3.0, 1.0] + [5.0, -2.0]
    plane[7] = np.nan
    plot = scatter([plane], np.zeros(50, dtype=np.int64), ("",))
    x, y, unit = plot.frames[0]
    drawn = np.array(plot.planes[0]).reshape(-1, 2)
    found = np.column_stack((x + (drawn[:, 0] - 500) * unit, y - (drawn[:, 1] - 500) * unit))
    has = np.arange(50) != 7
    np.testing.assert_allclose(found[has], plane[has], atol=0.51 * unit)
    assert (drawn[7] < 0).all()


# ---- charts ----------------------------------------------------------------------------------


@given(low=st.floats(-1e6, 1e6), span=st.floats(1e-3, 1e6))
def test_ticks_enclose_what_they_measure(low: float, span: float) -> None:
    values = ticks(low, low + span)
    slack = 1e-6 * (values[1] - values[0])
    assert values[0] <= low + slack
    assert values[-1] >= low + span - slack
    assert 2 <= len(values) <= 9


@given(exponent=st.floats(-12, 6), decades=st.floats(0, 14))
def test_log_ticks_enclose_what_they_measure(exponent: float, decades: float) -> None:
    low, high = 10**exponent, 10 ** (exponent + decades)
    values = log_ticks(low, high)
    assert values == sorted(set(values))
    assert values[0] <= low * 1.01
    assert values[-1] >= high * 0.99
    assert 2 <= len(values) <= 9


def test_no_two_ticks_of_an_axis_read_alike() -> None:
    close = line_chart("a", [("", 0, [1.8364, 1.8389])], Axes(x="iteration", y="nats"), title="A")
    assert close is not None
    said = [tick.text for tick in close.y_ticks]
    assert len(set(said)) == len(said) > 3
    small = line_chart("a", [("", 0, [2e-6, 9e-4])], Axes(x="i", y="r", log=True), title="A")
    assert small is not None
    assert [tick.text for tick in small.y_ticks] == ["10⁻⁶", "10⁻⁵", "10⁻⁴", "10⁻³"]


def test_gaps_break_a_line_and_nothing_is_no_chart() -> None:
    axes = Axes(x="iteration", y="nats")
    chart = line_chart("a", [("v", 0, [1.0, math.nan, 3.0, 4.0])], axes, title="A")
    assert chart is not None
    assert chart.lines[0].path.count("M") == 2
    assert [mark.tip for mark in chart.lines[0].marks] == [
        f"v, iteration {at}: nats {value}" for at, value in ((0, 1), (2, 3), (3, 4))
    ]
    marks = [(mark.at, mark.value) for mark in chart.lines[0].marks]
    assert marks == [(0.0, 1.0), (2.0, 3.0), (3.0, 4.0)]
    assert line_chart("a", [("v", 0, [math.nan])], axes, title="A") is None


# ---- tables ----------------------------------------------------------------------------------


def test_columns_follow_the_best_assignment() -> None:
    truth = np.array([0, 0, 0, 1, 1, 1, 1])
    labels = np.array([1, 1, 2, 0, 0, 0, 2])
    table = confusion(truth, labels, ["<b>", "two"])
    assert table.clusters == (1, 0, 2)
    (first, total, cells), second = table.rows
    assert (first, total) == ("<b>", "3")
    assert [cell.text for cell in cells] == ["2", "", "1"]
    assert [cell.is_match for cell in cells] == [True, False, False]
    assert [cell.text for cell in second[2]] == ["", "3", "1"]
    assert table.cut == ""


def test_large_tables_are_cut_and_say_so() -> None:
    labels = np.arange(300) % 100
    table = confusion(labels, labels, None)
    assert len(table.rows) == 40
    assert len(table.clusters) == 40
    assert re.search(quotes(40, 100, 180), table.cut)
    bars, cut = size_bars(labels)
    assert len(bars) == 60
    assert re.search(quotes(60, 100), cut)

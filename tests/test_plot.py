"""Pictures show the numbers of the fit; no figure is left with pyplot."""

from __future__ import annotations

import copy
import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import (
    FillBetweenPolyCollection,
    LineCollection,
    PathCollection,
    PolyCollection,
)
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from mscam_dask import MSCAM, Constants, plot
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.metrics import score_partition
from mscam_dask.plot.pictures import CLUSTER_COLORS
from tests.messages import raises
from tests.synthetic import gaussian_views

N = 90


(A, B), TRUTH = gaussian_views(0, n_samples=N, spread=2.5, dims=(4, 6))
VIEWS = {"a": pd.DataFrame(A).add_prefix("x"), "b": pd.DataFrame(B).add_prefix("y")}


@pytest.fixture(scope="module")
def model() -> MSCAM:
    return MSCAM(n_clusters=3, n_jobs=1).fit(VIEWS)


@pytest.fixture(scope="module")
def counted() -> MSCAM:
    return MSCAM(n_clusters="auto", max_clusters=4, n_jobs=1).fit(VIEWS)


def points(ax: Any) -> list[PathCollection]:
    return [item for item in ax.collections if isinstance(item, PathCollection)]


DRAW: dict[str, Callable[[MSCAM, Any], Any]] = {
    "graph": plot.graph,
    "embedding": lambda m, ax: plot.embedding(m, "a", ax),
    "confusion": lambda m, ax: plot.confusion(m, m.labels_, ax),
    "contributions": plot.contributions,
    "history": plot.history,
    "features": lambda m, ax: plot.features(m, 0, ax),
    "confidence": plot.confidence,
    "n_clusters_curves": plot.n_clusters_curves,
    "presence": plot.presence,
}


def test_axes_are_those_given_or_of_a_figure_that_pyplot_does_not_know(
    model: MSCAM, counted: MSCAM
) -> None:
    assert set(plot.__all__) == {*DRAW, "ranks", "robustness"}
    for name, draw in DRAW.items():
        fitted = counted if name == "n_clusters_curves" else model
        given = Figure().add_subplot()
        assert draw(fitted, given) is given
        assert given.has_data()
    made: Any = plot.graph(model)
    made.get_figure(root=True).canvas.draw()
    if "matplotlib.pyplot" in sys.modules:
        import matplotlib.pyplot as plt

        assert plt.get_fignums() == []


def test_points_of_the_graph_are_the_samples_in_the_colors_of_their_clusters(model: MSCAM) -> None:
    ax = plot.graph(model)
    sizes = np.bincount(model.labels_)
    assert [len(item.get_offsets()) for item in points(ax)] == sizes.tolist()
    assert [to_hex(item.get_facecolor()[0]) for item in points(ax)] == list(CLUSTER_COLORS[:3])
    assert sorted(text.get_text() for text in ax.texts) == ["0", "1", "2"]
    lines = [item for item in ax.collections if isinstance(item, LineCollection)]
    segments = [segment for item in lines for segment in item.get_segments()]
    graph = model.learned_graph_.toarray()
    n_edges = np.count_nonzero(graph + graph.T) // 2
    assert len(segments) == n_edges
    ends = np.concatenate(segments)
    places = np.concatenate([item.get_offsets() for item in points(ax)])
    assert {tuple(end) for end in ends} <= {tuple(place) for place in np.asarray(places)}


def test_points_of_an_embedding_keep_the_distances_of_two_principal_axes(model: MSCAM) -> None:
    values = model.solution_.view_coordinates["b"].astype(np.float64)
    spread = np.linalg.svd(values - values.mean(axis=0), compute_uv=False)
    ax = plot.embedding(model, "b")
    drawn = np.concatenate([item.get_offsets() for item in points(ax)])
    np.testing.assert_allclose(np.linalg.norm(drawn, axis=0), spread[:2], rtol=1e-9)
    assert ax.get_title() == "b"
    with pytest.raises(ConfigurationError):
        plot.embedding(model, "c")


def test_samples_are_colored_by_a_property(model: MSCAM) -> None:
    kinds = np.array(["x", None, "z"], dtype=object)[np.arange(N) % 3]
    ax = plot.embedding(model, "a", color=kinds)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["missing", "x", "z"]
    assert [len(item.get_offsets()) for item in points(ax)] == [30, 30, 30]
    numbers = np.arange(N) / 7
    (scale,) = points(plot.embedding(model, "a", color=numbers))
    np.testing.assert_array_equal(np.sort(np.asarray(scale.get_array())), numbers)
    with pytest.raises(DataError):
        plot.graph(model, color=np.zeros(5))


def test_counts_of_the_confusion(model: MSCAM) -> None:
    names = np.array(["p", "q", "r"])[TRUTH]
    ax = plot.confusion(model, names)
    expected = pd.crosstab(names, model.labels_)
    order = [int(text.get_text()) for text in ax.get_xticklabels()]
    counts = expected.to_numpy()[:, order]
    assert [text.get_text() for text in ax.get_yticklabels()] == list(expected.index)
    shares = np.asarray(ax.images[0].get_array())
    np.testing.assert_allclose(shares, counts / counts.sum(axis=1, keepdims=True))
    written = {text.get_position(): int(text.get_text()) for text in ax.texts}
    assert written == {(j, i): n for (i, j), n in np.ndenumerate(counts) if n}
    assert np.trace(counts) == N * score_partition(TRUTH, model.labels_).accuracy
    with pytest.raises(DataError):
        plot.confusion(model, [0, 1, 2])


def test_bars_of_the_contributions_and_lines_of_the_history(model: MSCAM) -> None:
    ax = plot.contributions(model)
    names = [text.get_text() for text in ax.get_yticklabels()]
    widths = [bar.get_width() for bar in ax.patches]
    assert dict(zip(names, widths, strict=True)) == model.view_contributions_
    ax = plot.history(model, quantity="view_score")
    curve = model.history_["view_score"]
    drawn = np.column_stack([line.get_ydata() for line in ax.lines])
    np.testing.assert_array_equal(drawn, curve.values.reshape(len(drawn), -1))
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), np.arange(len(drawn)) + 1)
    with pytest.raises(ConfigurationError):
        plot.history(model, quantity="speed")


def test_p_values_over_the_number_of_clusters(counted: MSCAM, model: MSCAM) -> None:
    curves = counted.n_clusters_curves_
    ax = plot.n_clusters_curves(counted)
    line, level, selected = ax.lines
    p_values = curves["p_value"].values
    np.testing.assert_allclose(line.get_ydata(), np.maximum(p_values, 1e-4))
    np.testing.assert_array_equal(line.get_xdata(), curves["n_clusters"])
    assert ax.get_yscale() == "log"
    assert set(level.get_ydata()) == {0.05}
    assert set(selected.get_xdata()) == {counted.n_clusters_}
    with pytest.raises(ConfigurationError):
        plot.n_clusters_curves(model)


def test_bars_of_the_features(model: MSCAM) -> None:
    ax = plot.features(model, 1, top=5)
    every = model.cluster_features(20).query("cluster == 1")
    largest = every.sort_values("effect", key=lambda effect: -effect.abs())[:5]
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names == largest["feature"].tolist()
    widths = {round(bar.get_y() + bar.get_height() / 2): bar.get_width() for bar in ax.patches}
    assert [widths[place] for place in range(5)] == pytest.approx(largest["effect"].tolist())
    with pytest.raises(ConfigurationError):
        plot.features(model, 3)


def test_areas_of_the_confidence(model: MSCAM) -> None:
    ax = plot.confidence(model)
    areas = [item for item in ax.collections if isinstance(item, FillBetweenPolyCollection)]
    for cluster, area in enumerate(areas):
        own = model.confidence_[model.labels_ == cluster]
        (path,) = area.get_paths()
        x, y = path.vertices.T
        surface = 0.5 * abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1)))
        assert surface == pytest.approx(own.sum())
    assert ax.lines[0].get_xdata()[0] == pytest.approx(model.confidence_.mean())


def test_clusters_with_the_names_of_an_earlier_run(model: MSCAM) -> None:
    names = np.array([0, 2, 5])
    solution = model.solution_
    named = copy.copy(model)
    named.solution_ = dataclasses.replace(
        solution, labels=names[solution.labels], assessment=solution.assessment.renamed([0, 2, 5])
    )
    confusion, confidence = plot.confusion(named, model.labels_), plot.confidence(named)
    for ticks in (confusion.get_xticklabels(), confidence.get_yticklabels()):
        assert [text.get_text() for text in ticks] == ["0", "2", "5"]
    first, second = plot.features(model, 2), plot.features(named, 5)
    assert [bar.get_width() for bar in first.patches] == [bar.get_width() for bar in second.patches]
    with raises(ConfigurationError, "cluster=1", "0, 2, 5"):
        plot.features(named, 1)


def test_bars_of_the_presence_are_the_samples_of_each_view() -> None:
    a, b = A.copy(), B.copy()
    a[:20], b[20:50] = np.nan, np.nan
    fast = MSCAM(3, constants=Constants.paper(), max_iter=1, n_jobs=1)
    ax = plot.presence(fast.fit({"a": a, "b": b}))
    bars = [item for item in ax.collections if isinstance(item, PolyCollection)]
    spans = [
        sorted((path.vertices[:, 0].min(), path.vertices[:, 0].max()) for path in bar.get_paths())
        for bar in bars
    ]
    # 40 samples have both views, 30 only a and 20 only b
    assert spans == [[(0, 40), (40, 70)], [(0, 40), (70, 90)]]
    assert [text.get_text().strip() for text in ax.texts] == ["70", "60"]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "b"]


def experiment(folder: Path, **changes: Any) -> Path:
    """The directory of an experiment with the entries that pictures read."""

    def row(dataset: str, method: str, mean: float | None, protocol: str = "defaults") -> Any:
        scores = {"adjusted_rand_index": {"mean": mean, "std": None}}
        return {"dataset": dataset, "method": method, "protocol": protocol, "scores": scores}

    record = {
        "format": "mscam_dask.experiment",
        "kind": "comparison",
        "methods": [{"name": name, "title": name.upper()} for name in "xyz"],
        "rows": [
            *(row("one", name, mean) for name, mean in zip("xyz", (0.9, 0.5, 0.5), strict=True)),
            *(row("two", name, mean) for name, mean in zip("xyz", (0.1, 0.3, 0.2), strict=True)),
            *(row("three", name, mean) for name, mean in zip("xyz", (0.9, None, 0), strict=True)),
            *(row("one", name, mean, "grid") for name, mean in (("x", 0.1), ("z", 0.2))),
        ],
        "curves": [],
        **changes,
    }
    folder.mkdir(exist_ok=True)
    (folder / "experiment.json").write_text(json.dumps(record), encoding="utf-8")
    return folder


def test_diamonds_are_mean_ranks_over_the_data_sets_that_all_methods_have(tmp_path: Path) -> None:
    folder = experiment(tmp_path / "e")
    ax = plot.ranks(folder)
    drawn = [item.get_offsets()[:, 0].tolist() for item in points(ax)]
    # x is first and third; y shares 2.5 and is first; z shares 2.5 and is second
    assert drawn == [[2.5, 1.0], [1.75], [1.0, 3.0], [2.0], [2.5, 2.0], [2.25]]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["Y", "X", "Z"]
    assert "on 2 data" in ax.get_xlabel()
    with pytest.raises(ConfigurationError):
        plot.ranks(folder, score="speed")
    with pytest.raises(DataError):
        plot.ranks(experiment(tmp_path / "f", rows=[]))


def test_curves_of_the_robustness(tmp_path: Path) -> None:
    curves = [
        {
            "method": name,
            "protocol": protocol,
            "corruption_rate": [0.0, 0.5, 1.0],
            "mean": mean,
            "std": [0.1, None, 0.2],
            "paper": [None] * 3,
        }
        for name, protocol, mean in (
            ("x", "defaults", [0.9, None, 0.2]),
            ("x", "grid", [0.9, 0.8, 0.7]),
        )
    ]
    folder = experiment(tmp_path / "e", kind="robustness", curves=curves)
    given = plot.robustness(folder)
    first, second = given.lines
    np.testing.assert_array_equal(first.get_ydata(), [0.9, np.nan, 0.2])
    np.testing.assert_array_equal(second.get_xdata(), [0.0, 0.5, 1.0])
    assert (first.get_linestyle(), second.get_linestyle()) == ("-", "--")
    assert given.get_legend_handles_labels()[1] == ["X", "X (grid)"]
    heights = [item.get_datalim(given.transData).height for item in given.collections]
    np.testing.assert_allclose(heights, [1.0, 0.9 - 0.5 + 0.1], atol=1e-9)
    with pytest.raises(DataError):
        plot.robustness(experiment(tmp_path / "f"))


def test_other_directories_are_no_experiments(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        plot.ranks(tmp_path)
    with pytest.raises(DataError):
        plot.robustness(experiment(tmp_path / "e", format="other"))

"""Pictures of fits and of experiments, drawn with matplotlib.

Each function draws on the axes `ax` or on those of a new figure, and returns the axes. New figures are not
registered with pyplot: ``plot.graph(model).figure.savefig("graph.svg")``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics.cluster import contingency_matrix

from mscam_dask.data.store.filesystem import read_regular
from mscam_dask.data.views.conversion import encode_labels
from mscam_dask.data.views.sources import listed
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.plot.pictures import (
    CLUSTER_COLORS,
    MAX_NUMBERS,
    add_legend,
    best_order,
    cluster_color,
    contracted_graph,
    draw_clusters,
    draw_edges,
    draw_history,
    draw_p_values,
    draw_samples,
    graph_layout,
    new_axes,
    principal_planes,
    sample_property,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mscam_dask.estimators.mscam import MSCAM

__all__ = [
    "confidence",
    "confusion",
    "contributions",
    "embedding",
    "features",
    "graph",
    "history",
    "n_clusters_curves",
    "presence",
    "ranks",
    "robustness",
]

_MISSING = "#c9ced6"
_LOW_SHADE = 0.55  # above, white text is easier to read


def graph(estimator: MSCAM, ax: Axes | None = None, *, color: ArrayLike | None = None) -> Axes:
    """Draw the learned graph in the plane, with a layout that does not know the clusters.

    Parameters
    ----------
    estimator : MSCAM
    ax : Axes, optional
    color : (n_samples,) array, optional
        Property of the samples to color by: text, truth values and whole numbers of at most 24
        values by category (of more texts the 23 most frequent), other numbers on a continuous scale.
        None: the clusters.

    Notes
    -----
    Of more than 2000 samples a random sample is drawn, in which each represents those nearest to it in the
    graph; of more than 8000 edges the heaviest.
    """
    ax = new_axes(ax, (6.0, 6.0))
    rows = draw_samples(estimator.labels_)
    edges = contracted_graph(estimator.learned_graph_, rows)
    places = graph_layout(edges)
    # with a color of each sample all edges are gray, as between clusters
    draw_edges(ax, places, edges, estimator.labels_[rows] if color is None else rows)
    _scatter(ax, places, estimator, rows, color)
    ax.set_aspect("equal")
    ax.set_axis_off()
    return ax


def embedding(
    estimator: MSCAM,
    view: str,
    ax: Axes | None = None,
    *,
    color: ArrayLike | None = None,
) -> Axes:
    """Draw the ridge embedding of one view on its first two principal axes.

    Parameters
    ----------
    estimator : MSCAM
    view : str
        Not excluded.
    ax : Axes, optional
    color
        As for `graph`.

    Raises
    ------
    ConfigurationError
        The view has no embedding.

    Notes
    -----
    Of more than 2000 samples a random sample is drawn.
    """
    coordinates = estimator.solution_.view_coordinates
    if view not in coordinates:
        raise ConfigurationError(
            f"View {view!r} has no embedding; allowed are {list(coordinates)}."
        )
    rows = draw_samples(estimator.labels_)
    plane = principal_planes(coordinates[view][rows].astype(np.float64))[0]
    ax = new_axes(ax, (5.0, 5.0))
    _scatter(ax, plane, estimator, rows, color)
    ax.set(xlabel="axis 1", ylabel="axis 2", title=view, xticks=[], yticks=[])
    ax.set_aspect("equal", adjustable="datalim")
    return ax


def confusion(estimator: MSCAM, labels_true: ArrayLike, ax: Axes | None = None) -> Axes:
    """Draw the number of samples of each class in each cluster.

    Parameters
    ----------
    estimator : MSCAM
    labels_true : (n_samples,) array
        Classes, as whole numbers or text.
    ax : Axes, optional

    Raises
    ------
    DataError
        There is not one label for each sample.

    Notes
    -----
    Clusters are in the order of the best assignment to classes. The shade is the share of the class.
    """
    codes, names = encode_labels(labels_true)
    _check_length(codes, estimator, "labels_true")
    classes, counts = np.unique(codes), contingency_matrix(codes, estimator.labels_)
    order, _ = best_order(counts)
    counts = counts[:, order]
    shares = counts / counts.sum(axis=1, keepdims=True)
    ax = new_axes(ax, (1.5 + 0.45 * counts.shape[1], 1.2 + 0.4 * counts.shape[0]))
    ax.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    if max(counts.shape) <= MAX_NUMBERS:
        for (row, column), n_samples in np.ndenumerate(counts):
            if n_samples:
                shade = "white" if shares[row, column] > _LOW_SHADE else "black"
                ax.text(column, row, str(n_samples), ha="center", va="center", color=shade)
    shown = [names[code] for code in classes] if names else [str(code) for code in classes]
    ax.set_xticks(range(counts.shape[1]), estimator.cluster_names_[order].astype(str))
    ax.set_yticks(range(counts.shape[0]), shown)
    ax.set(xlabel="cluster", ylabel="class")
    return ax


def contributions(estimator: MSCAM, ax: Axes | None = None) -> Axes:
    """Draw the share of each view in the score.

    Parameters
    ----------
    estimator : MSCAM
    ax : Axes, optional
    """
    shares = estimator.view_contributions_
    excluded = set(estimator.excluded_views_)
    ax = new_axes(ax, (5.0, 0.8 + 0.35 * len(shares)))
    bars = ax.barh(range(len(shares)), list(shares.values()), color=CLUSTER_COLORS[0])
    texts = ["excluded" if view in excluded else f"{share:.0%}" for view, share in shares.items()]
    ax.bar_label(bars, texts, padding=3)
    ax.set_yticks(range(len(shares)), list(shares))
    ax.invert_yaxis()
    ax.margins(x=0.18)
    ax.set(xlabel="share of the score", xlim=(0.0, None))
    return ax


def history(estimator: MSCAM, ax: Axes | None = None, *, quantity: str = "score") -> Axes:
    """Draw one quantity of the fit over the outer iterations.

    Parameters
    ----------
    estimator : MSCAM
    ax : Axes, optional
    quantity : str, default="score"
        A variable of `history_`; those by view have a line for each.

    Raises
    ------
    ConfigurationError
        There is no such variable.
    DataError
        The fit had no outer iteration.
    """
    records = estimator.history_
    if quantity not in records:
        raise ConfigurationError(
            f"quantity={quantity!r} is not in history_; allowed are {list(map(str, records))}."
        )
    if not records[quantity].size:
        raise DataError("The fit had no outer iteration, so history_ is empty.")
    ax = new_axes(ax, (6.0, 3.5))
    if len(draw_history(ax, records, quantity)) > 1:
        add_legend(ax)
    ax.set(ylabel=quantity.replace("_", " "))
    ax.margins(y=0.1)
    return ax


def n_clusters_curves(estimator: MSCAM, ax: Axes | None = None) -> Axes:
    """Draw the largest p-value of the borders over the number of clusters, with the level that selects.

    Parameters
    ----------
    estimator : MSCAM
        Fitted with ``n_clusters="auto"``.
    ax : Axes, optional

    Raises
    ------
    ConfigurationError
        The number of clusters was given.

    Notes
    -----
    p-values below 0.0001 are drawn there.
    """
    curves = estimator.n_clusters_curves_
    if curves is None:
        raise ConfigurationError(
            "n_clusters was given, so there are no p-values. Fit with n_clusters='auto'."
        )
    ax = new_axes(ax, (6.0, 3.8))
    counts, p_values = (curves[name].values.tolist() for name in ("n_clusters", "p_value"))
    draw_p_values(ax, counts, p_values, curves.attrs["chosen"])
    ax.set(ylabel="largest p-value of the borders")
    return ax


def features(estimator: MSCAM, cluster: int, ax: Axes | None = None, *, top: int = 10) -> Axes:
    """Draw the effects of the features that set a cluster apart most, of all views.

    Parameters
    ----------
    estimator : MSCAM
    cluster : int
    ax : Axes, optional
    top : int, default=10
        Number of features.

    Raises
    ------
    ConfigurationError
        There is no such cluster, or `top` is below 1.
    DataError
        A training array was changed since the fit, or no feature differs.

    Notes
    -----
    Effects are Cohen's d (`cluster_features`). A feature without a name is shown as view and column. A bar without a finite effect ends with "∞".
    """
    names = estimator.cluster_names_.tolist()
    if cluster not in names:
        raise ConfigurationError(f"cluster={cluster!r}; allowed are {listed(names)}.")
    found = estimator.cluster_features(top)
    found = found[found["cluster"] == cluster]
    found = found.iloc[np.argsort(-found["effect"].abs(), kind="stable")[:top]]
    if found.empty:
        raise DataError(f"No feature differs between cluster {cluster} and the other samples.")
    effects = found["effect"].to_numpy()
    finite = np.abs(effects[np.isfinite(effects)])
    longest = 1.1 * float(finite.max(initial=0.0)) or 1.0
    ax = new_axes(ax, (6.0, 1.0 + 0.32 * len(found)))
    for view in found["view"].unique():
        own = np.flatnonzero(found["view"] == view)
        color = cluster_color(estimator.view_names_.index(view))
        bars = ax.barh(own, np.clip(effects[own], -longest, longest), color=color, label=view)
        texts = ["" if np.isfinite(effect) else "∞" for effect in effects[own]]
        ax.bar_label(bars, texts, padding=3)
    features = [
        f"{view} {column}" if feature == str(column) else feature
        for view, feature, column in found[["view", "feature", "column"]].to_numpy()
    ]
    ax.set_yticks(range(len(found)), features)
    ax.invert_yaxis()
    ax.axvline(0.0, color="black", linewidth=0.8)
    ax.set(xlabel="effect (Cohen's d)", title=f"cluster {cluster}")
    add_legend(ax)
    return ax


def confidence(estimator: MSCAM, ax: Axes | None = None) -> Axes:
    """Draw the confidence of each sample, by cluster in descending order, and the mean of all.

    Parameters
    ----------
    estimator : MSCAM
    ax : Axes, optional
    """
    values = estimator.confidence_
    ax = new_axes(ax, (6.0, 4.0))
    gap = 0.02 * len(values)
    start, middles = 0.0, []
    for cluster in estimator.cluster_names_:
        own = np.sort(values[estimator.labels_ == cluster])
        ax.fill_betweenx(
            start + np.arange(len(own) + 1),
            0.0,
            np.append(own, own[-1:]),
            step="post",
            color=cluster_color(cluster),
            linewidth=0.0,
        )
        middles.append(start + len(own) / 2)
        start += len(own) + gap
    ax.axvline(float(values.mean()), color="black", linestyle="--", linewidth=1)
    if estimator.n_clusters_ <= MAX_NUMBERS:
        ax.set_yticks(middles, estimator.cluster_names_.astype(str))
    else:
        ax.set_yticks([])
    ax.set(xlabel="confidence", ylabel="cluster", xlim=(0.0, 1.0), ylim=(start - gap, 0.0))
    return ax


def presence(estimator: MSCAM, ax: Axes | None = None) -> Axes:
    """Draw which samples each view has: samples from left to right, by the set of views that has them.

    Parameters
    ----------
    estimator : MSCAM
    ax : Axes, optional

    Notes
    -----
    The largest set of samples is on the left. The number of samples of a view is on its right.
    """
    table = estimator.view_presence_
    patterns, counts = np.unique(table, axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    edges = np.concatenate(([0], np.cumsum(counts[order])))
    names = estimator.view_names_
    ax = new_axes(ax, (6.5, 0.9 + 0.35 * len(names)))
    for view in range(len(names)):
        has = patterns[order, view]
        spans = np.column_stack((edges[:-1], np.diff(edges)))[has]
        color = cluster_color(view)
        ax.broken_barh([(start, width) for start, width in spans], (view - 0.4, 0.8), color=color)
        total = f" {table[:, view].sum()}"
        ax.annotate(total, (1.0, view), xycoords=("axes fraction", "data"), va="center")
    ax.set_yticks(range(len(names)), list(names))
    ax.set(xlabel="samples", xlim=(0, len(table)), ylim=(len(names) - 0.5, -0.5))
    return ax


def _check_length(values: NDArray[Any], estimator: MSCAM, name: str) -> None:
    if values.shape != estimator.labels_.shape:
        raise DataError(
            f"{name} has shape {values.shape}; allowed is one value for each of the "
            f"{len(estimator.labels_)} samples."
        )


def _scatter(
    ax: Axes,
    places: NDArray[np.float64],
    estimator: MSCAM,
    rows: NDArray[np.int64],
    color: ArrayLike | None,
) -> None:
    """Samples by cluster with its number, or by a property with a legend or color bar."""
    size = float(np.clip(12000 / len(places), 7, 30))
    if color is None:
        draw_clusters(ax, places, estimator.labels_[rows], size=size)
        return
    _check_length(np.asarray(color), estimator, "color")
    whole, categories = sample_property(color)
    values, missing = whole[rows], np.isnan(whole[rows])
    if missing.any():
        ax.scatter(*places[missing].T, s=size, color=_MISSING, linewidths=0, label="missing")
    if categories is None:
        known = values[~missing]
        points = ax.scatter(*places[~missing].T, s=size, c=known, cmap="viridis", linewidths=0)
        figure = ax.get_figure(root=False)
        assert figure is not None
        figure.colorbar(points, ax=ax, shrink=0.7)
        return
    for index, name in enumerate(categories):
        own = places[values == index]
        if len(own):
            ax.scatter(*own.T, s=size, color=cluster_color(index), linewidths=0, label=name)
    add_legend(ax)


# experiments -------------------------------------------------------------------------------------


_JITTER = 0.16  # of the dots of data sets beside each other


def ranks(
    experiment: str | os.PathLike[str],
    ax: Axes | None = None,
    *,
    score: str = "adjusted_rand_index",
) -> Axes:
    """Draw the rank of each method on each data set of a comparison, and the mean over data sets.

    Parameters
    ----------
    experiment : path
        Directory of ``mscam-dask compare``.
    ax : Axes, optional
    score : str, default="adjusted_rand_index"
        Score whose mean over runs is ranked.

    Raises
    ------
    ConfigurationError
        There is no such score.
    DataError
        There is no experiment, or no data set has the score of two methods.

    Notes
    -----
    Rank 1 is the best. Methods with the same score share the mean of their ranks. Data sets on which a
    method has no score are left out, and the axis says how many are counted. Rows of protocol "grid", whose
    parameters are chosen with labels, have no rank.
    """
    record, titles = _record(experiment)
    rows = [row for row in record["rows"] if row["protocol"] == "defaults"]
    known = sorted({name for row in rows for name in row["scores"]})
    if rows and score not in known:
        raise ConfigurationError(f"score={score!r} is not in the rows; allowed are {known}.")
    means: dict[str, dict[str, float | None]] = {row["method"]: {} for row in rows}
    for row in rows:
        means[row["method"]][row["dataset"]] = row["scores"].get(score, {}).get("mean")
    table = pd.DataFrame(means, dtype=float).dropna()
    if table.shape[1] < 2 or table.empty:
        raise DataError(
            f"{os.fspath(experiment)} has no data set with {score} of two methods or more with their defaults, "
            "so there are no ranks. Give a comparison of several methods."
        )
    found = table.rank(axis=1, ascending=False)
    average = found.mean().sort_values(kind="stable")
    ax = new_axes(ax, (6.0, 1.1 + 0.38 * len(average)))
    spread = np.linspace(-_JITTER, _JITTER, len(table)) if len(table) > 1 else np.zeros(1)
    for place, (method, mean) in enumerate(average.items()):
        style: dict[str, Any] = {"s": 14, "alpha": 0.5, "linewidths": 0}
        ax.scatter(found[method], place + spread, color=CLUSTER_COLORS[0], **style)
        ax.scatter([mean], [place], s=70, marker="D", color=CLUSTER_COLORS[2], zorder=3)
        right = ("axes fraction", "data")
        ax.annotate(f" {mean:.2f}", (1.0, place), xycoords=right, va="center")
    ax.set_yticks(range(len(average)), [titles[method] for method in average.index])
    name = score.replace("_", " ")
    ax.set(
        xlabel=f"rank by {name} on {len(table)} data set(s); diamonds: mean",
        xlim=(0.5, len(average) + 0.5),
        ylim=(len(average) - 0.5, -0.5),
    )
    ax.locator_params(axis="x", integer=True)
    return ax


def robustness(experiment: str | os.PathLike[str], ax: Axes | None = None) -> Axes:
    """Draw the accuracy of each method over the share of samples that is corrupted in each view.

    Parameters
    ----------
    experiment : path
        Directory of a robustness experiment.
    ax : Axes, optional

    Raises
    ------
    DataError
        There is no experiment, or it has no such curves.

    Notes
    -----
    Areas are one standard deviation over runs; curves of protocol "grid" are dashed.
    """
    record, titles = _record(experiment)
    if not record["curves"]:
        raise DataError(
            f"{os.fspath(experiment)} is a {record['kind']} experiment without curves; give a robustness "
            "experiment."
        )
    methods = list(dict.fromkeys(curve["method"] for curve in record["curves"]))
    ax = new_axes(ax, (6.5, 3.8))
    for curve in record["curves"]:
        shares, mean, std = (
            np.array(curve[key], float) for key in ("corruption_rate", "mean", "std")
        )
        color = cluster_color(methods.index(curve["method"]))
        line, more = ("--", " (grid)") if curve["protocol"] == "grid" else ("-", "")
        style = {"color": color, "linestyle": line, "marker": "o", "markersize": 4}
        ax.plot(shares, mean, label=titles[curve["method"]] + more, **style)
        width = np.nan_to_num(std)
        ax.fill_between(shares, mean - width, mean + width, color=color, alpha=0.15, linewidth=0)
    ax.set(xlabel="corrupted share of the samples", ylabel="accuracy")
    add_legend(ax)
    return ax


def _record(experiment: str | os.PathLike[str]) -> tuple[Mapping[str, Any], dict[str, str]]:
    """Return experiment.json of a directory, and the titles of its methods."""
    file = Path(experiment) / "experiment.json"
    try:
        record: dict[str, Any] = json.loads(read_regular(file))
        if record["format"] != "mscam_dask.experiment":
            raise ValueError("it is no record of an experiment")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"{file} cannot be read ({error}). Give the directory of mscam-dask compare."
        ) from error
    return record, {method["name"]: method["title"] for method in record["methods"]}

"""Pictures of a finished experiment: ranks of the methods, and their robustness."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import rankdata

from mscam_dask.data.store.filesystem import read_regular
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.plot.palette import CLUSTER_COLORS, cluster_color
from mscam_dask.plot.pictures import add_legend, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PROTOCOLS = ("defaults", "grid")
_JITTER = 0.16  # of the dots of data sets beside each other


def ranks(
    experiment: str | os.PathLike[str],
    ax: Axes | None = None,
    *,
    score: str = "adjusted_rand_index",
    protocol: str = "defaults",
) -> Axes:
    """Draw the rank of each method on each data set of a comparison, and the mean over data sets.

    Parameters
    ----------
    experiment : path
        Directory of ``mscam-dask compare``.
    ax : Axes, optional
    score : str, default="adjusted_rand_index"
        Score whose mean over runs is ranked.
    protocol : {"defaults", "grid"}, default="defaults"
        "grid" parameters are chosen with labels.

    Raises
    ------
    ConfigurationError
        There is no such protocol or score.
    DataError
        There is no experiment, or no data set has the score of two methods.

    Notes
    -----
    Rank 1 is the best. Methods with the same score share the mean of their ranks. Data sets on which a
    method has no score are left out, and the axis says how many are counted.
    """
    if protocol not in _PROTOCOLS:
        raise ConfigurationError(f"protocol={protocol!r}; allowed are {list(_PROTOCOLS)}.")
    record = _record(experiment)
    rows = [row for row in record["rows"] if row["protocol"] == protocol]
    known = sorted({name for row in rows for name in row["scores"]})
    if rows and score not in known:
        raise ConfigurationError(f"score={score!r} is not in the rows; allowed are {known}.")
    means = {
        (row["dataset"], row["method"]): (row["scores"].get(score) or {}).get("mean")
        for row in rows
    }
    methods = list(dict.fromkeys(row["method"] for row in rows))
    datasets = [
        name
        for name in dict.fromkeys(row["dataset"] for row in rows)
        if all(means.get((name, method)) is not None for method in methods)
    ]
    if len(methods) < 2 or not datasets:
        raise DataError(
            f"{os.fspath(experiment)} has no data set with {score} of two methods or more under protocol "
            f"{protocol!r}, so there are no ranks. Give a comparison of several methods."
        )
    table = np.array(
        [[means[name, method] for method in methods] for name in datasets], dtype=float
    )
    found = rankdata(-table, axis=1)
    average = found.mean(axis=0)
    order = np.argsort(average, kind="stable")
    titles = _titles(record)
    ax = new_axes(ax, (6.0, 1.1 + 0.38 * len(methods)))
    for place, method in enumerate(order.tolist()):
        own = found[:, method]
        spread = np.linspace(-_JITTER, _JITTER, len(own)) if len(own) > 1 else np.zeros(1)
        ax.scatter(own, place + spread, s=14, color=CLUSTER_COLORS[0], alpha=0.5, linewidths=0)
        ax.scatter([average[method]], [place], s=70, marker="D", color=CLUSTER_COLORS[2], zorder=3)
        ax.annotate(
            f" {average[method]:.2f}",
            (1.0, place),
            xycoords=("axes fraction", "data"),
            va="center",
        )
    ax.set_yticks(range(len(methods)), [titles[methods[method]] for method in order])
    name = score.replace("_", " ")
    ax.set(
        xlabel=f"rank by {name} on {len(datasets)} data set(s); diamonds: mean",
        xlim=(0.5, len(methods) + 0.5),
        ylim=(len(methods) - 0.5, -0.5),
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
    record = _record(experiment)
    if not record["curves"]:
        raise DataError(
            f"{os.fspath(experiment)} is a {record['kind']} experiment without curves; give a robustness "
            "experiment."
        )
    titles = _titles(record)
    methods = list(dict.fromkeys(curve["method"] for curve in record["curves"]))
    ax = new_axes(ax, (6.5, 3.8))
    for curve in record["curves"]:
        shares, mean, std = (
            np.array([np.nan if value is None else value for value in curve[name]], dtype=float)
            for name in ("corruption_rate", "mean", "std")
        )
        color = cluster_color(methods.index(curve["method"]))
        is_grid = curve["protocol"] == "grid"
        ax.plot(
            shares,
            mean,
            marker="o",
            markersize=4,
            color=color,
            linestyle="--" if is_grid else "-",
            label=titles[curve["method"]] + (" (grid)" if is_grid else ""),
        )
        width = np.nan_to_num(std)
        ax.fill_between(shares, mean - width, mean + width, color=color, alpha=0.15, linewidth=0)
    ax.set(xlabel="corrupted share of the samples", ylabel="accuracy")
    add_legend(ax)
    return ax


def _record(experiment: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Return experiment.json of a directory."""
    file = Path(experiment) / "experiment.json"
    try:
        record = json.loads(read_regular(file))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{file} cannot be read ({error}). Give the directory of mscam-dask compare."
        ) from error
    if not isinstance(record, dict) or record.get("format") != "mscam_dask.experiment":
        raise DataError(
            f"{file} is not a record of an experiment. Give the directory of mscam-dask compare."
        )
    return record


def _titles(record: Mapping[str, Any]) -> dict[str, str]:
    return {method["name"]: method["title"] for method in record["methods"]}

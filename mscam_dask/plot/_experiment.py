"""Pictures of a finished experiment: ranks of the methods, and their robustness."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mscam_dask.data.store.filesystem import read_regular
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.plot.pictures import CLUSTER_COLORS, add_legend, cluster_color, new_axes

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
        row["method"]: {
            each["dataset"]: (each["scores"].get(score) or {}).get("mean")
            for each in rows
            if each["method"] == row["method"]
        }
        for row in rows
    }
    table = pd.DataFrame(means, dtype=float).dropna()
    if table.shape[1] < 2 or table.empty:
        raise DataError(
            f"{os.fspath(experiment)} has no data set with {score} of two methods or more under protocol "
            f"{protocol!r}, so there are no ranks. Give a comparison of several methods."
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
    titles = _titles(record)
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


def _record(experiment: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Return experiment.json of a directory."""
    file = Path(experiment) / "experiment.json"
    try:
        record: dict[str, Any] = json.loads(read_regular(file))
        if record["format"] != "mscam_dask.experiment":
            raise ValueError("it is no record of an experiment")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"{file} cannot be read ({error}). Give the directory of mscam-dask compare."
        ) from error
    return record


def _titles(record: Mapping[str, Any]) -> dict[str, str]:
    return {method["name"]: method["title"] for method in record["methods"]}

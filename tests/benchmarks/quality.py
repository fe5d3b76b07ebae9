"""Defaults on benchmark sets, as Markdown tables: ``python -m tests.benchmarks.quality [NAME ...]``.

The second table is of the confidence: the AUC with which 1 − confidence tells wrongly assigned samples, its mean, and
the share of right samples among those of a confidence. Reads ``NAME.npz`` from the folder that MSCAM_DATA names. Labels
are used for the scores only.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections import Counter

import numpy as np
import scipy
import sklearn
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from mscam_dask import MSCAM, __version__
from mscam_dask.metrics import matched_labels, score_partition
from tests.benchmark_sets import NAMES, read_set
from tests.benchmarks.tables import write_head, write_row


def prepared(model: MSCAM) -> str:
    """Number of views with each scale and alpha: 4 unit 10, 2 standard 1."""
    counts = Counter((setting.scale, setting.alpha) for setting in model.view_settings_.values())
    return ", ".join(f"{count} {scale} {alpha:g}" for (scale, alpha), count in counts.most_common())


def initial_graph(model: MSCAM) -> str:
    """The initial graph, if it is not the mean graph."""
    solution = model.solution_
    both = solution.settings[solution.chosen].initial_graph == "mixed"
    return "and in each view " if both else ""


BARS = {
    "handwritten": 0.95,
    "msrcv1": 0.85,
    "bbc": 0.70,
    "reuters1200": 0.65,
    "prokaryotic": 0.58,
}
"""Least AUC that was asked for."""

_FIFTHS = ("0.0 to 0.2", "0.2 to 0.4", "0.4 to 0.6", "0.6 to 0.8", "0.8 to 1.0")


def confidence(labels: NDArray[np.int64], model: MSCAM) -> tuple[float, float, list[str]]:
    """AUC of 1 − confidence for the wrong samples, mean confidence, and share of right samples by its fifths."""
    found = model.confidence_
    right = matched_labels(labels, model.labels_) == labels
    fifth = np.minimum((len(_FIFTHS) * found).astype(int), len(_FIFTHS) - 1)
    shares = [right[fifth == index] for index in range(len(_FIFTHS))]
    auc = float(roc_auc_score(~right, 1.0 - found))
    return auc, float(found.mean()), [f"{one.mean():.2f}" if one.size else "-" for one in shares]


def rows(name: str) -> tuple[list[object], list[object]]:
    """Cells of a line of each table."""
    views, labels, kinds, _ = data = read_set(name)
    model = MSCAM(data.n_clusters, view_type=kinds)
    started = time.perf_counter()
    model.fit(views)
    seconds = time.perf_counter() - started
    scores = score_partition(labels, model.labels_)
    found = [scores.accuracy, scores.normalized_mutual_information]
    found += [scores.adjusted_rand_index, scores.purity]
    auc, mean, shares = confidence(labels, model)
    told: list[object] = [name, scores.accuracy, auc, BARS.get(name, "-"), mean, *shares]
    line = [
        *(name, len(labels), len(views), data.n_clusters, model.n_connected_components_),
        *(f"{value:.4f}" for value in found),
        *(f"{seconds:.1f}", f"{prepared(model)}, {model.n_neighbors_} {initial_graph(model)}"),
        model.status_.name.lower().replace("_", " "),
    ]
    return line, told


def main() -> None:
    """Print the versions, and the tables, the first line by line."""
    sys.stdout.write(
        f"mscam_dask {__version__}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"SciPy {scipy.__version__}, scikit-learn {sklearn.__version__}; "
        f"{len(os.sched_getaffinity(0))} cores, in process, random_state=0\n\n"
    )
    write_head(
        *("data set", "n", "views", "c", "components", "ACC", "NMI", "ARI", "purity", "seconds"),
        *("scale, alpha, k taken", "how"),
    )
    told = []
    for name in sys.argv[1:] or NAMES:
        line, of_confidence = rows(name)
        write_row(*line)
        told.append(of_confidence)
    sys.stdout.write("\n")
    write_head("set", "accuracy", "AUC", "asked", "mean confidence", *_FIFTHS)
    for of_confidence in told:
        write_row(*of_confidence)


if __name__ == "__main__":
    main()

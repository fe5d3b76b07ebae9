"""Defaults on benchmark sets, as a Markdown table: ``python -m tests.benchmarks.quality [NAME ...]``.

Reads ``NAME.npz`` from the folder that MSCAM_DATA names. Labels are used for the scores only.
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

from mscam_dask import MSCAM, __version__
from mscam_dask.metrics import score_partition
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


def row(name: str) -> list[object]:
    """Cells of one line of the table."""
    views, labels, kinds, _ = data = read_set(name)
    model = MSCAM(data.n_clusters, view_type=kinds)
    started = time.perf_counter()
    model.fit(views)
    seconds = time.perf_counter() - started
    scores = score_partition(labels, model.labels_)
    found = [scores.accuracy, scores.normalized_mutual_information]
    found += [scores.adjusted_rand_index, scores.purity]
    return [
        *(name, len(labels), len(views), data.n_clusters, model.n_connected_components_),
        *(f"{value:.4f}" for value in found),
        *(f"{seconds:.1f}", f"{prepared(model)}, {model.n_neighbors_} {initial_graph(model)}"),
        model.status_.name.lower().replace("_", " "),
    ]


def main() -> None:
    """Print the versions, and the table line by line."""
    sys.stdout.write(
        f"mscam_dask {__version__}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"SciPy {scipy.__version__}, scikit-learn {sklearn.__version__}; "
        f"{len(os.sched_getaffinity(0))} cores, in process, random_state=0\n\n"
    )
    write_head(
        *("data set", "n", "views", "c", "components", "ACC", "NMI", "ARI", "purity", "seconds"),
        *("scale, alpha, k taken", "how"),
    )
    for name in sys.argv[1:] or NAMES:
        write_row(*row(name))


if __name__ == "__main__":
    main()

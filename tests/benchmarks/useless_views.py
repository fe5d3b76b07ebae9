"""Uninformative views added to benchmark sets, with several methods: ``python -m tests.benchmarks.useless_views``.

Views of noise (fifty standard normal columns), and copies of the set's own views with the samples in another
order. Labels are used for the scores only. Prints a Markdown table of the mean ARI over the sets, by the
added views; docs/decisions/0014 uses the results.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from mscam_dask import MSCAM
from mscam_dask.benchmark.methods import method
from mscam_dask.errors import DataWarning
from mscam_dask.metrics import adjusted_rand_index
from tests.benchmark_sets import read_set

Array = NDArray[np.float64]

PEERS = ["knn-sc", "mlan", "mmsc", "lmvsc", "smvsc", "sc-concat"]

# Sets of three views or more, small enough for all methods.
SETS = ["msrcv1", "ngs", "bbc", "prokaryotic", "proteinfold", "reuters1200", "handwritten"]

_COLUMNS = 50

# How many views of noise and reordered ones are added to V views.
_ADDED: dict[str, Callable[[int], tuple[int, int]]] = {
    "nothing": lambda n_views: (0, 0),
    "one of noise": lambda n_views: (1, 0),
    "V of noise": lambda n_views: (n_views, 0),
    "2V of noise": lambda n_views: (2 * n_views, 0),
    "one reordered": lambda n_views: (0, 1),
    "all reordered": lambda n_views: (0, n_views),
}

# Peers are scored with the better of the two, by the labels.
_SCALES = ("standard", "unit")


def with_useless_views(views: Sequence[Array], added: str) -> list[Array]:
    """The views and the added ones, the same in every call."""
    rng = np.random.default_rng(0)
    n_samples = len(views[0])
    n_noise, n_reordered = _ADDED[added](len(views))
    noise = [rng.standard_normal((n_samples, _COLUMNS)) for _ in range(n_noise)]
    reordered = [np.asarray(view)[rng.permutation(n_samples)] for view in views[:n_reordered]]
    return [*views, *noise, *reordered]


def _ari(name: str, views: list[Array], labels: NDArray[np.int64]) -> float:
    c = int(labels.max()) + 1
    models = (
        [MSCAM(c)]
        if name == "mscam"
        else [method(name).make(c, 0, {"scale": scale}) for scale in _SCALES]
    )
    return max(adjusted_rand_index(labels, model.fit_predict(views)) for model in models)


def main(arguments: Sequence[str] | None = None) -> dict[str, list[float]]:
    """Print the table, and return the mean ARI of each method by the added views."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=["mscam", *PEERS])
    parser.add_argument("--sets", nargs="+", default=SETS)
    options = parser.parse_args(arguments)
    write = sys.stdout.write
    write(f"| method | {' | '.join(_ADDED)} |\n")
    write("|---" * (1 + len(_ADDED)) + "|\n")
    means: dict[str, list[float]] = {}
    for name in options.methods:
        by_added = []
        for added in _ADDED:
            scores = []
            for of_set in options.sets:
                data = read_set(of_set)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DataWarning)
                    scores.append(_ari(name, with_useless_views(data.views, added), data.labels))
                sys.stderr.write(f"{name}, {added}, {of_set}: {scores[-1]:.3f}\n")
            by_added.append(float(np.mean(scores)))
        means[name] = by_added
        write(f"| {name} | {' | '.join(f'{value:.3f}' for value in by_added)} |\n")
        sys.stdout.flush()
    return means


if __name__ == "__main__":
    main()

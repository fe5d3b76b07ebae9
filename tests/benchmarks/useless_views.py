"""Uninformative views added to benchmark sets, with several methods: ``python -m tests.benchmarks.useless_views``.

Views of noise (fifty standard normal columns), and copies of the set's own views with the samples in another
order. Labels are used for the scores only. Prints the mean ARI over the sets, by the added views;
docs/decisions/0014 uses the results.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tests.benchmark_sets import read_set
from tests.benchmarks.tables import PEERS, ari, write_head, write_row

Array = NDArray[np.float64]

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


def with_useless_views(views: Sequence[Array], added: str) -> list[Array]:
    """The views and the added ones, the same in every call."""
    rng = np.random.default_rng(0)
    n_samples = len(views[0])
    n_noise, n_reordered = _ADDED[added](len(views))
    noise = [rng.standard_normal((n_samples, _COLUMNS)) for _ in range(n_noise)]
    reordered = [np.asarray(view)[rng.permutation(n_samples)] for view in views[:n_reordered]]
    return [*views, *noise, *reordered]


def main(arguments: Sequence[str] | None = None) -> dict[str, list[float]]:
    """Print the table, and return the mean ARI of each method by the added views."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", default=["mscam", *PEERS])
    parser.add_argument("--sets", nargs="+", default=SETS)
    options = parser.parse_args(arguments)
    write_head("method", *_ADDED)
    means: dict[str, list[float]] = {}
    for name in options.methods:
        means[name] = []
        for added in _ADDED:
            scores = [
                ari(
                    name,
                    with_useless_views(data.views, added),
                    data.labels,
                    scales=("standard", "unit"),
                )
                for data in map(read_set, options.sets)
            ]
            means[name].append(float(np.mean(scores)))
        write_row(name, *means[name])
    return means


if __name__ == "__main__":
    main()

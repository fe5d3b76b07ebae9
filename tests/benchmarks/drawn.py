"""Several methods on drawn data: ``python -m tests.benchmarks.drawn unequal`` or ``useless``.

Labels are used for the scores only. Prints the mean ARI of each method by the difficulty of the data:

- unequal: fifty-four mixtures of Gaussians in two to four views; the size of each cluster is a fixed share of the
  previous one, at least 15; by the separation of the centers;
- useless: benchmark sets with views of noise (fifty standard normal columns) or copies of their own views with the samples
  in another order, by the added views; docs/decisions/0014 uses the results.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tests.benchmark_sets import read_set
from tests.benchmarks.tables import PEERS, ari, write_head, write_row

Array = NDArray[np.float64]
Case = tuple[str, list[Array], NDArray[np.int64]]
"""Column of the table, views, labels."""

# Number of clusters, and the ratio of each size to the previous one.
_SHAPES = [(3, 0.3), (4, 0.5), (5, 0.4), (6, 0.6), (8, 0.7), (12, 0.8)]
_SIZES = [500, 1500, 3000]
_SEPARATIONS = [0.7, 1.0, 1.6]
_MIN = 15

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


def mixtures(sizes: Sequence[int] = _SIZES) -> Iterator[Case]:
    """Mixtures by the separation of their clusters; every fourth also has a view of noise."""
    drawn = 0
    for n_clusters, ratio in _SHAPES:
        for n_samples in sizes:
            for separation in _SEPARATIONS:
                rng = np.random.default_rng(drawn)
                shares = ratio ** np.arange(n_clusters)
                counts = np.maximum(_MIN, (shares / shares.sum() * n_samples).astype(int))
                labels = np.repeat(np.arange(n_clusters), counts)
                rng.shuffle(labels)
                views = []
                n_views = int(rng.integers(2, 4))
                for d in rng.choice([5, 10, 20, 40], size=n_views, replace=False):
                    widths = np.exp(0.4 * rng.standard_normal((n_clusters, d)))
                    rows = rng.standard_normal((len(labels), d)) * widths[labels]
                    centers = rng.standard_normal((n_clusters, d))
                    views.append(rows + separation * np.sqrt(20 / d) * centers[labels])
                if drawn % 4 == 0:
                    views.append(rng.standard_normal((len(labels), 15)))
                yield str(separation), views, labels
                drawn += 1


def with_useless_views(views: Sequence[Array], added: str) -> list[Array]:
    """The views and the added ones, the same in every call."""
    rng = np.random.default_rng(0)
    n_samples = len(views[0])
    n_noise, n_reordered = _ADDED[added](len(views))
    noise = [rng.standard_normal((n_samples, _COLUMNS)) for _ in range(n_noise)]
    reordered = [np.asarray(view)[rng.permutation(n_samples)] for view in views[:n_reordered]]
    return [*views, *noise, *reordered]


def with_added_views(sets: Sequence[str] = SETS) -> Iterator[Case]:
    """Benchmark sets by the views that are added."""
    for added in _ADDED:
        for data in map(read_set, sets):
            yield added, with_useless_views(data.views, added), data.labels


def means(
    methods: Sequence[str], cases: Callable[[], Iterator[Case]], scales: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Print the table, and return the mean ARI of each method by column."""
    found: dict[str, dict[str, float]] = {}
    for name in methods:
        scores: dict[str, list[float]] = {}
        for column, views, labels in cases():
            scores.setdefault(column, []).append(ari(name, views, labels, scales=scales))
        if not found:
            write_head("method", *scores, "mean")
        found[name] = {column: float(np.mean(some)) for column, some in scores.items()}
        write_row(name, *found[name].values(), float(np.mean([*found[name].values()])))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of one kind of data."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["unequal", "useless"])
    parser.add_argument("--methods", nargs="+", default=["mscam", *PEERS])
    options = parser.parse_args(arguments)
    if options.kind == "unequal":
        means(options.methods, mixtures, ["standard"])
    else:
        means(options.methods, with_added_views, ["standard", "unit"])


if __name__ == "__main__":
    main()

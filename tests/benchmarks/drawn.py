"""Drawn data for `tests.benchmarks.unseen`, named by what makes them difficult.

- unequal: fifty-four mixtures of Gaussians in two to four views, by the separation of the centers; the size of each
  cluster is a fixed share of the previous one, at least 15;
- useless: benchmark sets with views of noise (fifty standard normal columns) or copies of their own views with the samples
  in another order, by the added views; docs/decisions/0014 uses the results.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tests.benchmark_sets import read_set
from tests.benchmarks.unseen_packages import Array, Data

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


def mixtures(sizes: Sequence[int] = _SIZES) -> list[Data]:
    """Mixtures in the order of the separation of their clusters; every fourth also has a view of noise."""
    found: list[Data] = []
    for n_clusters, ratio in _SHAPES:
        for n_samples in sizes:
            for separation in _SEPARATIONS:
                rng = np.random.default_rng(len(found))
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
                if len(found) % 4 == 0:
                    views.append(rng.standard_normal((len(labels), 15)))
                found.append((str(separation), views, labels))
    return sorted(found, key=operator.itemgetter(0))


def with_useless_views(views: Sequence[Array], added: str) -> list[Array]:
    """The views and the added ones, the same in every call."""
    rng = np.random.default_rng(0)
    n_samples = len(views[0])
    n_noise, n_reordered = _ADDED[added](len(views))
    noise = [rng.standard_normal((n_samples, _COLUMNS)) for _ in range(n_noise)]
    reordered = [np.asarray(view)[rng.permutation(n_samples)] for view in views[:n_reordered]]
    return [*views, *noise, *reordered]


def with_added_views(sets: Sequence[str] = SETS) -> Iterator[Data]:
    """Benchmark sets by the views that are added."""
    for added in _ADDED:
        for data in map(read_set, sets):
            yield added, with_useless_views(data.views, added), data.labels

"""Clusters of very unequal size, with the defaults of several methods: ``python -m tests.benchmarks.unequal``.

Fifty-four mixtures of Gaussians in two to four views; the size of each cluster is a fixed share of the previous one,
at least 15. Labels are used for the scores only. Prints the mean ARI by the separation of the centers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.tables import PEERS, ari, write_head, write_row

Array = NDArray[np.float64]

# Number of clusters, and the ratio of each size to the previous one.
_SHAPES = [(3, 0.3), (4, 0.5), (5, 0.4), (6, 0.6), (8, 0.7), (12, 0.8)]

_SIZES = [500, 1500, 3000]
_SEPARATIONS = [0.7, 1.0, 1.6]
_MIN = 15


def mixtures(
    sizes: Sequence[int] = _SIZES,
) -> Iterator[tuple[float, list[Array], NDArray[np.int64]]]:
    """Separation, views and labels of each; every fourth also has a view of noise."""
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
                yield separation, views, labels
                drawn += 1


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Print the table, and return the mean ARI of each method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", default=["mscam", *PEERS])
    parser.add_argument("--sizes", nargs="+", type=int, default=_SIZES)
    parser.add_argument("--separations", nargs="+", type=float, default=_SEPARATIONS)
    options = parser.parse_args(arguments)
    write_head("method", *map(str, options.separations), "mean")
    means = {}
    for name in options.methods:
        scores: dict[float, list[float]] = {value: [] for value in options.separations}
        for separation, views, labels in mixtures(options.sizes):
            if separation in scores:
                scores[separation].append(ari(name, views, labels))
        by_separation = [float(np.mean(some)) for some in scores.values()]
        means[name] = float(np.mean(by_separation))
        write_row(name, *by_separation, means[name])
    return means


if __name__ == "__main__":
    main()

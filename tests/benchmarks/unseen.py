"""Defaults of several methods on data that no decision used: ``python -m tests.benchmarks.unseen``.

The data are

- packages: part of packages (`tests.benchmarks.unseen_packages`);
- unequal: fifty-four mixtures of Gaussians in two to four views, by the separation of the centers; the size of each
  cluster is a fixed share of the previous one, at least 15;
- useless: benchmark sets with views of noise (fifty standard normal columns) or copies of their own views with the samples
  in another order, by the added views; docs/decisions/0014 uses the results;
- or all .npz files of a folder, with arrays view_0, view_1 ... and labels.

Labels are used for the scores only. Prints the mean ARI over seeds, and over the sets of one name. docs/results.md lists
the sets that were used for a decision.
"""

from __future__ import annotations

import argparse
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from tests.benchmark_sets import read_set
from tests.benchmarks.tables import PEERS, ari, write_head, write_row
from tests.benchmarks.unseen_packages import Array, Data, coded, from_packages

# Number of clusters, and the ratio of each size to the previous one.
_SHAPES = [(3, 0.3), (4, 0.5), (5, 0.4), (6, 0.6), (8, 0.7), (12, 0.8)]
_SIZES = [500, 1500, 3000]
_SEPARATIONS = [0.7, 1.0, 1.6]
_MIN = 15

# Sets of three views or more, small enough for all methods.
_SETS = ["msrcv1", "ngs", "bbc", "prokaryotic", "proteinfold", "reuters1200", "handwritten"]
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


def mixtures() -> list[Data]:
    """Mixtures in the order of the separation of their clusters; every fourth also has a view of noise."""
    found: list[Data] = []
    for n_clusters, ratio in _SHAPES:
        for n_samples in _SIZES:
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


def with_added_views() -> Iterator[Data]:
    """Benchmark sets by the views that are added."""
    for added in _ADDED:
        for data in map(read_set, _SETS):
            yield added, with_useless_views(data.views, added), data.labels


DATA: dict[str, Callable[[], Iterable[Data]]] = {
    "packages": from_packages,
    "unequal": mixtures,
    "useless": with_added_views,
}

# With fewer, draws of some samples of each are too small to tell methods apart.
_MIN_CLASSES = 3


def from_folder(folder: Path) -> Iterator[Data]:
    """Data sets of .npz files: view_0, view_1 ... and labels."""
    for file in sorted(folder.glob("*.npz")):
        with np.load(file) as held:
            names = [f"view_{i}" for i in range(len(held.files)) if f"view_{i}" in held.files]
            yield file.stem, [held[name] for name in names], coded(held["labels"])


def drawn(data: Data, per_class: int, seed: int) -> Data:
    """`per_class` samples of every class that has as many."""
    name, views, labels = data
    rng = np.random.default_rng(seed)
    of_class = [np.flatnonzero(labels == label) for label in range(labels.max() + 1)]
    chosen = [
        rng.choice(rows, per_class, replace=False) for rows in of_class if len(rows) >= per_class
    ]
    rows = np.sort(np.array(chosen, dtype=np.int64).ravel())
    return name, [view[rows] for view in views], coded(labels[rows])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table line by line and the mean over its lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", choices=DATA, default="packages")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=["mscam", *PEERS, "coreg"])
    parser.add_argument(
        "--scales", nargs="+", default=["standard"], help="of the peers, the better: standard, unit"
    )
    parser.add_argument("--folder", type=Path, help="of .npz files, instead of the data")
    parser.add_argument("--only", nargs="+", help="names of data sets, as in the table")
    parser.add_argument(
        "--per-class", type=int, help="draw so many samples of each class, of three classes or more"
    )
    options = parser.parse_args(arguments)
    write_head("data set", "n", "views", "c", *options.methods)
    means = []
    found = from_folder(options.folder) if options.folder else DATA[options.data]()
    for name, sets in itertools.groupby(found, key=operator.itemgetter(0)):
        if options.only and name not in options.only:
            continue
        draws = [
            (seed, drawn(data, options.per_class, seed) if options.per_class else data)
            for data in sets
            for seed in range(options.seeds)
        ]
        _, (_, views, labels) = draws[0]
        n_classes = len(np.unique(labels))
        if options.per_class and n_classes < _MIN_CLASSES:
            continue
        scores = [
            [
                ari(one, draw[1], draw[2], seed=seed, scales=options.scales)
                for one in options.methods
            ]
            for seed, draw in draws
        ]
        means.append(np.mean(scores, axis=0))
        sizes = (len(labels), len(views), n_classes) if len(draws) == options.seeds else ("",) * 3
        write_row(name, *sizes, *map(float, means[-1]))
    write_row("mean", "", "", "", *map(float, np.mean(means, axis=0)))


if __name__ == "__main__":
    main()

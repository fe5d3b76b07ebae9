"""Defaults of several methods on data that no decision used: ``python -m tests.benchmarks.unseen``.

The data are part of packages (`tests.benchmarks.unseen_packages`), ``unequal`` or ``useless``
(`tests.benchmarks.drawn`), or all .npz files of a folder, with arrays view_0, view_1 ... and labels. Labels are used for
the scores only. Prints the mean ARI over seeds, and over the sets of one name. docs/results.md lists the sets that were
used for a decision.
"""

from __future__ import annotations

import argparse
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from tests.benchmarks.drawn import mixtures, with_added_views
from tests.benchmarks.tables import PEERS, ari, write_head, write_row
from tests.benchmarks.unseen_packages import Data, coded, from_packages

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


def main(arguments: Sequence[str] | None = None) -> dict[str, list[float]]:
    """Print the table line by line and the mean over its lines, and return the scores of each line."""
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
    means: dict[str, list[float]] = {}
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
        means[name] = [
            float(
                np.mean(
                    [
                        ari(one, draw[1], draw[2], seed=seed, scales=options.scales)
                        for seed, draw in draws
                    ]
                )
            )
            for one in options.methods
        ]
        sizes = (len(labels), len(views), n_classes) if len(draws) == options.seeds else ("",) * 3
        write_row(name, *sizes, *means[name])
    write_row("mean", "", "", "", *map(float, np.mean([*means.values()], axis=0)))
    return means


if __name__ == "__main__":
    main()

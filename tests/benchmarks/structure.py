"""Borders on the benchmark sets, and noise: ``python -m tests.benchmarks.structure [NAME ...]``.

Prints two Markdown tables: for each set, accuracy and adjusted Rand index beside the clusters that are separated, the
neighbor overlap, and whether the fit warned (labels are used for the evaluation only); then for each draw of
noise (normal, uniform, benchmark views with the samples of each view in another order), the number of clusters that
"auto" gives, the largest neighbor overlap, the smallest p-value of a number, and whether the fit warned. ``--noise``
prints the second table only, ``--sets`` the first.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from mscam_dask import MSCAM
from mscam_dask.errors import DataWarning, UnstableClustersWarning
from mscam_dask.types.result import Structure
from tests.benchmark_fits import fit_views
from tests.benchmark_sets import NAMES, read_set
from tests.benchmarks.confidence import is_wrong

__all__ = ["noise", "warned"]

_PERMUTED = ("msrcv1", "ngs", "prokaryotic", "bbc", "proteinfold", "caltech101_7")


def noise() -> Iterator[tuple[str, list[NDArray[np.float64]]]]:
    """Twenty draws of views without common clusters."""
    for seed in range(7):
        rng = np.random.default_rng(seed)
        n, widths = int(rng.integers(150, 600)), rng.integers(3, 60, size=int(rng.integers(1, 5)))
        yield f"normal {seed}", [rng.normal(size=(n, int(width))) for width in widths]
        yield f"uniform {seed}", [rng.uniform(size=(n, int(width))) for width in widths]
    for seed, name in enumerate(_PERMUTED):
        rng, data = np.random.default_rng(seed), read_set(name)
        views = [
            np.asarray(view, dtype=np.float64)
            for view, kind in zip(data.views, data.kinds, strict=True)
            if kind == "features"
        ]
        yield f"permuted {name}", [view[rng.permutation(len(view))] for view in views]


def warned(structure: Structure | None, found: list[warnings.WarningMessage]) -> str:
    """Kind of the warning of a fit; "no" without one."""
    if any(issubclass(one.category, UnstableClustersWarning | DataWarning) for one in found):
        return "no structure" if structure is Structure.NONE else "unstable"
    return "no"


def _sets(names: list[str]) -> None:
    write = sys.stdout.write
    columns = ["set", "accuracy", "ARI", "clusters", "separated", "overlap", "warned"]
    write(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n")
    for name in names:
        data = read_set(name)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            model = fit_views(data, data.names)
        accuracy = 1.0 - is_wrong(data.labels, model.labels_).mean()
        numbers = [accuracy, adjusted_rand_score(data.labels, model.labels_)]
        separated = f"{model.n_clusters_} | {len(model.standing_clusters_)}"
        overlap = max(model.neighbor_overlap_.values())
        told = f"{separated} | {overlap:.0f} | {warned(model.structure_, found)}"
        write(f"| {name} | {' | '.join(f'{number:.3f}' for number in numbers)} | {told} |\n")
        sys.stdout.flush()


def _noise() -> None:
    write = sys.stdout.write
    columns = ["draw", "samples", "views", "clusters", "overlap", "p-value", "warned", "seconds"]
    write(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n")
    for name, views in noise():
        started = time.process_time()
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            model = MSCAM("auto", n_jobs=1).fit(views)
        curves = model.n_clusters_curves_
        assert curves is not None
        overlap = f"{max(model.neighbor_overlap_.values()):.1f}" if model.neighbor_overlap_ else ""
        told = [len(views[0]), len(views), model.n_clusters_, overlap]
        told.append(f"{curves['p_value'].values.min():.2f}")
        told += [warned(model.structure_, found), f"{time.process_time() - started:.1f}"]
        write(f"| {name} | {' | '.join(map(str, told))} |\n")
        sys.stdout.flush()


def main(arguments: list[str]) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--noise", action="store_true")
    parser.add_argument("--sets", action="store_true")
    options = parser.parse_args(arguments)
    if not options.noise:
        _sets(list(options.names))
    if not options.sets:
        _noise()


if __name__ == "__main__":
    main(sys.argv[1:])

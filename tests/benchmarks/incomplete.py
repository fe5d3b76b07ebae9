"""Clusters of data with samples removed from views: ``python -m tests.benchmarks.incomplete``.

From each view of a benchmark set, a share of the samples is removed at random; a sample that would be in
no view is kept in one of them. The table has the mean ARI with the classes over the seeds of

- incomplete: a fit of all samples, rows of absent samples NaN;
- mean-filled: a fit of all samples, rows of absent samples the mean of the others;
- intersection: a fit of the samples that all views have, the others assigned by `predict`; "none" if
  there are too few of them for a fit;
- MOFA + k-means: k-means on the fifteen factors of MOFA, which takes absent samples as missing values
  (``pip install --no-deps mofapy2``; "none" without it);

and that of the first as a share of a fit of the complete data. With ``--quick``, MSRC-v1 and one seed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from mscam_dask import MSCAM
from mscam_dask.errors import ConfigurationError, MscamError
from mscam_dask.metrics import adjusted_rand_index
from tests.benchmark_sets import read_set
from tests.benchmarks.tables import write_head, write_row

SHARES = (0.1, 0.3, 0.5)

_FACTORS = 15
_ITERATIONS = 500

Labels = NDArray[np.int64]
Views = list[NDArray[np.float64]]


def removed(views: Sequence[NDArray[Any]], share: float, seed: int) -> Views:
    """Copies of the views with a share of the rows NaN, but none in all of them."""
    rng = np.random.default_rng(seed)
    n, n_views = len(views[0]), len(views)
    has = np.ones((n, n_views), dtype=np.bool_)
    for view in range(n_views):
        has[rng.choice(n, round(share * n), replace=False), view] = False
    nowhere = np.flatnonzero(~has.any(axis=1))
    has[nowhere, rng.integers(n_views, size=len(nowhere))] = True
    copies = [np.array(view, dtype=np.float64) for view in views]
    for index, copy in enumerate(copies):
        copy[~has[:, index]] = np.nan
    return copies


def incomplete(views: Views, n_clusters: int) -> Labels:
    """Labels of a fit of the incomplete views."""
    return MSCAM(n_clusters).fit(views).labels_


def mean_filled(views: Views, n_clusters: int) -> Labels:
    """Labels of a fit with absent rows replaced by the mean row."""
    filled = [np.where(np.isnan(view), np.nanmean(view, axis=0), view) for view in views]
    return MSCAM(n_clusters).fit(filled).labels_


def intersection(views: Views, n_clusters: int) -> Labels:
    """Labels of a fit of the samples in all views, and of `predict` for the others."""
    common = ~np.any([np.isnan(view).any(axis=1) for view in views], axis=0)
    model = MSCAM(n_clusters).fit([view[common] for view in views])
    labels = np.empty(len(common), dtype=np.int64)
    labels[common] = model.labels_
    labels[~common] = model.predict([view[~common] for view in views])
    return labels


def mofa(views: Views, n_clusters: int) -> Labels:
    """Labels of k-means on the factors of MOFA, of views scaled to unit variance."""
    try:
        from mofapy2.run.entry_point import entry_point
    except ImportError:
        raise ConfigurationError("mofapy2 is not installed") from None
    with contextlib.redirect_stdout(io.StringIO()):
        model = entry_point()
        model.set_data_options(scale_views=True)
        model.set_data_matrix([[view] for view in views], likelihoods=["gaussian"] * len(views))
        model.set_model_options(factors=_FACTORS)
        model.set_train_options(iter=_ITERATIONS, convergence_mode="fast", seed=0, quiet=True)
        model.build()
        model.run()
        factors = model.model.nodes["Z"].getExpectation()
    found = KMeans(n_clusters, n_init=20, random_state=0).fit_predict(factors)
    return np.asarray(found, dtype=np.int64)


METHODS: dict[str, Callable[[Views, int], Labels]] = {
    "incomplete": incomplete,
    "mean-filled": mean_filled,
    "intersection": intersection,
    "MOFA + k-means": mofa,
}


def score(method: str, views: Views, labels: Labels) -> float:
    """ARI of a method, NaN if it refuses the data."""
    try:
        found = METHODS[method](views, len(np.unique(labels)))
    except MscamError:
        return float("nan")
    return adjusted_rand_index(labels, found)


def main() -> None:
    """Print one row for each set and share."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sets", nargs="+", default=["handwritten", "msrcv1"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    sets, seeds = (["msrcv1"], 1) if options.quick else (options.sets, options.seeds)
    warnings.simplefilter("ignore")
    write_head("set", "removed", *METHODS, "share of complete")
    for name in sets:
        data = read_set(name)
        complete = score("incomplete", [np.array(view) for view in data.views], data.labels)
        write_row(name, "0 %", complete, "", "", "", 1.0)
        for share in SHARES:
            scores = [
                [score(method, views, data.labels) for method in METHODS]
                for views in (removed(data.views, share, seed) for seed in range(seeds))
            ]
            means = np.mean(scores, axis=0)
            cells = ["none" if np.isnan(mean) else f"{mean:.3f}" for mean in means]
            write_row(name, f"{100 * share:.0f} %", *cells, means[0] / complete)


if __name__ == "__main__":
    main()

"""Many views against the same sub-solves one by one: ``python -m tests.benchmarks.many_views``.

Prints the CPU seconds of a fit of V views, and of V fits of one view each with as many outer
iterations.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Sequence
from typing import Any

from mscam_dask import MSCAM
from tests.benchmarks.measured import subspace_views


def cpu_seconds() -> float:
    """CPU of this process so far, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def fit(views: list[Any], n_outer: int) -> tuple[float, MSCAM]:
    """CPU seconds of a fit with at most `n_outer` outer iterations."""
    started = cpu_seconds()
    model = MSCAM(10, selection=None, max_outer_iter=n_outer, n_jobs=1).fit(views)
    return cpu_seconds() - started, model


def main(arguments: Sequence[str] | None = None) -> float:
    """Measure, print, and return the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--views", type=int, default=256)
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--features", type=int, default=40)
    options = parser.parse_args(arguments)
    views, _ = subspace_views(options.samples, [options.features] * options.views)
    together, model = fit(list(views), 3)
    alone = sum(fit([view], model.n_iter_)[0] for view in views)
    ratio = together / alone
    sys.stdout.write(
        f"V = {options.views}, n = {options.samples}: {together:.1f} CPU s together in "
        f"{model.n_iter_} outer iterations, {alone:.1f} one view after the other: {ratio:.2f}\n"
    )
    return ratio


if __name__ == "__main__":
    main()

"""CPU time of a fit with the initial labels of a previous fit, and of one without.

    python tests/benchmarks/warm_start.py $MSCAM_DATA/handwritten.npz 10 --new 0.01

The previous fit has all samples but the new ones; the two other fits have all. Prints a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from mscam_dask.data.readers.base import Selection, Source
from mscam_dask.data.readers.registry import read_source
from mscam_dask.engine.initialize import UNKNOWN
from mscam_dask.estimators.mscam import MSCAM
from mscam_dask.metrics import adjusted_rand_index


def timed(views: list[Any], init_labels: Any = None, **options: Any) -> tuple[MSCAM, float]:
    """Fit on one thread, and return the model and its CPU seconds."""
    started = time.process_time()
    model = MSCAM(n_jobs=1, **options).fit(views, init_labels=init_labels)
    return model, time.process_time() - started


def main() -> None:
    """Fit three times."""
    from contextlib import ExitStack

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("n_clusters", type=int)
    parser.add_argument("--new", type=float, default=0.01)
    options = parser.parse_args()
    with ExitStack() as stack:
        loaded = read_source(Source(options.file), Selection(), stack)
        arrays = [np.array(view.read(0, view.shape[0])) for view in loaded.views]
    order = np.random.default_rng(0).permutation(len(arrays[0]))
    arrays = [array[order] for array in arrays]
    n_samples = len(order)
    n_known = n_samples - max(1, round(options.new * n_samples))
    earlier, _ = timed([array[:n_known] for array in arrays], n_clusters=options.n_clusters)
    cold, cold_s = timed(arrays, n_clusters=options.n_clusters)
    known = np.full(n_samples, UNKNOWN, dtype=np.int64)
    known[:n_known] = earlier.labels_
    setting = earlier.solution_.parameters
    warm, warm_s = timed(
        arrays,
        n_clusters=options.n_clusters,
        scale=setting.scale,
        alpha=setting.alpha,
        n_neighbors=earlier.n_neighbors_,
        init_labels=known,
    )
    result = {
        "file": options.file.name,
        "n_samples": n_samples,
        "n_new": n_samples - n_known,
        "cold_cpu_s": round(cold_s, 2),
        "warm_cpu_s": round(warm_s, 2),
        "ratio": round(cold_s / warm_s, 2),
        "agreement_ari": round(adjusted_rand_index(cold.labels_, warm.labels_), 4),
    }
    sys.stdout.write(f"{json.dumps(result)}\n")


if __name__ == "__main__":
    main()

"""Seconds and size of a report at several numbers of samples: python tests/benchmarks/report.py."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mscam_dask.monitor.report.page import run_page
from tests.monitor.report.made_up import made_up_content


def main() -> None:
    """Print a line for each number of samples."""
    for n_samples in (2_000, 70_000, 1_000_000):
        labels = np.random.default_rng(0).permutation(np.arange(n_samples) % 10)
        content = made_up_content(labels, views=("a", "b", "c"), labels_true=labels)
        started = time.perf_counter()
        page = run_page(content)
        seconds = time.perf_counter() - started
        sys.stdout.write(f"{n_samples:>9} samples  {seconds:6.1f} s  {len(page) / 2**20:.2f} MiB\n")


if __name__ == "__main__":
    main()

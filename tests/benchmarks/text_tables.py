"""CPU seconds of reading a text table on both paths: ``python -m tests.benchmarks.text_tables``.

Writes a table of sample ids, labels and normal values, and prints the CPU seconds of the careful path,
the fast path and `pandas.read_csv`, each the least of some repetitions in this process.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pandas as pd

from mscam_dask.data.readers import text as text_reader
from mscam_dask.data.readers.base import Selection, Source, SourceContents
from mscam_dask.data.readers.registry import read_source


def write_table(path: Path, n_samples: int, n_features: int) -> None:
    """Write the table, with every digit of each value."""
    values = np.random.default_rng(0).normal(size=(n_samples, n_features))
    with path.open("w", encoding="utf-8") as file:
        file.write("id,label," + ",".join(f"g{i}" for i in range(n_features)) + "\n")
        for sample, row in enumerate(values.tolist()):
            file.write(f"p{sample},{'abc'[sample % 3]}," + ",".join(map(repr, row)) + "\n")


def cpu_seconds(action: Callable[[], object], repetitions: int) -> float:
    """Least CPU time of an action."""
    seconds = []
    for _ in range(repetitions):
        start = time.process_time()
        action()
        seconds.append(time.process_time() - start)
    return min(seconds)


def read(path: Path, *, large_bytes: int) -> SourceContents:
    """Read the table; the fast path is for files of at least `large_bytes`."""
    kept, text_reader._LARGE_BYTES = text_reader._LARGE_BYTES, large_bytes
    try:
        with ExitStack() as stack:
            return read_source(Source(path), Selection(), stack)
    finally:
        text_reader._LARGE_BYTES = kept


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=40_000)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--repetitions", type=int, default=2)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        write_table(path, options.samples, options.features)
        megabytes = path.stat().st_size / 1e6
        seconds = {
            "careful": cpu_seconds(
                lambda: read(path, large_bytes=sys.maxsize), options.repetitions
            ),
            "fast": cpu_seconds(lambda: read(path, large_bytes=0), options.repetitions),
            "pandas": cpu_seconds(lambda: pd.read_csv(path), options.repetitions),
        }
        first, second = (read(path, large_bytes=size) for size in (0, sys.maxsize))
        assert first.sample_ids == second.sample_ids
        rows = (0, options.samples)
        assert np.array_equal(first.views[0].read(*rows), second.views[0].read(*rows))
    listed = ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items())
    ratio = seconds["careful"] / seconds["fast"]
    sys.stdout.write(f"{megabytes:.0f} MB: {listed} CPU; fast path {ratio:.1f} times as fast\n")
    return seconds


if __name__ == "__main__":
    main()

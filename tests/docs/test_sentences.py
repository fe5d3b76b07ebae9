"""Texts: short sentences, each term defined once, records that are named exist, the generated page is of today."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.deploy.files import ROOT, imported

GENERATED = {"pipeline-settings.md"}  # from the schema, by docs/settings_page.py
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in GENERATED),
]
MAX_WORDS = 30

_FORMULA = re.compile(r"\$\$.*?\$\$|\$[^$]+\$", re.DOTALL)
_NO_END = r"(?<!\b[A-Z]\.)(?<!\bal\.)(?<!e\.g\.)(?<!i\.e\.)(?<!vs\.)(?<!Fig\.)(?<!Eq\.)(?<!Sec\.)"
_END = re.compile(rf"(?<=[.!?]){_NO_END}[\"')*_]*\s+")


def sentences(text: str) -> Iterator[str]:
    """Sentences of a page without tables; inline code and a formula count as one word."""
    in_table = False
    for token in MarkdownIt().enable("table").parse(text):
        in_table = token.type == "table_open" or (in_table and token.type != "table_close")
        if token.type == "inline" and not in_table:
            words = {"code_inline": "CODE", "softbreak": " ", "html_inline": ""}
            parts = [words.get(part.type, part.content) for part in token.children or ()]
            for sentence in _END.split(_FORMULA.sub("FORMULA", "".join(parts))):
                if sentence.strip():
                    yield sentence.strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sentences_are_short_and_do_not_hide_their_subject_behind_what_or_of(page: Path) -> None:
    for sentence in sentences(page.read_text(encoding="utf-8")):
        n_words = sum(bool(re.search(r"\w", word)) for word in sentence.split())
        assert n_words <= MAX_WORDS, sentence
        assert not re.match(r"\W*(?:What|Of)\b.*\.\W*$", sentence), sentence


# Cells of each row: term, meaning, names in code.
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| term |")
]


def test_a_term_is_defined_once_in_one_or_two_sentences() -> None:
    terms = [term for term, *_ in ROWS]
    assert len(terms) > 40
    assert len(set(terms)) == len(terms)
    for term, meaning, _ in ROWS:
        sentences = re.findall(r"[.](?:\s|$)", meaning)
        assert 1 <= len(sentences) <= 2, term


def test_the_name_of_a_term_is_in_the_code() -> None:
    modules = list((ROOT / "mscam_dask").rglob("*.py"))
    known = {module.stem for module in modules}
    known.update(*(re.findall(r"\w+", module.read_text(encoding="utf-8")) for module in modules))
    for term, _, place in ROWS:
        names = re.findall(r"`([\w.]+)`", place)
        assert names, term
        assert {part for name in names for part in name.split(".")} <= known, term


RECORDS = {file.name: file.read_text("utf-8") for file in ROOT.glob("docs/decisions/[0-9]*.md")}
NUMBERS = {name[:4] for name in RECORDS}


def named_in(text: str) -> set[str]:
    """Numbers of records in a text: docs/decisions/0011, [0011](...), (0011, 0014)."""
    found = re.findall(r"decisions/(\d{4})|\[(0\d{3})\]|\((0\d{3}(?:, 0\d{3})*)\)", text)
    return {number for groups in found for number in re.findall(r"\d{4}", " ".join(groups))}


def test_each_number_has_one_record_with_its_title() -> None:
    assert len(NUMBERS) == len(RECORDS)
    for name, text in RECORDS.items():
        assert text.startswith(f"# {name[:4]}. ")


def test_records_that_are_named_exist() -> None:
    files = [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("mscam_dask/**/*.py"),
        *ROOT.glob("tests/benchmarks/*.py"),
    ]
    named = {file: named_in(file.read_text("utf-8")) for file in files}
    missing = {file.name: numbers - NUMBERS for file, numbers in named.items()}
    assert {name: numbers for name, numbers in missing.items() if numbers} == {}


def test_the_page_is_the_generated_one() -> None:
    written = (ROOT / "docs/pipeline-settings.md").read_text(encoding="utf-8")
    script = imported(ROOT / "docs/settings_page.py")
    assert written == script.page(), "run: python docs/settings_page.py"

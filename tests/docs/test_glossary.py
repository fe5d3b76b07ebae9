"""Every term of the glossary is defined once, and is one of the code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
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

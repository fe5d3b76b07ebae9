"""Records of decisions that the code and the pages name exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
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

"""The index of decisions tells current records from replaced ones, and names the unused numbers."""

from __future__ import annotations

import re
from pathlib import Path

DECISIONS = Path(__file__).resolve().parents[2] / "docs" / "decisions"
INDEX = (DECISIONS / "index.md").read_text(encoding="utf-8")


def listed(section: str) -> list[str]:
    """Names of the files that the tree of a section holds, once for each pattern that matches."""
    part = re.split(r"^## ", INDEX, flags=re.MULTILINE)
    lines = next(one for one in part if one.startswith(section)).splitlines()
    patterns = [line for line in lines if re.match(r"\d", line)]
    return sorted(file.name for pattern in patterns for file in DECISIONS.glob(pattern))


def test_every_record_stands_once_and_replaced_ones_stand_apart() -> None:
    records = sorted(DECISIONS.glob("[0-9]*.md"))
    status = {file.name: file.read_text(encoding="utf-8").splitlines()[2] for file in records}
    replaced = [name for name, line in status.items() if re.search(r"\bReplaced by \[", line)]
    assert listed("Replaced") == replaced
    assert listed("Current") == [name for name in status if name not in replaced]


def test_numbers_without_a_record_are_named() -> None:
    used = {int(file.name[:4]) for file in DECISIONS.glob("[0-9]*.md")}
    told = re.search(r"numbers (.*?)\s+were never used", INDEX, re.DOTALL)
    assert told is not None
    named: set[int] = set()
    for first, last in re.findall(r"(\d{4})(?: to (\d{4}))?", told[1]):
        named.update(range(int(first), int(last or first) + 1))
    assert named == set(range(1, max(used) + 1)) - used

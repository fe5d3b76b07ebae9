"""Sentences of the README and the guides are short."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GENERATED = {"pipeline-settings.md"}  # from the schema, by docs/settings_page.py
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in GENERATED),
]
MAX_WORDS = 30

_NOT_PROSE = re.compile(
    r"^ *(```|~~~).*?^ *\1 *$"  # fenced code and directives
    r"|^\$\$.*?\$\$"  # displayed formulas
    r"|<!--.*?-->",
    re.MULTILINE | re.DOTALL,
)
_ITEM = re.compile(r" *(?:[-*+]|\d+[.)]) +")
_ABBREVIATION = re.compile(r"(?:\b(?:al|e\.g|i\.e|vs|Fig|Tab|Eq|Eqs|Sec|cf|etc)|\b[A-Z])\.$")
_END = re.compile(r"[.!?][\"')*_]*(?=\s|$)")


def blocks(text: str) -> Iterator[str]:
    """Paragraphs, list items and headings, each on one line, without code, tables and formulas."""
    block: list[str] = []
    in_item = False
    for line in [*_NOT_PROSE.sub("\n\n", text).splitlines(), ""]:
        table = line.startswith("|")
        heading = line.startswith("#")
        item = _ITEM.match(line)
        code = line.startswith("    ") and not block and not in_item
        if not line.strip() or table or heading or item or code:
            if block:
                yield " ".join(block)
            block = []
        if item:
            block = [line[item.end() :].strip()]
        elif heading:
            yield line.lstrip("# ")
        elif line.strip() and not table and not code:
            block.append(line.strip())
        if line.strip():
            in_item = bool(item) or (in_item and line.startswith(" "))


def sentences(text: str) -> Iterator[str]:
    """Sentences of a page in their order; a link counts as its text, inline code as one word."""
    for block in blocks(text):
        plain = re.sub(r"(`+).+?\1", "CODE", block)
        plain = re.sub(r"\$[^$]+\$", "FORMULA", plain)
        plain = re.sub(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)", r"\1", plain)
        begin = 0
        for end in _END.finditer(plain):
            if not _ABBREVIATION.search(plain[: end.start() + 1]):
                yield plain[begin : end.end()].strip()
                begin = end.end()
        if plain[begin:].strip():
            yield plain[begin:].strip()


def n_words(sentence: str) -> int:
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_sentence_is_longer_than_thirty_words(page: Path) -> None:
    found = sentences(page.read_text(encoding="utf-8"))
    long = [f"{n_words(it)} words: {it}" for it in found if n_words(it) > MAX_WORDS]
    assert not long, "\n".join(long)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_sentence_hides_its_subject_behind_what_or_of(page: Path) -> None:
    found = sentences(page.read_text(encoding="utf-8"))
    assert not [it for it in found if re.match(r"\W*(?:What|Of)\b.*\.\W*$", it)]


def test_sentences_of_a_page() -> None:
    page = """
# A heading

First one, by Xu et al. (2017), with `code. here` and
[a link](page.md). Second: a list

- item one; still item one
- item two.
  Its second sentence

```python
not a sentence
```

| a | table |

    code by indentation

$$ x . y $$

The value is 0.5 at $x$!
"""
    assert list(sentences(page)) == [
        "A heading",
        "First one, by Xu et al. (2017), with CODE and a link.",
        "Second: a list",
        "item one; still item one",
        "item two.",
        "Its second sentence",
        "The value is 0.5 at FORMULA!",
    ]
    assert n_words("The value is 0.5 - at FORMULA!") == 6

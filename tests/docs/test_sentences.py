"""Sentences of the README and the guides are short, and name their subject."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
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

"""What a screen says in numbers, whatever the words around them."""

from __future__ import annotations

import re


def numbers(screen: str) -> list[list[str]]:
    """Return the numbers of each line, sorted as text."""
    return [sorted(re.findall(r"\d+(?:\.\d+)?", line)) for line in screen.splitlines()]

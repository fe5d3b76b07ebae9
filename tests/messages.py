"""Patterns for messages: tests match the values that a message quotes, never its sentence."""

from __future__ import annotations

import re

__all__ = ["quotes"]


def quotes(*values: object) -> str:
    """Return a pattern that a text matches if it holds each of the values, in any order."""
    return "(?s)" + "".join(f"(?=.*{re.escape(str(value))})" for value in values)

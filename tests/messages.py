"""Patterns for messages: tests match the values that a message quotes, never its sentence."""

from __future__ import annotations

import re
from typing import TypeVar

import pytest

Failure = TypeVar("Failure", bound=BaseException)


def quotes(*values: object) -> str:
    """Return a pattern that a text matches if it holds each of the values, in any order."""
    return "(?s)" + "".join(f"(?=.*{re.escape(str(value))})" for value in values)


def raises(
    error: type[Failure] | tuple[type[Failure], ...], *values: object
) -> pytest.RaisesExc[Failure]:
    """Expect an error whose message quotes each of the values."""
    return pytest.raises(error, match=quotes(*values))

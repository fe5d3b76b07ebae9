"""Directories that tests change: made once, and copied for each test to the same path."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

__all__ = ["emptied", "kept_or_made"]


def emptied(path: Path) -> Path:
    """Empty directory at a path, whatever was there."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    return path


def kept_or_made(kept: Path, place: Path, make: Callable[[], object]) -> None:
    """Put the directory `place` there as an earlier test made it, or make it and keep a copy.

    A run records the paths of its data, so that a copy is that run only at the same path.
    """
    if not kept.exists():
        make()
        shutil.copytree(place, kept)
    else:
        shutil.copytree(kept, place)

"""Directories that tests change: made once, and copied for each test to the same path."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path


def emptied(path: Path) -> Path:
    """Empty directory at a path; one that is there stays the same one, for processes that work in it."""
    path.mkdir(exist_ok=True)
    for item in path.iterdir():
        if item.is_dir() and not item.is_symlink():
            shutil.rmtree(item)
        else:
            item.unlink()
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

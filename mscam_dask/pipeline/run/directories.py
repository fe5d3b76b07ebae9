"""What the directory of a run and that of an experiment share: nobody else's, and whole files."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mscam_dask.data.store.filesystem import LOCAL, full_disk_is_temporary, write_durably
from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.run.lock import LOCK_NAME, RunLock

__all__ = ["hold_directory", "write_whole"]


@contextmanager
def hold_directory(root: Path, *, record: str, kind: str) -> Iterator[None]:
    """Make a directory, or take one that is ours, and keep other drivers out of it.

    Parameters
    ----------
    root
        Missing, empty, or with a record.
    record
        Name of the file that says that a directory is ours.
    kind
        What the directory is of, for messages: "a run".

    Raises
    ------
    ConfigurationError
        When something else is there; nothing in it is touched.
    TemporaryFailure
        When another driver holds it, or the disk is full.
    """
    if root.exists() and not root.is_dir():
        raise ConfigurationError(f"{root} is a file; the output of {kind} is a directory.")
    if root.is_dir() and not (root / record).exists() and _holds_others(root, record):
        raise ConfigurationError(
            f"{root} is not empty and no directory of {kind} (it has no {record}); it is never "
            "touched. Choose another output directory (-o)."
        )
    with full_disk_is_temporary(root):
        _make_directory(root)
    with RunLock(root):
        yield


def _holds_others(root: Path, record: str) -> bool:
    """Whether there is more than a driver leaves that was killed before its first record."""
    partial = re.compile(rf"\.{re.escape(record)}\.[0-9a-f]{{8}}\.partial")
    return any(
        item.name != LOCK_NAME and not partial.fullmatch(item.name) for item in root.iterdir()
    )


def write_whole(file: Path, content: bytes) -> None:
    """Write a file aside, sync it and give it its name: it is whole and on the disk, or not there.

    Raises
    ------
    TemporaryFailure
        When the disk is full; nothing is left aside.
    """
    partial = file.with_name(f".{file.name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        with full_disk_is_temporary(file):
            _make_directory(file.parent)
            write_durably(LOCAL, file, content, partial=partial)
    finally:
        partial.unlink(missing_ok=True)


def _make_directory(path: Path) -> None:
    """Make a directory and those above it; their names are on the disk then."""
    made = [part for part in (path, *path.parents) if not part.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for part in reversed(made):
        LOCAL.sync(part.parent)

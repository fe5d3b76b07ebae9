"""Data that change while a run reads them: no damage, but a reason to start again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mscam_dask.data.store.object_store import as_location
from mscam_dask.data.store.read import ZarrRows
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.errors import DataError, TemporaryFailure
from mscam_dask.pipeline.config.settings import BUILT_IN_SOURCES, DataTable
from mscam_dask.pipeline.run.open_data import OpenData, open_data

__all__ = ["Stamps", "changed_data", "changes_are_temporary", "stamps_of"]

Stamps = tuple[tuple[str, int, int, int], ...]
"""Path, size, time of change and number of each file."""


def stamps_of(table: DataTable) -> Stamps:
    """Return what tells whether files that [data] names were written since; cheap, no content."""
    if table.source in BUILT_IN_SOURCES:
        named = [] if table.path is None else [Path(table.path)]
    else:
        named = [place for place in map(as_location, table.sources) if isinstance(place, Path)]
    files = [file for path in named for file in ([path] if path.is_file() else path.rglob("*"))]
    stats = [(str(file), file.stat()) for file in sorted(files) if file.is_file()]
    return tuple((name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats)


def changed_data(what: str) -> TemporaryFailure:
    """The error that says that data changed under a run."""
    return TemporaryFailure(
        f"{what} changed while the run read it. Run the same command again: it takes the data that "
        "are there now."
    )


@contextmanager
def changes_are_temporary(
    table: DataTable, opened: Callable[[], OpenData | None]
) -> Iterator[None]:
    """Turn the errors of a store that was replaced while it was read into the one to try again.

    Parameters
    ----------
    table
        [data].
    opened
        Gives what was opened; None when the error came before that.

    Raises
    ------
    TemporaryFailure
        When what is at the same place now is whole, and other data than what was opened.
    """
    try:
        yield
    except (DataError, OSError) as error:
        before = opened()
        if before is not None and not before.is_new and _is_other(table, before):
            raise changed_data(f"The store {before.store}") from error
        raise


def _is_other(table: DataTable, before: OpenData) -> bool:
    try:
        now = open_data(table, Path())  # a store: nothing is written
        return _identity(now.data) != _identity(before.data)
    except (DataError, OSError):
        return False  # damaged, and not replaced


def _identity(data: MultiViewData) -> tuple[str, list[str]]:
    return data.digest(), [view.path for view in data.views if isinstance(view, ZarrRows)]

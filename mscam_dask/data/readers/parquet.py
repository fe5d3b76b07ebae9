"""Parquet and Feather files, through pandas and pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from mscam_dask.data.readers.base import (
    Selection,
    Source,
    SourceContents,
    check_size,
    unreadable,
)
from mscam_dask.data.readers.text_layout import ID_NAMES, LABEL_COLUMNS
from mscam_dask.data.views.conversion import as_text, rows_of, sample_ids_of
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.errors import ConfigurationError, DataError

__all__ = ["read_feather", "read_parquet"]


def read_parquet(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:  # noqa: ARG001 - a reader's signature
    """Read one table, one sample per row; the view is named by the file.

    Sample ids are the column `Source.id_column`, else the index that pandas stored, else a first
    column of text or with a usual name. A column with a usual name of labels, or that of the
    selection, is the ground truth. With samples on columns, the ids are the names of the columns.
    """
    with _needs_pyarrow(source, "Parquet"):
        import pandas as pd  # noqa: F401 - pyarrow makes frames with it
        import pyarrow.parquet as pq
    with unreadable(source, "a Parquet file"):
        metadata = pq.read_metadata(source.file)
        check_size(source, "its table", 8 * metadata.num_rows * max(1, metadata.num_columns))
        return _contents(_frame(lambda: pq.read_table(source.file)), source, selection)


def read_feather(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:  # noqa: ARG001 - a reader's signature
    """Read one table of a Feather (Arrow IPC) file as `read_parquet` reads a Parquet file."""
    with _needs_pyarrow(source, "Feather"):
        import pandas as pd  # noqa: F401 - pyarrow makes frames with it
        import pyarrow.dataset as ds
        from pyarrow import feather
    with unreadable(source, "a Feather file"):
        stored = ds.dataset(source.file, format="ipc")
        n_values = stored.count_rows() * max(1, len(stored.schema))
        check_size(source, "its table", 8 * n_values)
        return _contents(_frame(lambda: feather.read_table(source.file)), source, selection)


def _frame(read_table: Callable[[], Any]) -> Any:
    """Frame of a table whose buffers are checked first: Arrow follows wrong offsets out of its memory."""
    from pyarrow import ArrowException

    try:
        table = read_table()
        table.validate(full=True)
        return table.to_pandas()
    except ArrowException as error:
        raise ValueError(f"its columns are damaged ({type(error).__name__})") from error


@contextmanager
def _needs_pyarrow(source: Source, name: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise DataError(
            f"{source.path} is a {name} file, which needs pyarrow and pandas. Install them (pip install "
            "'mscam-dask[parquet]'), or save the file as CSV."
        ) from error


def _contents(frame: Any, source: Source, selection: Selection) -> SourceContents:
    frame.columns = [as_text(column) for column in frame.columns]
    notes = []
    ids = sample_ids_of(frame)
    column = _id_column(frame, source, has_ids=ids is not None)
    if column is not None:
        ids = tuple(map(as_text, frame.pop(column)))
        notes.append(f"{source.path}: column {column!r} taken as sample ids.")
    if source.samples_in == "columns":
        values = rows_of(frame, name=source.view_name)
        turned = ArrayRows(values.read(0, values.shape[0]).T, source.view_name, feature_names=ids)
        return SourceContents(
            where=str(source.path),
            views=(turned,),
            sample_ids=tuple(frame.columns),
            notes=tuple(notes),
        )
    label = _label_column(frame, selection)
    labels = None if label is None else np.asarray(frame.pop(label))
    if label is not None:
        notes.append(f"{source.path}: column {label!r} taken as labels.")
    return SourceContents(
        where=str(source.path),
        views=(rows_of(frame, name=source.view_name),),
        labels=labels,
        sample_ids=ids,
        labels_explicit=label is not None and selection.labels is not None,
        notes=tuple(notes),
    )


def _id_column(frame: Any, source: Source, *, has_ids: bool) -> str | None:
    """Name of the column with the sample ids; None where there is none."""
    columns = list(frame.columns)
    wanted = source.id_column
    if isinstance(wanted, int) and 0 <= wanted < len(columns):
        return str(columns[wanted])
    if wanted is not None:
        if wanted not in columns:
            raise ConfigurationError(
                f"id_column={wanted!r} is not in {source.path}, whose columns are {columns[:10]}"
                f"{' ...' if len(columns) > 10 else ''}."
            )
        return str(wanted)
    if has_ids or len(columns) < 2:
        return None
    first = columns[0]
    is_text = frame[first].dtype.kind not in "biuf"
    return first if is_text or first.lower() in ID_NAMES else None


def _label_column(frame: Any, selection: Selection) -> str | None:
    if selection.labels is not None:
        return selection.labels if selection.labels in frame.columns else None
    return next((name for name in frame.columns if name.lower() in LABEL_COLUMNS), None)

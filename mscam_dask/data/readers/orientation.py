"""Views of files whose numbers of rows do not fit: how the files are to be read instead."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Literal

from mscam_dask.data.views.sources import RowSource
from mscam_dask.errors import DataError

__all__ = ["check_sample_counts"]


def check_sample_counts(
    views: Sequence[RowSource],
    n_labels: int | None,
    samples_in: Literal["rows", "columns"],
    held_in: Sequence[str],
) -> None:
    """Refuse views with samples on columns, and views of which some have other numbers of rows.

    Parameters
    ----------
    views
        At least one, as read: samples should be on rows.
    n_labels
        Number of labels, None without labels.
    samples_in
        Where the files were said to have their samples.
    held_in
        The file of each view.

    Raises
    ------
    DataError
        With what to read instead. Views in one file of which only some have to be transposed, and labels
        that are too many or too few, are left to `mscam_dask.data.views.multi_view.MultiViewData`.
    """
    counts = {view.shape[0] for view in views}
    if len(counts) == 1 and n_labels in (None, *counts):
        return
    message = None
    if n_labels is not None:
        message = _by_labels(views, n_labels, samples_in)
    if message is None and len(counts) > 1:
        message = _by_files(views, n_labels, samples_in, held_in) or _by_columns(views, samples_in)
    if message is not None:
        raise DataError(message)


def _by_labels(
    views: Sequence[RowSource], n_labels: int, samples_in: Literal["rows", "columns"]
) -> str | None:
    """What the number of labels says of the views; None where it says nothing."""
    as_read, where, instead = _reading(samples_in)
    listing = ", ".join(f"{view.name!r} {view.shape}" for view in views)
    got = f"There are {n_labels} labels and"
    on_rows = [view.name for view in views if view.shape[0] == n_labels]
    on_columns = [view.name for view in views if view.shape[1] == n_labels]
    if len(on_columns) == len(views):
        return (
            f"{got} every view{as_read} has that many columns ({listing}): samples are on {where}; "
            f"{instead}."
        )
    if len({view.shape[0] for view in views}) == 1:
        return None
    if on_columns and not on_rows:
        return (
            f"{got} no view{as_read} has that many rows but some have that many columns ({listing}): "
            f"samples are on {where}; {instead}, and take the views that have as many: "
            f"{_taking(on_columns)}."
        )
    if on_rows and len({*on_rows, *on_columns}) < len(views):
        return (
            f"{got} not every view{as_read} has that many rows ({listing}); every view must have one "
            f"row per sample. Take those that have: {_taking(on_rows)}."
        )
    return None


def _by_files(
    views: Sequence[RowSource],
    n_labels: int | None,
    samples_in: Literal["rows", "columns"],
    held_in: Sequence[str],
) -> str | None:
    """Which files have samples on columns, the others on rows; None where it is not so."""
    counts = [view.shape[0] for view in views]
    for count in sorted(dict.fromkeys(counts), key=lambda count: count != n_labels):
        turned = {file for file, rows in zip(held_in, counts, strict=True) if rows != count}
        if turned < set(held_in) and all(
            view.shape[file in turned] == count for view, file in zip(views, held_in, strict=True)
        ):
            break
    else:
        return None
    as_read, _, _ = _reading(samples_in)
    listing = ", ".join(f"{view.name!r} {view.shape}" for view in views)
    on_columns = turned if samples_in == "rows" else set(held_in) - turned
    files = [file for file in dict.fromkeys(held_in) if file in on_columns]
    others = [file for file in dict.fromkeys(held_in) if file not in on_columns]
    return (
        f"The views{as_read} have different numbers of samples ({listing}): it looks as if {count} samples "
        f"were on columns in {', '.join(files)} and on rows in {', '.join(others)}. Read only the first "
        "with Source(path, samples_in='columns'). --samples-in columns is for all files of a command; "
        f"have one for the first alone, mscam-dask ingest {shlex.join(files)} --samples-in columns -o "
        "turned.zarr, and name turned.zarr in their place."
    )


def _by_columns(views: Sequence[RowSource], samples_in: Literal["rows", "columns"]) -> str | None:
    """What views of different numbers of rows are told; None where some have to be transposed."""
    as_read, _, instead = _reading(samples_in)
    listing = ", ".join(f"{view.name!r}: {view.shape[0]}" for view in views)
    counts = {view.shape[0] for view in views}
    widths = {view.shape[1] for view in views}
    if len(widths) == 1:
        hint = f"All have {widths.pop()} columns: if these are the samples, {instead}. Else keep"
    elif any(all(count in view.shape for view in views) for count in counts):
        return None
    else:
        hint = "Keep"
    return (
        f"The views{as_read} have different numbers of samples ({listing}); every view must have one "
        f"row per sample. {hint} the samples all views share, in the same order; if some of these are "
        "no views, take only those that are: views=[...] (--view NAME for each)."
    )


def _reading(samples_in: Literal["rows", "columns"]) -> tuple[str, str, str]:
    """How the files were read, where samples are if not there, and how to read them so."""
    if samples_in == "rows":
        other = "read the file with Source(path, samples_in='columns') (--samples-in columns)"
        return "", "columns", other
    other = "leave out samples_in='columns' (--samples-in columns)"
    return ", read with samples_in='columns',", "the rows of the file", other


def _taking(names: Sequence[str]) -> str:
    flags = " ".join(f"--view {shlex.quote(name)}" for name in names)
    return f"views={list(names)} ({flags})"

"""Labels among the named arrays of a file, in the forms in which they are published.

A vector, also of text; a cell array with the same vector for each view, or one number for each
sample; a matrix with the same column for each view; an indicator matrix, also a sparse one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import LABEL_NAMES, Selection, Source, is_label_vector
from mscam_dask.data.sparse import is_sparse
from mscam_dask.errors import DataError

__all__ = ["MatlabCellArray", "NoMatrix", "describe", "find_labels"]


@dataclass(frozen=True)
class MatlabCellArray:
    """A one-level cell array of numeric matrices."""

    items: tuple[Any, ...]

    def named(self, name: str) -> dict[str, Any]:
        """Return its matrices by the names they have as views: name_0, name_1, ..."""
        return {f"{name}_{index}": item for index, item in enumerate(self.items)}


@dataclass(frozen=True)
class NoMatrix:
    """A variable that cannot be a view."""

    matlab_class: str


def describe(value: Any) -> str:
    """Return the kind and shape of a variable as text."""
    if isinstance(value, NoMatrix):
        return value.matlab_class
    if isinstance(value, MatlabCellArray):
        return f"cell array of {len(value.items)} matrices"
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", ())
    kind = {"O": "cell or object array", "V": "struct", "U": "text"}.get(
        getattr(dtype, "kind", "O"), str(dtype)
    )
    return f"{kind}, shape {tuple(shape)}"


# Where there is a column for each view the name may have a digit behind it, as y0.
_CONVENTIONAL = re.compile(rf"({'|'.join(LABEL_NAMES)})\d?", re.IGNORECASE)

# Rows that are looked at before a matrix is read, which may be a large view.
_HEAD = 64


@dataclass(frozen=True, eq=False)
class ArrayLabels:
    """Labels of a file, as `find_labels` returns them.

    Attributes
    ----------
    values
        (n,) numbers or text; None where nothing was taken.
    names
        Names of all arrays that are labels, including those not taken; none of them is a view.
    notes
        Which array was taken as labels, and which were not.
    """

    values: NDArray[Any] | None
    names: frozenset[str]
    notes: tuple[str, ...]


def find_labels(
    names: Iterable[str], value_of: Callable[[str], Any], *, source: Source, selection: Selection
) -> ArrayLabels:
    """Find the requested labels, else the best match among arrays with a usual name of labels.

    Parameters
    ----------
    names
        Of all arrays, in the order of the file.
    value_of
        Gives the array (NumPy, Dask, sparse) or `MatlabCellArray` of a name.
    source, selection
        Source and selection; an array that is requested as a view is not taken as labels.

    Raises
    ------
    DataError
        When the requested array does not have one label per sample.
    """
    names = tuple(names)
    found, differing = _by_convention(names, value_of, selection)
    taken = next(iter(found), None) if selection.labels is None else None
    if selection.labels in names:
        taken = selection.labels
        found[taken] = _asked_for(taken, value_of(taken), source)
    notes = []
    if taken is not None:
        how = f": {found[taken].how}" if found[taken].how else ""
        notes.append(f"{source.path}: {taken!r} taken as labels{how}.")
    elif selection.labels is None:
        notes += [f"{source.path}: {_differ(name, value)}" for name, value in differing.items()]
    others = [name for name in (*found, *differing) if name != taken]
    if others and (taken is not None or selection.labels is not None):
        notes.append(f"{source.path}: left out {others}, which may be labels.")
    return ArrayLabels(
        values=None if taken is None else found[taken].values,
        names=frozenset([*found, *differing]),
        notes=tuple(notes),
    )


@dataclass(frozen=True, eq=False)
class _Labels:
    """(n,) labels and a phrase for the note, if they were not a plain vector."""

    values: NDArray[Any]
    how: str = ""


def _by_convention(
    names: tuple[str, ...], value_of: Callable[[str], Any], selection: Selection
) -> tuple[dict[str, _Labels], dict[str, MatlabCellArray]]:
    """Labels under usual names, the best first; and cells with different labels, by name."""
    views = set(selection.views or ())
    found: dict[str, _Labels] = {}
    differing: dict[str, MatlabCellArray] = {}
    for name in names:
        if name in views or not _CONVENTIONAL.fullmatch(name):
            continue
        value = value_of(name)
        if isinstance(value, MatlabCellArray) and views & set(value.named(name)):
            continue
        labels = _labels_in(value)
        if labels is not None and labels.values.size > 1 and (labels.how or _is_usual(name)):
            found[name] = labels
        elif isinstance(value, MatlabCellArray) and all(map(_is_vector, value.items)):
            differing[name] = value
    best_first = sorted(found, key=lambda name: (not _is_usual(name), bool(found[name].how)))
    return {name: found[name] for name in best_first}, differing


def _is_usual(name: str) -> bool:
    return name.lower() in LABEL_NAMES


def _asked_for(name: str, value: Any, source: Source) -> _Labels:
    labels = _labels_in(value)
    if labels is not None:
        return labels
    if isinstance(value, MatlabCellArray) and all(map(_is_vector, value.items)):
        raise DataError(f"{source.path}: {_differ(name, value)}")
    raise DataError(
        f"{source.path}: {name!r}, asked for as labels, is {describe(value)}; allowed are one label per "
        "sample, the same for each view in the columns of a matrix or in a cell array, and an "
        "indicator matrix (in each row a 1, else 0). Name another, or a file with one label per line."
    )


def _differ(name: str, cells: MatlabCellArray) -> str:
    return (
        f"the {len(cells.items)} cells of {name!r} are different labels, and none was taken; name "
        f"one, such as labels='{name}_0' (--labels {name}_0)."
    )


def _labels_in(value: Any) -> _Labels | None:
    """Return an array or cell array as labels, or None."""
    if _is_vector(value):
        return _Labels(_in_memory(value).ravel())
    if isinstance(value, MatlabCellArray):
        return _labels_in_cells(value)
    is_table = isinstance(getattr(value, "dtype", None), np.dtype) and value.dtype.kind in "biuf"
    if not is_table or value.ndim != 2 or min(value.shape) < 2:
        return None
    if is_sparse(value):
        return _labels_in_sparse(value) or _labels_in_sparse(value.T)
    return _labels_in_matrix(value, "columns") or _labels_in_matrix(value.T, "rows")


def _is_vector(value: Any) -> bool:
    return hasattr(value, "dtype") and not is_sparse(value) and is_label_vector(value)


def _labels_in_cells(cells: MatlabCellArray) -> _Labels | None:
    """Return the vector that all cells hold, or the vector of one number per cell."""
    if not all(map(_is_vector, cells.items)):
        return None
    first, *others = vectors = [_in_memory(item).ravel() for item in cells.items]
    if others and all(vector.size == 1 for vector in vectors):
        return _Labels(np.concatenate(vectors), "one in each cell")
    if not all(np.array_equal(first, other) for other in others):
        return None
    return _Labels(first, f"its {len(cells.items)} cells are the same" if others else "")


def _labels_in_matrix(values: Any, lines: str) -> _Labels | None:
    """Return the column that all columns repeat, or the position of the 1 in each row."""
    head = _in_memory(values[:_HEAD])
    if not _is_repeated(head) and not _is_indicator(head):
        return None
    whole = _in_memory(values)
    if _is_repeated(whole):
        found = _Labels(whole[:, 0], f"its {whole.shape[1]} {lines} are the same")
    elif _is_indicator(whole):
        found = _indicated(whole.argmax(axis=1))
    else:
        return None
    return found if _are_classes(found.values) else None


def _labels_in_sparse(values: Any) -> _Labels | None:
    """Return the position of the 1 in each row of a sparse matrix."""
    rows = values.tocsr(copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    is_indicator = (rows.data == 1).all() and (np.diff(rows.indptr) == 1).all()
    return _indicated(rows.indices) if is_indicator and _are_classes(rows.indices) else None


def _indicated(classes: NDArray[Any]) -> _Labels:
    return _Labels(classes, "an indicator matrix, classes counted from 0")


def _are_classes(values: NDArray[Any]) -> bool:
    return 1 < np.unique(values).size < values.size


def _is_repeated(rows: NDArray[Any]) -> bool:
    """Return whether each row repeats one whole number."""
    return bool((rows == rows[:, :1]).all() and (np.floor(rows) == rows).all())


def _is_indicator(rows: NDArray[Any]) -> bool:
    """Return whether each row has one 1 and zeros otherwise."""
    return bool(((rows == 0) | (rows == 1)).all() and (rows.sum(axis=1) == 1).all())


def _in_memory(values: Any) -> NDArray[Any]:
    if hasattr(values, "compute"):
        values = values.compute(scheduler="synchronous")
    return np.asarray(values)

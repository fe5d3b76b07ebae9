"""NumPy archives (.npz) and arrays (.npy), and the labels among the named arrays of a file.

Pickled objects are refused, never loaded. Labels are found in the forms in which they are published: a vector, also of text; a cell array with the same vector for each view, or one number for each
sample; a matrix with the same column for each view; an indicator matrix, also a sparse one.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import (
    LABEL_NAMES,
    Selection,
    Source,
    SourceContents,
    check_row_size,
    check_size,
    is_label_vector,
    oriented,
    unreadable,
    view_type_named,
)
from mscam_dask.data.sparse import is_sparse, sparse_from_parts
from mscam_dask.data.views.conversion import as_text, rows_of
from mscam_dask.data.views.sources import RowSource
from mscam_dask.errors import DataError

__all__ = ["MatlabCellArray", "NoMatrix", "describe", "find_labels", "read_npy", "read_npz"]


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


_NUMBERED = re.compile(r"view_(\d+)")
_DESCRIPTIVE = ("view_names", "kind", "label_names", "sample_ids", "digests")

# Bytes that one byte of deflate can stand for; other methods are not limited by their format.
_MAX_DEFLATE = 1032


def read_npy(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:  # noqa: ARG001 - a reader's signature
    """Read one (n, d) array, mapped into memory rather than loaded."""
    with unreadable(source, "a NumPy array (.npy) of numbers"):
        with source.file.open("rb") as stream:
            _check_header(source, source.file.name, stream, source.file.stat().st_size)
        values = np.load(source.file, mmap_mode="r", allow_pickle=False)
    views = (rows_of(oriented(values, source), name=source.view_name),)
    return SourceContents(where=str(source.path), views=views)


def read_npz(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:
    """Read an archive with view_0, view_1, ... (and labels, view_names, kind, sample_ids).

    An archive without view_0 gives one view per two-dimensional array, named by its key, that is not
    labels (`find_labels`); one written by scipy.sparse.save_npz gives one view.
    """
    with unreadable(source, "a NumPy archive (.npz) of numbers"):
        # Opened here: np.load leaves a damaged archive open.
        stream = stack.enter_context(source.file.open("rb"))
        archive = stack.enter_context(np.load(stream, allow_pickle=False))
        keys: list[str] = list(archive.files)
        if {"format", "shape", "data"} <= set(keys) and not _array(archive, "format", source).ndim:
            matrix = _sparse_matrix(archive, source)
            views = (rows_of(oriented(matrix, source), name=source.view_name),)
            return SourceContents(where=str(source.path), views=views)
        if any(_NUMBERED.fullmatch(key) for key in keys):
            return _read_numbered(archive, source, selection)
        return _read_named(archive, source, selection)


def _sparse_matrix(archive: Any, source: Source) -> Any:
    """The matrix of an archive that scipy.sparse.save_npz wrote."""
    names = ("data", "indices", "indptr", "coords", "offsets")
    parts: dict[str, Any] = {
        name: _array(archive, name, source) for name in names if name in archive.files
    }
    if {"row", "col"} <= set(archive.files):
        parts["coords"] = (_array(archive, "row", source), _array(archive, "col", source))
    form = as_text(_array(archive, "format", source).item())
    shape = _array(archive, "shape", source)
    return check_row_size(sparse_from_parts(form, parts, shape, str(source.path)), source)


def _read_numbered(archive: Any, source: Source, selection: Selection) -> SourceContents:
    keys = sorted(
        (key for key in archive.files if _NUMBERED.fullmatch(key)), key=lambda key: int(key[5:])
    )
    names = _texts(archive, "view_names", len(keys), source) or tuple(keys)
    kinds = _texts(archive, "kind", len(keys), source) or ("features",) * len(keys)
    views: list[RowSource] = [
        rows_of(
            oriented(_array(archive, key, source), source),
            name=name,
            view_type=view_type_named(kind, name, source),
        )
        for key, name, kind in zip(keys, names, kinds, strict=True)
        if selection.wants(name)
    ]
    labels_key = _labels_key(archive.files, selection, but=keys)
    ids = _sample_ids(archive, source)
    used = {*keys, *_DESCRIPTIVE, labels_key} - ({"sample_ids"} if ids is None else set())
    ignored = [key for key in archive.files if key not in used]
    return SourceContents(
        where=str(source.path),
        views=tuple(views),
        labels=None if labels_key is None else _array(archive, labels_key, source),
        label_names=_texts(archive, "label_names", None, source),
        sample_ids=ids,
        labels_explicit=labels_key is not None and selection.labels is not None,
        notes=(f"{source.path}: left out {ignored}.",) if ignored else (),
        skipped=tuple(name for name in names if not selection.wants(name)),
    )


def _read_named(archive: Any, source: Source, selection: Selection) -> SourceContents:
    labels = find_labels(
        archive.files, lambda key: _array(archive, key, source), source=source, selection=selection
    )
    views: list[RowSource] = []
    ignored: list[str] = []
    skipped: list[str] = []
    is_view = selection.views is not None and "sample_ids" in selection.views
    ids = None if is_view else _sample_ids(archive, source)
    for key in archive.files:
        if key in labels.names or (key == "sample_ids" and ids is not None):
            continue
        if not selection.wants(key):
            skipped.append(key)
            continue
        values = _array(archive, key, source)
        if values.ndim == 2 or selection.views is not None:
            views.append(rows_of(oriented(values, source), name=key))
        else:
            ignored.append(f"{key} {values.shape}")
    notes = labels.notes
    if ignored:
        notes += (f"{source.path}: left out {ignored}, which are not (n, d).",)
    if not views and not skipped and labels.values is None:
        raise DataError(
            f"{source.path} has no view: its keys are {list(archive.files)}; allowed are view_0, "
            "view_1, ..., or two-dimensional arrays under any name."
        )
    return SourceContents(
        where=str(source.path),
        views=tuple(views),
        labels=labels.values,
        sample_ids=ids,
        labels_explicit=labels.values is not None and selection.labels is not None,
        notes=notes,
        skipped=tuple(skipped),
    )


def _sample_ids(archive: Any, source: Source) -> tuple[str, ...] | None:
    """Numbers or text under "sample_ids", one for each sample; None where there is no such vector."""
    if "sample_ids" not in archive.files:
        return None
    values = _array(archive, "sample_ids", source)
    if values.size != max(values.shape, default=0):
        return None
    return tuple(map(as_text, values.ravel().tolist()))


def _labels_key(keys: list[str], selection: Selection, *, but: list[str]) -> str | None:
    by_name = Selection(labels=selection.labels)  # no key but view_0, view_1, ... is a view
    found = [key for key in keys if by_name.is_labels(key) and key not in (*but, *_DESCRIPTIVE)]
    return found[0] if found else None


def _check_header(source: Source, name: str, stream: IO[bytes], nbytes: int) -> None:
    """Refuse an array whose header declares more values than its bytes hold."""
    version = np.lib.format.read_magic(stream)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version, np.lib.format.read_array_header_2_0)  # 3.0 is 2.0 with names in UTF-8
    shape, _, dtype = read(stream)
    declared = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or (not dtype.hasobject and declared > nbytes):
        raise DataError(
            f"{source.path}: {name!r} declares shape {shape} of {dtype}, {declared} bytes, and holds "
            f"{nbytes}. Restore the file from a copy."
        )


def _check_member(archive: Any, key: str, source: Source) -> None:
    """Refuse an array of an archive whose declared sizes do not fit it, before it is read."""
    files: zipfile.ZipFile = archive.zip
    names = set(files.namelist())
    member = files.getinfo(key if key in names else f"{key}.npy")
    stored = source.file.stat().st_size
    deflated = member.compress_type == zipfile.ZIP_DEFLATED
    if member.compress_size > stored or (
        deflated and member.file_size > _MAX_DEFLATE * (member.compress_size + 1)
    ):
        raise DataError(
            f"{source.path}: {key!r} declares {member.compress_size} bytes that unpack to "
            f"{member.file_size}, and the file has {stored}. Restore the file from a copy."
        )
    check_size(source, repr(key), member.file_size)
    with files.open(member) as stream:
        if stream.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
            return  # which NumPy gives as bytes
    with files.open(member) as stream:
        _check_header(source, key, stream, member.file_size)


def _array(archive: Any, key: str, source: Source) -> NDArray[Any]:
    _check_member(archive, key, source)
    try:
        values: NDArray[Any] = np.asarray(archive[key])
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise DataError(
            f"{source.path} holds Python objects under {key!r}; they are refused, since loading "
            "them can run code of the person who wrote the file. Save numbers or text arrays only."
        ) from error
    return values


def _texts(archive: Any, key: str, count: int | None, source: Source) -> tuple[str, ...] | None:
    if key not in archive.files:
        return None
    values = np.atleast_1d(_array(archive, key, source))
    if values.ndim != 1 or (count is not None and len(values) != count):
        raise DataError(
            f"{source.path} has {values.size} entries under {key!r} for {count} views; there must "
            "be one for each."
        )
    return tuple(map(as_text, values.tolist()))

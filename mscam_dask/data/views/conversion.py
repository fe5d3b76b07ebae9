"""Conversion of arrays, sparse matrices, frames, xarray and AnnData objects to row sources, ids and labels.

Frames and Dask, xarray, Arrow or AnnData objects are recognized by the module of their class, so that
none of those packages is imported unless it is used.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mscam_dask.data.sparse import checked_sparse, is_sparse
from mscam_dask.data.views.sources import (
    ArrayRows,
    DaskRows,
    RowSource,
    ViewType,
    check_view,
    is_numbering,
    unmasked,
)
from mscam_dask.errors import DataError

__all__ = [
    "SAMPLE_DIMENSIONS",
    "UNLABELED",
    "as_text",
    "check_printable",
    "check_unique_ids",
    "common_sample_ids",
    "dataset_views",
    "encode_labels",
    "is_frame",
    "is_instance_of",
    "is_missing",
    "is_omics",
    "labeled_samples",
    "names_of_columns",
    "rows_of",
    "sample_dimension",
    "sample_ids_of",
    "split_columns",
]

SAMPLE_DIMENSIONS = ("sample", "samples", "sample_id", "obs")
"""Names of dimensions that are the samples."""


def is_instance_of(value: object, package: str, class_name: str) -> bool:
    """Return whether a value is an instance of `package`'s class, without importing it."""
    return any(
        cls.__name__ == class_name and cls.__module__.partition(".")[0] == package
        for cls in type(value).__mro__
    )


def is_omics(value: object) -> bool:
    """Return whether a value is an AnnData or a MuData."""
    return is_instance_of(value, "anndata", "AnnData") or is_instance_of(value, "mudata", "MuData")


def is_frame(value: object) -> bool:
    """Return whether a value is a frame of pandas or polars, or a table or record batch of Arrow."""
    return is_instance_of(value, "pandas", "DataFrame") or _is_arrow_like(value)


def rows_of(
    value: Any, *, name: str, view_type: ViewType = "features", file: str = ""
) -> RowSource:
    """Wrap one (n, d) table of any supported kind as a row source, without copying it.

    A Dask array that reads a file by blocks comes with the name of this `file`.

    Raises
    ------
    DataError
        When the value is no two-dimensional table of real numbers, or a sparse array whose indices
        are out of range; the message names the view.
    """
    names = names_of_columns(value)
    if is_instance_of(value, "xarray", "DataArray"):
        value = value.data
    elif is_instance_of(value, "anndata", "AnnData"):
        value = _main_matrix(value, name)
    if is_instance_of(value, "dask", "Array"):
        return DaskRows(value, name, view_type, names, file)
    if is_instance_of(value, "pandas", "DataFrame"):
        return ArrayRows(_frame_values(value, name), name, view_type, names)
    if _is_arrow_like(value):
        return ArrayRows(_arrow_values(value, name), name, view_type, names)
    if is_sparse(value):
        check_view(name, value.shape, value.dtype)
        return ArrayRows(
            sparse.csr_array(checked_sparse(value, f"View {name!r}")), name, view_type, names
        )
    return ArrayRows(_as_plain_array(unmasked(value, name), name), name, view_type, names)


def names_of_columns(value: Any) -> tuple[str, ...] | None:
    """Labels of the columns of a table, None where it has none.

    They are those of a frame's or Arrow table's columns, of a DataArray's second dimension, or of the
    variables of an AnnData.
    """
    if is_instance_of(value, "pandas", "DataFrame"):
        labels = value.columns
    elif _is_arrow_like(value):
        labels = list(value.schema) if hasattr(value, "get_columns") else value.schema.names
    elif is_instance_of(value, "anndata", "AnnData"):
        labels = value.var_names
    elif (
        is_instance_of(value, "xarray", "DataArray")
        and value.ndim == 2
        and value.dims[1] in value.indexes
    ):
        labels = value.indexes[value.dims[1]]
    else:
        return None
    return tuple(map(as_text, labels))


def _is_arrow_like(value: Any) -> bool:
    """Return whether a value is a frame of polars, or a table or record batch of Arrow."""
    return (
        is_instance_of(value, "polars", "DataFrame")
        or is_instance_of(value, "pyarrow", "Table")
        or is_instance_of(value, "pyarrow", "RecordBatch")
    )


def _arrow_values(frame: Any, name: str) -> NDArray[Any]:
    """Values of a polars frame or Arrow table; a missing value becomes NaN."""
    columns = frame.get_columns() if hasattr(frame, "get_columns") else frame.columns
    labels = names_of_columns(frame) or ()
    arrays = [_with_nan(np.asarray(column)) for column in columns]
    _refuse_other_columns(
        name,
        [
            f"{label!r} ({getattr(column, 'dtype', None) or column.type})"
            for label, column, array in zip(labels, columns, arrays, strict=True)
            if array.dtype.kind not in "biuf"
        ],
        "encode them as numbers; rows of such a frame have no ids, those of a pandas frame have its index",
    )
    return np.stack(arrays, axis=1) if arrays else np.empty(frame.shape)


def _with_nan(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column of truth values of which some are None as numbers; others as they are."""
    if column.dtype.kind == "O" and all(item in (None, True, False) for item in column):
        return column.astype(np.float64)
    return column


def _main_matrix(data: Any, name: str) -> Any:
    """Return X of an AnnData, in memory where it is sparse and in a file."""
    if data.X is None:
        raise DataError(
            f"View {name!r} is an AnnData without X; it has the layers {list(data.layers)} and obsm "
            f"{list(data.obsm)}. Name one: mscam_dask.views_of(data, ['layers/NAME'])."
        )
    return data.X.to_memory() if hasattr(data.X, "to_memory") else data.X


def _as_plain_array(value: Any, name: str) -> NDArray[Any]:
    if isinstance(value, str | PathLike):
        raise DataError(
            f"View {name!r} is the path {str(value)!r}, and a fit reads no files of single views. Make "
            "one store of the files (mscam-dask ingest FILE... -o data.zarr) and give its path in the "
            "place of the views, or load them into arrays."
        )
    if is_instance_of(value, "dask", "DataFrame"):  # as an array it would lose its index
        raise DataError(
            f"View {name!r} is a Dask frame, whose number of rows is not known. Give "
            "frame.to_dask_array(lengths=True), or frame.compute() where it fits into memory; then its "
            "index gives the sample ids."
        )
    if isinstance(value, RowSource | bytes) or not (
        hasattr(value, "__array__") or isinstance(value, list | tuple)
    ):
        raise DataError(
            f"View {name!r} is a {type(value).__module__}.{type(value).__qualname__}; allowed are "
            "NumPy and SciPy sparse arrays, Dask arrays, pandas and polars frames, Arrow tables, AnnData "
            "and xarray.DataArray. "
            "Convert it, for example with numpy.asarray(view) or .to_dask_array(lengths=True)."
        )
    try:
        return np.asarray(value)
    except ValueError as error:
        raise DataError(
            f"View {name!r} cannot be converted to an array ({error}); allowed is a two-dimensional "
            "table with rows of equal length."
        ) from error
    except (TypeError, RuntimeError) as error:  # such as tensors of other devices
        raise DataError(
            f"View {name!r} is a {type(value).__module__}.{type(value).__qualname__} that cannot be "
            f"converted to an array: {str(error).rstrip('.')}. Make a NumPy array of it first."
        ) from error


def _frame_values(frame: Any, name: str) -> NDArray[Any]:
    unusable = [
        f"{column!r} ({dtype})"
        for column, dtype in zip(frame.columns, frame.dtypes, strict=True)
        if getattr(dtype, "kind", "O") not in "biuf"
    ]
    _refuse_other_columns(
        name,
        unusable,
        "encode them as numbers (frame.astype(float) where they are numbers kept as objects); use the "
        "frame's index for ids",
    )
    if any(not isinstance(dtype, np.dtype) for dtype in frame.dtypes):
        # Nullable columns: a missing value becomes NaN, which validation reports with its row.
        values: NDArray[Any] = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        # pandas makes Python objects of bool beside numbers, unless it gets the dtype
        values = frame.to_numpy(dtype=np.result_type(*frame.dtypes) if len(frame.columns) else None)
    return values


def _refuse_other_columns(name: str, unusable: list[str], remedy: str) -> None:
    if unusable:
        listing = ", ".join(unusable[:5]) + (", ..." if len(unusable) > 5 else "")
        raise DataError(
            f"View {name!r} is a frame with {len(unusable)} column(s) that are not numbers: "
            f"{listing}. Drop them or {remedy}."
        )


def sample_ids_of(value: Any, *, default_index: bool = False) -> tuple[str, ...] | None:
    """Ids that a frame's index, a DataArray's sample coordinate or an AnnData gives, else None.

    A default index (0, 1, ..., n-1; in an AnnData as text) is no id, unless `default_index` says so.
    """
    if is_instance_of(value, "pandas", "DataFrame"):
        index = value.index
    elif is_omics(value):
        index = value.obs_names
    elif is_instance_of(value, "xarray", "DataArray"):
        if value.ndim == 0 or value.dims[0] not in value.indexes:
            return None
        index = value.indexes[value.dims[0]]
    else:
        return None
    is_default = type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1
    if is_default and not default_index:
        return None
    ids = tuple(map(as_text, index))
    return None if not default_index and is_omics(value) and is_numbering(ids) else ids


def check_unique_ids(sample_ids: tuple[str, ...], *, where: str) -> None:
    """Refuse repeated sample ids.

    Raises
    ------
    DataError
        With the number of repeated ids, the first of them and their rows.
    """
    repeated = [item for item, count in Counter(sample_ids).items() if count > 1]
    if repeated:
        first = repeated[0]
        rows = [row for row, item in enumerate(sample_ids) if item == first][:5]
        raise DataError(
            f"{len(repeated)} sample id(s) occur more than once in {where}; the first is {first!r}, "
            f"in rows {rows}. Ids must be unique: drop or rename the repeated samples; frames whose index "
            "is no id, as after pandas.concat, go by row after frame.reset_index(drop=True)."
        )


def common_sample_ids(ids_by_view: Mapping[str, tuple[str, ...] | None]) -> tuple[str, ...] | None:
    """Return the ids all views agree on, None when no view has ids; views without ids follow.

    Raises
    ------
    DataError
        When ids repeat within a view, or two views hold the same ids in another order, or
        different ids; the message names the views and the first rows that disagree.
    """
    known = {name: ids for name, ids in ids_by_view.items() if ids is not None}
    if not known:
        return None
    first_name, first_ids = next(iter(known.items()))
    for name, ids in known.items():
        check_unique_ids(ids, where=f"view {name!r}")
        if ids == first_ids:
            continue
        if sorted(ids) == sorted(first_ids):
            rows = [
                row
                for row, pair in enumerate(zip(first_ids, ids, strict=True))
                if pair[0] != pair[1]
            ]
            raise DataError(
                f"Views {first_name!r} and {name!r} hold the same sample ids in a different order: "
                f"{len(rows)} row(s) differ, the first at row {rows[0]} ({first_ids[rows[0]]!r} "
                f"against {ids[rows[0]]!r}). Put the rows of {name!r} in the order of "
                f"{first_name!r} (frames: b.loc[a.index])."
            )
        missing = sorted(set(first_ids) - set(ids))
        added = sorted(set(ids) - set(first_ids))
        raise DataError(
            f"Views {first_name!r} and {name!r} hold different samples: {len(missing)} id(s) of "
            f"{first_name!r} are missing from {name!r} (first: {missing[:3]}) and {len(added)} are "
            f"only in {name!r} (first: {added[:3]}). Files: set join='inner' or join='outer' "
            "(--join, [data] join). Frames: give each view all samples, with rows of NaN for those that it "
            "does not have (frame.reindex(ids))."
        )
    return first_ids


def sample_dimension(dataset: Any) -> str:
    """Name of the dimension that all two-dimensional variables of an xarray.Dataset share.

    Raises
    ------
    DataError
        When no dimension is shared, or several are and none is called "sample".
    """
    tables = [variable for variable in dataset.data_vars.values() if variable.ndim == 2]
    shared = [
        str(dimension)
        for dimension in (tables[0].dims if tables else ())
        if all(dimension in table.dims for table in tables)
    ]
    preferred = [dimension for dimension in SAMPLE_DIMENSIONS if dimension in shared]
    if preferred:
        return preferred[0]
    if len(shared) == 1:
        return shared[0]
    found = {str(name): tuple(variable.dims) for name, variable in dataset.data_vars.items()}
    raise DataError(
        f"The dataset's variables {found} share {'the dimensions ' + str(shared) if shared else 'no dimension'}; "
        "allowed is exactly one shared dimension, the samples, or one called 'sample'. "
        "Rename it, for example dataset.rename({'rows': 'sample'})."
    )


def dataset_views(
    dataset: Any, *, label_name: str = "labels"
) -> tuple[dict[str, Any], tuple[str, ...] | None, NDArray[Any] | None]:
    """Split an xarray.Dataset into views by name as DataArrays (n, d), ids and labels.

    Two-dimensional variables over the sample dimension are views, transposed where samples
    are not their first dimension; the one-dimensional variable `label_name` is the ground truth.

    Raises
    ------
    DataError
        When a variable is neither.
    """
    dimension = sample_dimension(dataset)
    tables: dict[str, Any] = {}
    labels: NDArray[Any] | None = None
    for name, variable in dataset.data_vars.items():
        if variable.dims == (dimension, dimension):  # xarray itself hardly takes such
            raise DataError(
                f"Variable {name!r} has dimension {dimension!r} twice; a view has two, one of them "
                f"{dimension!r}. Name the other one differently: xarray.DataArray(values, "
                f"dims=({dimension!r}, {f'other_{dimension}'!r}))."
            )
        if name == label_name and variable.dims == (dimension,):
            labels = np.asarray(variable)
        elif variable.ndim == 2:
            tables[str(name)] = variable.transpose(dimension, ...)
        else:
            raise DataError(
                f"Variable {name!r} has dimensions {variable.dims}; a view has two, one of them "
                f"{dimension!r}. Drop it (dataset.drop_vars({name!r})) or give it a second one "
                "(variable.expand_dims('feature', -1))."
            )
    ids = sample_ids_of(next(iter(tables.values())))
    return tables, ids, labels


def split_columns(value: Any, n_features_per_view: tuple[int, ...]) -> list[Any]:
    """Cut one (n, sum of sizes) table into consecutive column blocks, without copying."""
    columns = value
    if is_instance_of(value, "pandas", "DataFrame"):
        columns = value.iloc
    elif is_sparse(value):
        columns = sparse.csc_array(checked_sparse(value, "The table"))
    edges = np.cumsum((0, *n_features_per_view)).tolist()
    if is_instance_of(value, "pyarrow", type(value).__name__):
        return [value.select(range(start, stop)) for start, stop in pairwise(edges)]
    return [columns[:, start:stop] for start, stop in pairwise(edges)]


UNLABELED = -1
"""Label of samples without one."""

_TWO = 2

# Control characters act on a terminal and break lines of a CSV file; surrogates are no UTF-8.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def as_text(item: object) -> str:
    """Return an id or a name as text; bytes, which HDF5 stores, are decoded."""
    return item.decode("utf-8", "backslashreplace") if isinstance(item, bytes) else str(item)


def check_printable(texts: Iterable[str], what: str) -> None:
    """Refuse texts with control characters, line separators or surrogates.

    Raises
    ------
    DataError
        With the first such text, escaped.
    """
    texts = tuple(texts)
    if not _UNPRINTABLE.search("".join(texts)):
        return
    at = next(index for index, text in enumerate(texts) if _UNPRINTABLE.search(text))
    raise DataError(
        f"The {what} {texts[at]!a} at position {at} has control characters; allowed are texts that "
        "can be printed in one line. Remove them."
    )


def labeled_samples(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which samples have a label: all but those of −1, if there are two other labels or more.

    Two classes may be called −1 and 1.
    """
    classes = np.unique(labels)
    has_unlabeled = len(classes) > _TWO and classes[0] == UNLABELED
    return labels != UNLABELED if has_unlabeled else np.ones(len(labels), dtype=np.bool_)


def encode_labels(values: Any) -> tuple[NDArray[np.int64], tuple[str, ...] | None]:
    """Return (codes, names): whole numbers as they are, text as positions in the sorted names.

    Parameters
    ----------
    values
        (n,), (n, 1) or (1, n) whole numbers of any dtype (MATLAB stores them as double),
        booleans, or text, also as bytes.

    Returns
    -------
    codes
        (n,) int64.
    names
        Names of the codes 0, 1, ... for text, None for numbers.

    Raises
    ------
    DataError
        When labels are not one whole number or text per sample.
    """
    array = np.asarray(values)
    if array.ndim == 0 or array.size != max(array.shape, default=0):
        raise DataError(
            f"Labels have shape {array.shape}; allowed is one label per sample, (n,). "
            "From an indicator matrix take indicator.argmax(axis=1)."
        )
    flat = array.ravel()
    if flat.dtype.kind == "O":
        gone = [row for row, item in enumerate(flat) if is_missing(item)]
        if gone:
            raise DataError(
                f"{len(gone)} label(s) are missing, the first {flat[gone[0]]} in row {gone[0]}. Give "
                "unlabeled samples a number of their own, for example -1, or a name where labels are "
                "text."
            )
    if flat.dtype.kind == "S" or (
        flat.dtype.kind == "O" and all(isinstance(item, str | bytes) for item in flat)
    ):
        flat = np.array([as_text(item) for item in flat.tolist()], dtype=np.str_)
    if flat.dtype.kind in "UT":
        names, codes = np.unique(flat.astype(np.str_), return_inverse=True)
        return codes.astype(np.int64), tuple(names.tolist())
    if flat.dtype.kind in "bi" or (flat.dtype.kind == "u" and flat.dtype.itemsize < 8):
        return flat.astype(np.int64), None
    if flat.dtype.kind in "fu":
        whole = np.isfinite(flat) & (np.abs(flat) < 2.0**62)
        whole &= np.floor(flat) == flat
        if whole.all():
            return flat.astype(np.int64), None
        rows = np.flatnonzero(~whole)
        raise DataError(
            f"{rows.size} label(s) are not whole numbers, the first {flat[rows[0]]} in row "
            f"{rows[0]}; allowed are integers or text, one per sample. Give unlabeled samples a "
            "number of their own, for example -1."
        )
    raise DataError(
        f"Labels have dtype {flat.dtype}; allowed are integers or text, one per sample. Encode "
        "them with numpy.unique(y, return_inverse=True)[1]."
    )


def is_missing(item: object) -> bool:
    """Return whether a Python object is a missing value, as pandas defines it."""
    if isinstance(item, float | np.floating):
        return bool(np.isnan(item))
    return item is None or type(item).__name__ in ("NAType", "NaTType")

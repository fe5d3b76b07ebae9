"""Conversion of arrays, sparse matrices, frames, xarray and AnnData objects to row sources, ids and labels.

Their classes are recognized by name, so that no package is imported unless it is used.
"""

from __future__ import annotations

import re
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
    is_numbering,
    unmasked,
)
from mscam_dask.errors import DataError


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
    return any(is_instance_of(value, package, "DataFrame") for package in ("pandas", "polars")) or (
        is_arrow(value)
    )


def is_arrow(value: object) -> bool:
    """Return whether a value is a table or record batch of Arrow."""
    return any(is_instance_of(value, "pyarrow", name) for name in ("Table", "RecordBatch"))


def rows_of(
    value: Any, *, name: str, view_type: ViewType = "features", file: str = ""
) -> RowSource:
    """Wrap one (n, d) table of any supported kind, which may read a `file` by blocks, without copying it."""
    names = names_of_columns(value)
    if is_instance_of(value, "xarray", "DataArray"):
        value = value.data
    if is_instance_of(value, "dask", "Array"):
        return DaskRows(value, name, view_type, names, file)
    if is_frame(value):
        array: Any = _frame_values(value, name)
    elif is_sparse(value):
        value = checked_sparse(value, f"View {name!r}")
        has_sums = value.dtype.kind in "iu" and not value.has_canonical_format  # which may be large
        array = sparse.csr_array(value.astype(np.float64) if has_sums else value)
    else:
        array = np.asarray(unmasked(_as_plain_array(value, name)))
    return ArrayRows(array, name, view_type, names)


def with_index(table: Any) -> Any:
    """Return a table of Arrow that has an index of pandas, not 0, 1, ..., as a frame; any other as it is."""
    stored = (is_arrow(table) and table.schema.pandas_metadata) or {"index_columns": ()}
    kept = any(isinstance(i, str) or i["start"] or i["step"] != 1 for i in stored["index_columns"])
    return table.to_pandas() if kept else table


def _labels_of(value: Any) -> tuple[Any, Any]:
    """Labels of the rows, and of the columns, of a table that has some; else None."""
    if is_instance_of(value, "pandas", "DataFrame"):
        return value.index, value.columns
    if is_frame(value):
        return None, value.schema.names if is_arrow(value) else value.columns
    if is_omics(value):
        return value.obs_names, value.var_names
    if is_instance_of(value, "pandas", "Series"):
        return value.index, None
    if is_instance_of(value, "xarray", "DataArray") and value.ndim in (1, 2):
        return _coordinate_of(value, value.dims[0]), value.indexes.get(value.dims[-1])
    return None, None


def _coordinate_of(array: Any, dimension: Any) -> Any:
    """Index of a dimension, or, without one, its first coordinate with a usual name of ids and no value twice; else None."""
    others = (
        one.to_numpy()
        for name, one in array.coords.items()
        if one.dims == (dimension,) and is_of_ids(str(name))
    )
    different = (one for one in others if len({*one.tolist()}) == len(one))
    return array.indexes.get(dimension, next(different, None))


def names_of_columns(value: Any) -> tuple[str, ...] | None:
    """Labels of a frame's columns, a DataArray's second dimension or an AnnData's variables; else None."""
    _, labels = _labels_of(value)
    return None if labels is None else tuple(map(as_text, labels))


# Types of polars and of Arrow; pandas has those of NumPy.
_NUMBERS = re.compile(r"(bool(ean)?|u?int(8|16|32|64)|halffloat|double|float(16|32|64)?)", re.I)


def _frame_values(frame: Any, name: str) -> NDArray[Any]:
    """Values of a frame or Arrow table whose columns are numbers or truth values; missing ones become NaN."""
    labels = names_of_columns(frame) or ()
    if is_instance_of(frame, "pandas", "DataFrame"):
        types = list(frame.dtypes)
        usable = [getattr(dtype, "kind", "O") in "biuf" for dtype in types]
    else:
        types = frame.schema.types if is_arrow(frame) else frame.dtypes
        usable = [_NUMBERS.fullmatch(str(dtype)) is not None for dtype in types]
    other = [at for at, is_usable in enumerate(usable) if not is_usable]
    if other:
        listing = ", ".join(f"{labels[at]!r} ({types[at]})" for at in other[:5])
        ids = labels[other[0]]
        raise DataError(
            f"View {name!r} is a frame with {len(other)} column(s) that are not numbers: {listing}"
            f"{', ...' if len(other) > 5 else ''}. Drop them or encode them as numbers (pandas: "
            "frame.astype(float), polars: frame.cast(pl.Float64)), or make them sample ids: "
            f"frame.set_index({ids!r}), of polars and Arrow frame.to_pandas().set_index({ids!r})."
        )
    if not labels:
        return np.empty(frame.shape)
    if not is_instance_of(frame, "pandas", "DataFrame"):
        columns = map(np.asarray, frame.columns if is_arrow(frame) else frame.get_columns())
        # a column of truth values of which some are missing is one of Python objects
        return np.stack([c.astype(float) if c.dtype.kind == "O" else c for c in columns], axis=1)
    if all(isinstance(dtype, np.dtype) for dtype in types):
        # pandas makes Python objects of bool beside numbers, unless it gets the dtype
        return np.asarray(frame.to_numpy(dtype=np.result_type(*types)))
    return np.asarray(frame.to_numpy(dtype=np.float64, na_value=np.nan))


def _as_plain_array(value: Any, name: str) -> NDArray[Any]:
    what = f"a {type(value).__module__}.{type(value).__qualname__}"
    is_array = hasattr(value, "__array__") or isinstance(value, list | tuple)
    is_frame = is_instance_of(value, "dask", "DataFrame")  # as an array it would lose its index
    if isinstance(value, RowSource | str | bytes | PathLike) or is_frame or not is_array:
        what = f"the path {str(value)!r}" if isinstance(value, str | PathLike) else what
        raise DataError(
            f"View {name!r} is {what}; allowed are NumPy and SciPy sparse arrays, Dask arrays, pandas and polars "
            "frames, Arrow tables, AnnData and xarray.DataArray. Convert it, for example with numpy.asarray(view), "
            "collect() or compute() of lazy frames (to_dask_array(lengths=True) if all have the same sample in a row), and "
            "files with mscam-dask ingest FILE... -o data.zarr, whose path takes the place of all views."
        )
    try:
        return np.asanyarray(value)  # masked ones too
    except (ValueError, TypeError, RuntimeError) as error:  # unequal rows, other devices
        raise DataError(
            f"View {name!r} is {what} that cannot be converted to an array: {str(error).rstrip('.')}. Make a "
            "two-dimensional NumPy array of it first, with rows of equal length."
        ) from error


def sample_ids_of(value: Any, *, default_index: bool = False) -> tuple[str, ...] | None:
    """Ids that a frame's index, a sample coordinate or an AnnData gives, and a default index (0, 1, ...) if asked for."""
    index, _ = _labels_of(value)
    if index is None:
        return None
    is_default = type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1
    if is_default and not default_index:
        return None
    ids = tuple(map(as_text, index))
    return None if not default_index and is_omics(value) and is_numbering(ids) else ids


def sample_dimension(dataset: Any) -> str:
    """Name of the one dimension, or that called "sample", of all two-dimensional variables of an xarray.Dataset."""
    tables = [variable for variable in dataset.data_vars.values() if variable.ndim == 2]
    known = dict.fromkeys(str(dimension) for table in tables for dimension in table.dims)
    shared = [name for name in known if all(name in table.dims for table in tables)]
    preferred = [*({"sample"} & {*shared} or filter(is_of_samples, shared))]
    preferred = preferred or [*filter(is_of_samples, known)] or shared
    if len(preferred) == 1 and preferred[0] in shared:
        return preferred[0]
    found = {str(name): tuple(variable.dims) for name, variable in dataset.data_vars.items()}
    raise DataError(
        f"The dataset's variables {found} share {'the dimensions ' + str(shared) if shared else 'no dimension'}; "
        "allowed is exactly one shared dimension, the samples, or one called 'sample'. Rename it, for example "
        "dataset.rename({'rows': 'sample'}), or leave out variables without it (dataset[names], --view NAME for each other one)."
    )


_LABELS = re.compile(  # a group for each rank
    r"((?:true|gt|class|target|group)?labels?(?:true|id)?|gt|gnd|(?:ground)?truth|ytrue)|"
    r"((?:true)?class(?:es|id)?|targets?(?:class)?)|"
    r"((?:seurat|sc3_?\d*|graph|kmeans)?clusters?(?:id|label)?|clustering|(?:leiden|louvain)_?r?(?:es)?[_\d.]*|"
    r"\w+snnres[_\d.]+)"
)


def label_rank(name: str) -> int:
    """How surely a name, in any case and with any separators of words, is that of labels: 1, then 2, 3 of clusterings; 0 if it is not."""
    found = _LABELS.fullmatch(re.sub(r"[\W_]+(?=[^\W\d_])", "", name).lower())
    return 0 if found is None else found.lastindex or 0


# An id by its name: certainly; of a family; maybe.
CERTAIN, _FAMILY, _MAYBE = 3, 2, 1

_PEOPLE = "sample|patient|subject|participant|individual|person|donor|specimen|respondent"
_THINGS = (
    "case|record|cell|spot|animal|mouse|aliquot|row|obs|observation|item|object|unit|customer|user|client|"
    "member|employee|student|product|order|account|image|run|entry|entity|gene|probe|feature|bcrpatient"
)
_CERTAIN_NAME = re.compile(
    rf"(unnamed0)?|({_PEOPLE})s?|(({_PEOPLE}|{_THINGS})s?)?(id|ids|uid|uuid|guid|identifier|barcode|accession)|"
    r"mrn|f?eid|seqn|iid|rid|pid|u?subj(id)?|nhsno|nhsnumber|rownames?"
)
_MAYBE_NAME = re.compile(
    rf"({_PEOPLE}|{_THINGS})?s?(name|no|nr|num|number|code|key|index|label)|({_THINGS})"
)
_SAMPLES = re.compile(rf"({_PEOPLE}|cell|case|obs|observation|barcode)s?(_?(id|name|barcode)s?)?")
# patient_id, PatientID, user.id; not acid, GRID
_ENDS_IN_ID = re.compile(r"(?i:(?:^|[\W_])ids?$)|[a-z0-9]I[Dd]s?$")


def id_strength(name: str) -> int:
    """How surely a column of this name has ids: 0 to 3."""
    plain = re.sub(r"[\W_]+", "", name).lower()
    if _CERTAIN_NAME.fullmatch(plain):
        return CERTAIN
    if plain == "fid":
        return _FAMILY
    return _MAYBE if _MAYBE_NAME.fullmatch(plain) or _ENDS_IN_ID.search(name) else 0


def is_of_samples(dimension: object) -> bool:
    """Return whether a dimension is called as samples are."""
    return _SAMPLES.fullmatch(str(dimension).lower()) is not None


def is_of_ids(name: str) -> bool:
    """Return whether a column is called as ids are, or as the former index of a frame."""
    return id_strength(name) == CERTAIN or name in ("index", "level_0", "__index_level_0__")


UNLABELED = -1
"""Label of samples without one."""


def as_text(item: object) -> str:
    """Return an id or a name as text; bytes, which HDF5 stores, are decoded."""
    return item.decode("utf-8", "backslashreplace") if isinstance(item, bytes) else str(item)


def labeled_samples(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which samples have a label: all but those of −1, unless the two classes are −1 and another."""
    classes = np.unique(labels)
    has_unlabeled = len(classes) > 2 and classes[0] == UNLABELED
    return labels != UNLABELED if has_unlabeled else np.ones(len(labels), dtype=np.bool_)


def encode_labels(values: Any) -> tuple[NDArray[np.int64], tuple[str, ...] | None]:
    """Return codes (n,) int64 of whole numbers or text, (n,), (n, 1) or (1, n), and the names for text, sorted."""
    array = np.asarray(values)
    if array.ndim == 0 or array.size != max(array.shape, default=0):
        raise DataError(
            f"Labels have shape {array.shape}; allowed is one label per sample, (n,). "
            "From an indicator matrix take indicator.argmax(axis=1)."
        )
    flat, kind = array.ravel(), array.dtype.kind
    is_usable = np.full(array.size, kind in "biSUT")
    if kind == "O":
        is_usable = np.array([isinstance(item, str | bytes) for item in flat], dtype=np.bool_)
    elif kind in "fu":
        numbers = flat.astype(np.float64)
        is_usable = (np.abs(numbers) < 2.0**62) & (np.floor(numbers) == numbers)
    if not is_usable.all():
        row = int(is_usable.argmin())
        raise DataError(
            f"{np.count_nonzero(~is_usable)} label(s) of dtype {flat.dtype} are not usable, the first {flat[row]} in row "
            f"{row}; allowed are integers, or text for all samples. Give unlabeled samples a number of their own, for "
            "example -1, or a name where labels are text; encode others with numpy.unique(y, return_inverse=True)[1]."
        )
    if kind in "OSUT":
        texts = np.array([as_text(item) for item in flat.tolist()], dtype=np.str_)
        names, codes = np.unique(texts, return_inverse=True)
        return codes.astype(np.int64), tuple(names.tolist())
    return flat.astype(np.int64), None

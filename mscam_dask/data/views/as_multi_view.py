"""Conversion of any supported input into `MultiViewData`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mscam_dask.data.sparse import is_sparse
from mscam_dask.data.store.read import ZarrRows, open_store
from mscam_dask.data.views.conversion import (
    SAMPLE_DIMENSIONS,
    as_text,
    check_unique_ids,
    common_sample_ids,
    dataset_views,
    encode_labels,
    is_frame,
    is_instance_of,
    is_omics,
    rows_of,
    sample_ids_of,
    split_columns,
)
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.presence import (
    aligned_tables,
    lifted,
    refuse_unmatched_columns,
    replaced_view,
    restrict_to_present,
)
from mscam_dask.data.views.sources import (
    VIEW_TYPES,
    ArrayRows,
    DaskRows,
    RowSource,
    ViewType,
    row_ranges,
    view_digest,
)
from mscam_dask.errors import ConfigurationError, DataError, DataTypeError

__all__ = [
    "VIEW_TYPES",
    "ArrayRows",
    "DaskRows",
    "MultiViewData",
    "OmicsArray",
    "RowSource",
    "ViewType",
    "ViewTypeSpec",
    "ZarrRows",
    "arrays_of",
    "as_multi_view",
    "row_ranges",
    "view_digest",
    "views_of",
    "with_view_types",
]

ViewTypeSpec = str | Mapping[str, str] | Sequence[str]
"""One view type for all views, or one per view by name or by position."""


_Matched = tuple[MultiViewData, tuple[int, ...]]


def as_multi_view(
    views: Any,
    *,
    n_features_per_view: Sequence[int] | None = None,
    view_type: ViewTypeSpec = "features",
    view_names: Sequence[str] | None = None,
) -> MultiViewData:
    """Convert several views of the same samples into `MultiViewData`.

    Parameters
    ----------
    views
        One of: a list, tuple or dict of (n, d_v) tables (NumPy of any real dtype and layout,
        SciPy sparse, Dask arrays, pandas and polars frames, Arrow tables, xarray.DataArray, AnnData,
        row sources); an xarray.Dataset whose variables share the sample dimension; a MuData with
        shared observations, of which each modality is a view; the path of a store written by
        `mscam_dask.data.ingest`; a `MultiViewData`; or one (n, d) table, which is one view
        unless `n_features_per_view` cuts it. Tables with the same sample ids (pandas index, sample
        coordinate, obs_names) in another order are put in the order of the first that has ids.
    n_features_per_view
        Numbers of columns of the views inside one (n, sum) table; only with one table.
    view_type
        "features", "distance" or "kernel": one for all, a mapping from view name (views left
        out are features) or one per view in order. Views of a store or a `MultiViewData` keep
        their recorded view type unless the argument names another: there, the default
        "features" changes nothing. A Dataset records them as attribute `view_type` of a variable.
    view_names
        Names of the views in order; by default a dict's keys, a Dataset's variables, a
        store's names, or "view_0", "view_1", ...

    Returns
    -------
    MultiViewData
        Sharing memory with the input where it can; nothing is read from stores or computed. A row
        of an array that is all NaN is a sample that the view does not have.

    Raises
    ------
    DataError
        When there is no view, a view is not a two-dimensional table of real numbers, the
        numbers of samples differ, ids differ between views, or their order differs beside a view
        without ids.
    ConfigurationError
        When `n_features_per_view`, `view_type` or `view_names` do not fit the views.

    Examples
    --------
    >>> import numpy as np
    >>> data = as_multi_view({"color": np.ones((5, 3)), "shape": np.ones((5, 2), dtype="f4")})
    >>> data.view_names, data.n_samples
    (('color', 'shape'), 5)
    >>> [view.shape for view in as_multi_view(np.ones((5, 7)), n_features_per_view=(3, 4)).views]
    [(5, 3), (5, 4)]
    """
    if n_features_per_view is not None:
        views = _cut(views, n_features_per_view)
    elif _is_table(views):
        views = [views]
    unmatched: tuple[int, ...] = ()
    if isinstance(views, str | Path):
        data = open_store(views)
    elif isinstance(views, MultiViewData):
        data = views
    elif is_instance_of(views, "xarray", "Dataset"):
        data = _from_dataset(views)
    elif is_omics(views):
        data = views_of(views)
    elif isinstance(views, Mapping):
        data, unmatched = _from_tables([(str(name), table) for name, table in views.items()])
    elif isinstance(views, list | tuple):
        data, unmatched = _from_sequence(views, view_names)
    else:
        raise DataError(
            f"Got views of type {type(views).__module__}.{type(views).__qualname__}; allowed are a "
            "list or dict of (n_samples, n_features) tables, an xarray.Dataset, a store path, or "
            "one table with n_features_per_view=(...). " + _shape_hint(views)
        )
    if view_names is not None:
        data = _renamed(data, view_names)
    data = with_view_types(data, view_type)
    refuse_unmatched_columns([data.views[position] for position in unmatched])
    _check_dimensions(views, data)
    return data


def _check_dimensions(tables: Any, data: MultiViewData) -> None:
    """Refuse DataArrays of features whose dimensions say that the samples are on columns."""
    given = tables.values() if isinstance(tables, Mapping) else tables
    if not isinstance(tables, Mapping | list | tuple) or is_instance_of(
        tables, "xarray", "Dataset"
    ):
        return
    for table, view in zip(given, data.views, strict=True):
        if view.view_type == "features" and is_instance_of(table, "xarray", "DataArray"):
            first, second = table.dims
            if second in SAMPLE_DIMENSIONS and first not in SAMPLE_DIMENSIONS:
                raise DataError(
                    f"View {view.name!r} has dimensions {table.dims}: {second!r} is on its columns, and a "
                    f"view has samples on its rows. Give view.transpose({second!r}, {first!r})."
                )


def with_view_types(data: MultiViewData, view_type: ViewTypeSpec) -> MultiViewData:
    """Return the same views with their view types set as `view_type` says (see `as_multi_view`).

    Views are restricted to the samples that they have.

    Raises
    ------
    ConfigurationError
        When a view type or a view name is unknown, or the count is wrong.
    """
    recorded = [view.view_type for view in data.views]
    if isinstance(view_type, str):
        chosen = recorded if view_type == "features" else [view_type] * len(data.views)
    elif isinstance(view_type, Mapping):
        unknown = sorted(set(view_type) - set(data.view_names))
        if unknown:
            raise ConfigurationError(
                f"view_type names view(s) {unknown} that do not exist; the views are "
                f"{list(data.view_names)}."
            )
        chosen = [view_type.get(view.name, view.view_type) for view in data.views]
    else:
        chosen = list(view_type)
        if len(chosen) != len(data.views):
            raise ConfigurationError(
                f"view_type has {len(chosen)} entries for {len(data.views)} views "
                f"{list(data.view_names)}; give one per view, or a mapping by name."
            )
    for view, kind in zip(data.views, chosen, strict=True):
        if kind not in VIEW_TYPES:
            raise ConfigurationError(
                f"view_type={kind!r} for view {view.name!r}; allowed are {list(VIEW_TYPES)}."
            )
    views = tuple(
        restrict_to_present(view if view.view_type == kind else replaced_view(view, view_type=kind))
        for view, kind in zip(data.views, chosen, strict=True)
    )
    return replace(data, views=views)


def _renamed_view(view: RowSource, name: str) -> RowSource:
    return view if view.name == name else replaced_view(view, name=name)


def _renamed(data: MultiViewData, view_names: Sequence[str]) -> MultiViewData:
    names = [str(name) for name in view_names]
    if isinstance(view_names, str) or len(names) != len(data.views):
        raise ConfigurationError(
            f"view_names={view_names!r} has not one name for each of the {len(data.views)} views "
            f"{list(data.view_names)}."
        )
    views = tuple(_renamed_view(view, name) for view, name in zip(data.views, names, strict=True))
    return replace(data, views=views)


def _is_table(value: Any) -> bool:
    """Return whether a value is one two-dimensional table rather than a collection of them."""
    return (
        isinstance(value, RowSource)
        or is_sparse(value)
        or is_frame(value)
        or is_instance_of(value, "xarray", "DataArray")
        or is_instance_of(value, "dask", "DataFrame")
        or (
            (isinstance(value, np.ndarray) or is_instance_of(value, "dask", "Array"))
            and value.ndim == 2
        )
    )


def _shape_hint(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is None:
        return "Convert it to one of these."
    return f"An array of shape {tuple(shape)} is not a collection of views: pass list(array)."


def _cut(views: Any, n_features_per_view: Sequence[int]) -> list[Any]:
    if isinstance(views, list | tuple):
        views = np.asarray(views)
    if not _is_table(views) or isinstance(views, RowSource):
        raise ConfigurationError(
            f"n_features_per_view={n_features_per_view!r} was given with a {type(views).__qualname__}; it is "
            "for one two-dimensional table. Remove it if the views are already separate."
        )
    try:
        sizes = tuple(operator.index(size) for size in n_features_per_view)
    except TypeError as error:
        raise ConfigurationError(
            f"n_features_per_view={n_features_per_view!r} are not whole numbers; give the number of columns of each "
            "view, such as (240, 76)."
        ) from error
    n_columns = int(views.shape[1])
    if not sizes or min(sizes) < 1 or sum(sizes) != n_columns:
        raise ConfigurationError(
            f"n_features_per_view={sizes} sums to {sum(sizes)} but the table has {n_columns} columns; sizes "
            "must be at least 1 and sum to the number of columns."
        )
    return split_columns(views, sizes)


def _from_sequence(tables: Sequence[Any], view_names: Sequence[str] | None) -> _Matched:
    names = [
        table.name if isinstance(table, RowSource) else f"view_{index}"
        for index, table in enumerate(tables)
    ]
    if view_names is not None and len(view_names) == len(tables):
        names = [str(name) for name in view_names]  # so that errors use the caller's names
    return _from_tables(list(zip(names, tables, strict=True)))


def _from_tables(tables: Sequence[tuple[str, Any]]) -> _Matched:
    """The views, and the positions that `aligned_tables` reports."""
    tables, unmatched = aligned_tables(tables)
    views = tuple(
        _renamed_view(table, name) if isinstance(table, RowSource) else rows_of(table, name=name)
        for name, table in tables
    )
    # A default index is no id, unless it stands beside a frame that has ids.
    ids = {name: sample_ids_of(table) for name, table in tables}
    if any(item is not None for item in ids.values()):
        ids = {name: sample_ids_of(table, default_index=True) for name, table in tables}
    data = MultiViewData(views=views)  # counts are compared before ids
    return replace(data, sample_ids=common_sample_ids(ids)), unmatched


def _from_dataset(dataset: Any) -> MultiViewData:
    tables, ids, labels = dataset_views(dataset)
    views = tuple(
        rows_of(table, name=name, view_type=table.attrs.get("view_type", "features"))
        for name, table in tables.items()
    )
    codes, label_names = (None, None) if labels is None else encode_labels(labels)
    return MultiViewData(views=views, sample_ids=ids, labels=codes, label_names=label_names)


def views_of(
    data: Any,
    views: Sequence[str] | Mapping[str, str] | None = None,
    *,
    labels: str | None = None,
) -> MultiViewData:
    """Views of an AnnData or MuData, chosen by name.

    Parameters
    ----------
    data : AnnData or MuData
        A MuData has shared observations (axis 0). Samples that a modality lacks have NaN in its row.
    views : sequence or mapping of str, optional
        Names of arrays, in order; a mapping also renames them. In an AnnData they are "X",
        "layers/NAME" and "obsm/NAME"; in a MuData the name of a modality for its X,
        "MODALITY/layers/NAME", "MODALITY/obsm/NAME", and "obsm/NAME" of the MuData itself. None: X, or
        X of every modality.
    labels : str, optional
        Column of obs with the ground truth, for evaluation only.

    Returns
    -------
    MultiViewData
        Sharing memory with `data`; an estimator's `fit` accepts it.

    Raises
    ------
    DataTypeError
        `data` is neither.
    DataError
        A name does not exist, the MuData shares variables instead of observations, or sample ids repeat.
    """
    if not is_omics(data):
        raise DataTypeError(
            f"Got a {type(data).__module__}.{type(data).__qualname__}; allowed are AnnData and MuData."
        )
    arrays = arrays_of(data)
    if views is None:
        views = [name for name, array in arrays.items() if array.is_main]
        if not views:
            raise DataError(
                f"The data have no X; they have {list(arrays)}. Name the views: views=['NAME', ...]."
            )
    unknown = [name for name in views if name not in arrays]
    if unknown:
        raise DataError(f"No array is called {unknown}; allowed are {list(arrays)}.")
    new_names = views if isinstance(views, Mapping) else {name: name for name in views}
    found = tuple(arrays[old].make(new) for old, new in new_names.items())
    codes, label_names = _labels(data, labels)
    return MultiViewData(
        views=found, sample_ids=sample_ids_of(data), labels=codes, label_names=label_names
    )


@dataclass(frozen=True)
class OmicsArray:
    """One array of an AnnData or MuData.

    Attributes
    ----------
    make
        Makes the view by its name.
    is_main
        Whether it is X.
    """

    make: Callable[[str], RowSource]
    is_main: bool = False


def arrays_of(data: Any, *, main: str = "X") -> dict[str, OmicsArray]:
    """Arrays of an AnnData or MuData, or of an object with the same attributes, by name.

    Parameters
    ----------
    data
        Has `obs_names` and `obsm`, and either `mod` and `axis`, or `X`, `var_names` and `layers`.
    main
        Name of X in an AnnData.

    Raises
    ------
    DataError
        Observations are not shared, or ids repeat.
    """
    wanted = tuple(map(as_text, data.obs_names))
    check_unique_ids(wanted, where="obs_names")
    if not hasattr(data, "mod"):
        return _of_modality(data, main, "" if main == "X" else f"{main}/")
    if data.axis not in (0, -1):
        raise DataError(
            f"The MuData has axis={data.axis}: its modalities share variables; allowed are modalities that "
            "share observations (axis=0). Give the modalities as they should be clustered."
        )
    arrays: dict[str, OmicsArray] = {}
    for modality, one in data.mod.items():
        own = tuple(map(as_text, one.obs_names))
        check_unique_ids(own, where=f"obs_names of modality {modality!r}")
        stray = set(own).difference(wanted)
        if stray:
            raise DataError(
                f"Modality {modality!r} has {len(stray)} sample(s) that are not in obs_names of the "
                f"MuData, the first {min(stray)!r}. Call its update() first."
            )
        for name, array in _of_modality(one, modality, f"{modality}/").items():
            arrays[name] = replace(array, make=partial(_lifted, array.make, own, wanted))
    for key in data.obsm:
        if key not in data.mod:  # which masks of the samples of each modality are
            arrays[f"obsm/{key}"] = OmicsArray(partial(_view, data, "obsm", key))
    return arrays


def _of_modality(data: Any, main: str, prefix: str) -> dict[str, OmicsArray]:
    has_main = data.has_x if hasattr(data, "has_x") else data.X is not None
    arrays = {main: OmicsArray(partial(_view, data, "X", None), is_main=True)} if has_main else {}
    for kind in ("layers", "obsm"):
        for key in getattr(data, kind):
            arrays[f"{prefix}{kind}/{key}"] = OmicsArray(partial(_view, data, kind, key))
    return arrays


def _view(data: Any, kind: str, key: str | None, name: str) -> RowSource:
    held = getattr(data, kind)
    value = held if key is None else held[key]
    value = value.to_memory() if hasattr(value, "to_memory") else value  # sparse and in a file
    file = getattr(data, "file", "")
    view = rows_of(value, name=name, file=file)
    if view.shape[0] != len(data.obs_names):
        raise DataError(
            f"{file and f'{file}: '}view {name!r} has {view.shape[0]} rows for {len(data.obs_names)} samples; there must be one row "
            "for each. Restore the data from a copy."
        )
    if kind == "obsm" or not isinstance(view, ArrayRows | DaskRows):
        return view
    return replace(view, feature_names=tuple(map(as_text, data.var_names)))


def _lifted(
    make: Callable[[str], RowSource], own: tuple[str, ...], wanted: tuple[str, ...], name: str
) -> RowSource:
    return lifted(make(name), own, wanted)


def _labels(data: Any, column: str | None) -> Any:
    if column is None:
        return None, None
    if column not in data.obs:
        raise DataError(
            f"labels={column!r} is not a column of obs, which has {list(map(str, data.obs.columns))}."
        )
    return encode_labels(data.obs[column].to_numpy())

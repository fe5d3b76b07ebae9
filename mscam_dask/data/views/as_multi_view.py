"""Conversion of any supported input into `MultiViewData`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mscam_dask.data.sparse import is_sparse
from mscam_dask.data.store.dataset import open_store
from mscam_dask.data.views.conversion import (
    as_text,
    encode_labels,
    is_instance_of,
    is_of_ids,
    is_of_samples,
    is_omics,
    label_rank,
    rows_of,
    sample_dimension,
    sample_ids_of,
    with_index,
)
from mscam_dask.data.views.multi_view import MultiViewData, option_by_view
from mscam_dask.data.views.rows import lifted, replaced_view, restrict_to_present, with_all_columns
from mscam_dask.data.views.sample_ids import check_sample_ids, join_samples, places_of
from mscam_dask.data.views.sources import VIEW_TYPES, ArrayRows, DaskRows, RowSource, is_numbering
from mscam_dask.errors import DataError, DataTypeError

_HEAD, _FEW = 64, 5  # rows that are looked at first, and that may agree by chance

ViewTypeSpec = str | Mapping[str, str] | Sequence[str]
"""One view type for all views, or one per view by name or by position."""


def as_multi_view(
    views: Any, *, view_type: ViewTypeSpec = "features", is_new: bool = False
) -> MultiViewData:
    """Convert several views of the same samples into `MultiViewData`.

    Parameters
    ----------
    views
        A list, tuple or dict of (n, d_v) tables (NumPy of any real dtype and layout, SciPy sparse, Dask
        arrays, pandas and polars frames, Arrow tables, xarray.DataArray, AnnData, views of another `MultiViewData`); an
        xarray.Dataset whose variables share the sample dimension; a MuData with shared observations, of
        which each modality is a view; the path of a store written by `mscam_dask.data.ingest`; a
        `MultiViewData`; or one (n, d) table, which is one view. Views of a list are called "view_0", .... Tables with the same sample ids (pandas index, sample coordinate, obs_names) in another order are put in
        the order of the first that has ids.
    view_type
        "features", "distance" or "kernel": one for all, a mapping from view name (views left out are
        features) or one per view in order. Views of a store, a Dataset (attribute `view_type` of a variable)
        or a `MultiViewData` keep their recorded type unless the argument names another: there, the default
        "features" changes nothing. Columns of a pairwise table that are named by its ids, in whichever
        order, are matched by id; others are in the order of its rows.
    is_new
        Whether these are new samples, which may lack views that `view_type` names, and for which columns of a pairwise
        table are samples of a fit.

    Returns
    -------
    MultiViewData
        Sharing memory with the input where it can; nothing is read from stores or computed. A row
        of an array that is all NaN is a sample that the view does not have.

    Raises
    ------
    DataError
        There is no view, a view is not a two-dimensional table of real numbers, the numbers of samples
        differ, ids differ between views, or their order differs beside a view without ids.
    ConfigurationError
        `view_type` does not fit the views.

    Examples
    --------
    >>> import numpy as np
    >>> data = as_multi_view({"color": np.ones((5, 3)), "shape": np.ones((5, 2), dtype="f4")})
    >>> data.view_names, data.n_samples
    (('color', 'shape'), 5)
    """
    kinds = (str, Path, MultiViewData, Mapping, list, tuple)
    if is_sparse(views) or not (isinstance(views, kinds) or is_omics(views)):
        views = [views]  # one table
    if isinstance(views, str | Path):
        data = open_store(views)
    elif isinstance(views, MultiViewData):
        data = views
    elif is_instance_of(views, "xarray", "Dataset"):
        data = _of_dataset(views)
    elif is_omics(views):
        data = views_of(views)
    else:
        data = _from_tables(views, is_new=is_new)
    data = with_view_types(data, view_type, is_new=is_new)
    has_tables = isinstance(views, list | tuple | Mapping)
    if has_tables and not is_instance_of(views, "xarray", "Dataset"):
        given = views.values() if isinstance(views, Mapping) else views
        for table, view in zip(given, data.views, strict=True):
            if view.view_type == "features" and is_instance_of(table, "xarray", "DataArray"):
                first, second = table.dims
                if is_of_samples(second) and not is_of_samples(first):
                    raise DataError(
                        f"View {view.name!r} has dimensions {table.dims}: {second!r} is on its columns, and a "
                        f"view has samples on its rows. Give view.transpose({second!r}, {first!r})."
                    )
        named = [(repr(view.name), view.whole) for view in data.views if view.feature_names]
        check_order(named, have_ids=data.sample_ids is not None)
    return data


def _of_dataset(dataset: Any) -> MultiViewData:
    """Views, ids and the labels, a variable of this name, of an xarray.Dataset."""
    dimension = sample_dimension(dataset)
    views: list[RowSource] = []
    ids, codes, label_names = None, None, None
    for name, variable in dataset.data_vars.items():
        if label_rank(str(name)) == 1 and variable.dims == (dimension,):
            codes, label_names = encode_labels(np.asarray(variable))
        elif variable.ndim == len(set(variable.dims)) == 2:
            table = variable.transpose(dimension, ...)
            ids = sample_ids_of(table)
            view_type = table.attrs.get("view_type", "features")
            views.append(rows_of(table, name=str(name), view_type=view_type))
        else:
            raise DataError(
                f"Variable {name!r} has dimensions {variable.dims}; a view has two of different names, one of "
                f"them {dimension!r}. Drop it (dataset.drop_vars({name!r})), call it 'labels' if it has these, or give a "
                "feature a second one (variable.expand_dims('feature', -1))."
            )
    return MultiViewData(tuple(views), ids, codes, label_names)


def with_view_types(
    data: MultiViewData, view_type: ViewTypeSpec, *, is_new: bool = False
) -> MultiViewData:
    """Return the same views, of the samples that they have, with view types as `as_multi_view` takes them."""
    recorded = {view.name: view.view_type for view in data.views}
    if is_new and isinstance(view_type, Mapping):
        view_type = {name: one for name, one in view_type.items() if name in recorded}
    chosen = recorded | (
        {}
        if isinstance(view_type, str) and view_type == "features"
        else option_by_view("view_type", view_type, data.view_names, VIEW_TYPES)
    )
    views = [replaced_view(view, view_type=chosen[view.name]) for view in data.views]
    if is_new:  # some become incomplete, with columns of their own
        views = [restrict_to_present(with_all_columns(view)) for view in views]
        return replace(data, views=tuple(map(with_all_columns, views)))
    return replace(data, views=tuple(map(restrict_to_present, views)))


def _from_tables(tables: Mapping[Any, Any] | Sequence[Any], *, is_new: bool) -> MultiViewData:
    """Views in the order of the samples of the first table that has ids."""
    if isinstance(tables, Mapping):
        names = [str(name) for name in tables]
        tables = list(tables.values())
    else:
        names = [
            table.name if isinstance(table, RowSource) else f"view_{index}"
            for index, table in enumerate(tables)
        ]
    tables = [with_index(table) for table in tables]
    held = [
        views_of(one).views[0] if is_instance_of(one, "anndata", "AnnData") else one
        for one in tables
    ]
    data = MultiViewData(
        tuple(
            replaced_view(one, name=name) if isinstance(one, RowSource) else rows_of(one, name=name)
            for name, one in zip(names, held, strict=True)
        )
    )  # counts and names are compared before ids
    known = [sample_ids_of(table) for table in tables]
    ids = {
        view.name: ids_of_columns(view, known) if own is None and not is_new else own
        for view, own in zip(data.views, known, strict=True)
    }
    if any(own is not None for own in ids.values()):
        ids |= _default_ids(ids, tables)
    wanted, places = join_samples(ids, None)
    if wanted is None:
        return data
    views = [
        lifted(view, places[view.name], own, wanted) if own is not None else view
        for view, own in zip(data.views, ids.values(), strict=True)
    ]
    return MultiViewData(tuple(views), wanted)


def _default_ids(
    ids: Mapping[str, tuple[str, ...] | None], tables: Sequence[Any]
) -> dict[str, tuple[str, ...]]:
    """Default indexes of frames beside others with ids, which are refused where these are not the same in this order."""
    default = {
        name: own
        for name, table in zip(ids, tables, strict=True)
        if ids[name] is None and (own := sample_ids_of(table, default_index=True))
    }
    for (name, own), (other, others) in itertools.product(default.items(), ids.items()):
        if others and others != own:
            raise DataError(
                f"{other!r} has the ids {list(others[:3])}, ..., and {name!r} the default index 0, 1, ..., so its rows may be in "
                "another order. If both have the same sample in a row, give both frame.reset_index(drop=True); else give "
                f"{name!r} its ids as index (frame.set_index), or, if these are the default index, its rows as "
                "frame.loc[other.index]."
            )
    return default


def check_order(views: Iterable[tuple[str, RowSource]], *, have_ids: bool = False) -> None:
    """Refuse views that have the same rows of shared columns, such as two coordinates, in another order.

    Shared are columns of one name, and of the same whole numbers that differ, under any name; of views whose rows
    ids match, only columns of one name that ids have.
    """
    tables = [
        (where, np.asarray(view.array), _columns(view))
        for where, view in views
        if isinstance(view, ArrayRows) and not is_sparse(view.array)
    ]
    for (where, first, own), (other, second, theirs) in itertools.combinations(tables, 2):
        shared = [name for name in own if name in theirs]
        if have_ids:
            shared = [name for name in shared if isinstance(name, str) and is_of_ids(name)]
        if where == other or not shared or len(first) != len(second):
            continue
        columns = [(first[:, own[name]], second[:, theirs[name]]) for name in shared]
        if all(np.array_equal(a, b, equal_nan=True) for a, b in columns) or not all(
            np.array_equal(np.sort(a), np.sort(b), equal_nan=True) for a, b in columns
        ):
            continue
        rows, others = (
            np.unique(np.stack(side, axis=1), axis=0) for side in zip(*columns, strict=True)
        )
        # columns with few values may have equal counts of each by chance
        if 2 * len(rows) > len(first) and np.array_equal(rows, others, equal_nan=True):
            known = {own[name] for name in shared}
            named = [name for name, at in own.items() if at in known and isinstance(name, str)]
            raise DataError(
                f"{where} and {other} have {'the same' if have_ids else 'no'} sample ids, and the same rows of {named[:3]} in "
                "different orders. Give them the right sample ids (--id-column; frames: frame.set_index), drop columns of other ids or row "
                "numbers, or put them in one order."
            )


def _columns(view: ArrayRows) -> dict[str | bytes, int]:
    """Positions of columns by name, and of whole numbers that differ, and do not count the rows, by their sorted values."""
    found: dict[str | bytes, int] = {name: at for at, name in enumerate(view.feature_names or ())}
    for place, column in enumerate(
        np.asarray(view.array).T if view.array.dtype.kind in "iuf" else ()
    ):
        head = column[:_HEAD]
        if (np.floor(head) == head).all() and len(np.unique(head)) == len(head) >= _FEW:
            values = np.sort(column).astype(np.float64)
            if (np.diff(values) >= 1).all() and values[-1] - values[0] >= len(values):
                found[values.tobytes()] = place
    return found


def column_of_ids(view: RowSource, ids: Sequence[str]) -> str:
    """Name of a column of a view in memory that has these ids, which are whole numbers, in any order; empty if none has."""
    if not isinstance(view, ArrayRows) or is_sparse(view.array) or not all(map(str.isdecimal, ids)):
        return ""
    place = _columns(view).get(np.sort(np.array(ids, dtype=np.float64)).tobytes())
    return "" if place is None else (view.feature_names or {place: f"column {place}"})[place]


def ids_of_columns(
    view: RowSource, ids: Iterable[tuple[str, ...] | None]
) -> tuple[str, ...] | None:
    """Names of the columns of a view if another view, of those with `ids`, has these as sample ids; else None.

    A matrix of pairs has such names. The numbering 0, 1, ... of a frame is no name.
    """
    names = view.feature_names or ()
    is_named = len(names) == view.n_samples and not is_numbering(names)
    return names if is_named and {*names} in [{*(own or ())} for own in ids] else None


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
        views = [name for name in arrays if name in main_arrays(data)] or ["X"]
    views = [views] if isinstance(views, str) else views
    unknown = [name for name in views if name not in arrays]
    if unknown:
        raise DataError(
            f"No array is called {unknown}; allowed are {list(arrays)}. Name some: mscam_dask.views_of(data, ['NAME', ...])."
        )
    new_names = views if isinstance(views, Mapping) else {name: name for name in views}
    found = tuple(arrays[old](new) for old, new in new_names.items())
    codes, label_names = None, None
    if labels is not None:
        if labels not in data.obs:
            raise DataError(
                f"labels={labels!r} is not a column of obs, which has {list(map(str, data.obs.columns))}."
            )
        codes, label_names = encode_labels(data.obs[labels].to_numpy())
    return MultiViewData(found, sample_ids_of(data), codes, label_names)


def main_arrays(data: Any, *, main: str = "X") -> Collection[str]:
    """Names of the X of an AnnData, or of each modality of a MuData."""
    return data.mod if hasattr(data, "mod") else (main,)


def arrays_of(data: Any, *, main: str = "X") -> dict[str, Callable[[str], RowSource]]:
    """Functions that make a view from its name, by array of an AnnData or MuData; X of AnnData is `main`."""
    wanted = tuple(map(as_text, data.obs_names))
    if not hasattr(data, "mod"):
        return _of_modality(data, main, "" if main == "X" else f"{main}/")
    if data.axis not in (0, -1):
        raise DataError(
            f"The MuData has axis={data.axis}: its modalities share variables; allowed are modalities that "
            "share observations (axis=0). Give the modalities as they should be clustered."
        )
    arrays: dict[str, Callable[[str], RowSource]] = {}
    for modality, one in data.mod.items():
        own = tuple(map(as_text, one.obs_names))
        check_sample_ids(own, where=f"obs_names of modality {modality!r}")
        stray = set(own).difference(wanted)
        if stray:
            raise DataError(
                f"Modality {modality!r} has {len(stray)} sample(s) that are not in obs_names of the "
                f"MuData, the first {min(stray)!r}. Call its update() first."
            )
        places = places_of(own, wanted)
        for name, array in _of_modality(one, modality, f"{modality}/").items():
            arrays[name] = partial(_lifted, array, places, own, wanted)
    for key in data.obsm:
        if key not in data.mod:  # which masks of the samples of each modality are
            arrays[f"obsm/{key}"] = partial(_view, data, "obsm", key)
    return arrays


def _of_modality(data: Any, main: str, prefix: str) -> dict[str, Callable[[str], RowSource]]:
    has_main = data.has_x if hasattr(data, "has_x") else data.X is not None
    arrays: dict[str, Callable[[str], RowSource]] = {}
    if has_main:
        arrays[main] = partial(_view, data, "X", None)
    for kind in ("layers", "obsm"):
        for key in getattr(data, kind):
            arrays[f"{prefix}{kind}/{key}"] = partial(_view, data, kind, key)
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


def _lifted(make: Callable[[str], RowSource], places: Any, own: Any, wanted: Any, name: str) -> Any:
    return lifted(make(name), places, own, wanted)

"""Views of AnnData and MuData objects, which are recognized without importing their packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mscam_dask.data.views.align import lifted
from mscam_dask.data.views.conversion import (
    check_unique_ids,
    is_omics,
    rows_of,
    sample_ids_of,
)
from mscam_dask.data.views.labels import as_text, encode_labels
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows, DaskRows, RowSource
from mscam_dask.errors import DataError, DataTypeError

__all__ = ["OmicsArray", "arrays_of", "views_of"]


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

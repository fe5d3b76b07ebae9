"""A view as scaled rows in memory, whatever its view type."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.as_multi_view import RowSource, row_ranges
from mscam_dask.linalg.scaling import ColumnMoments, fit_transform_from_moments
from mscam_dask.solvers.row_blocks import ViewShape
from mscam_dask.solvers.view_svd import view_svd
from mscam_dask.types.parameters import Scale

__all__ = ["scaled_features"]


def scaled_features(source: RowSource, *, scale: Scale) -> NDArray[np.float64]:
    """Rows of one view in the space where its Euclidean distances are meant.

    Parameters
    ----------
    source : RowSource
    scale : {"standard", "unit", "minmax", "none"}
        For feature views; distance and kernel views have no columns to scale.

    Returns
    -------
    (n_samples, r)
        Feature views: the scaled columns, not centred further, r = d. Distance views: the
        coordinates Q S of the centred kernel exp(-D / mean D), whose squared Euclidean distances
        are 2 - 2 exp(-D / mean D) up to one factor: they grow with D, so that the order of
        neighbours is that of D. Kernel views: the coordinates of the centred kernel. Both are
        the features MSCAM itself uses, with a mean squared singular value of one.

    Raises
    ------
    ConfigurationError
        `scale` is none of the four.
    DataError
        A distance or kernel view whose rows are all equal.

    Notes
    -----
    Feature views are read twice by blocks of 64 MiB; the result is the only array of their size.
    """
    n_samples, n_columns = source.shape
    if source.view_type != "features":
        shape = ViewShape(n_samples, n_columns, source.view_type)
        basis = view_svd(source.read, shape, scale=scale, name=source.name).basis
        return np.asarray(basis.vectors * np.sqrt(basis.singular_values_squared))
    moments: ColumnMoments | None = None
    for start, stop in row_ranges(source):
        block = ColumnMoments.from_rows(source.read(start, stop))
        moments = block if moments is None else moments.merge(block)
    assert moments is not None, "a view without rows passed validation"
    transform = fit_transform_from_moments(scale, moments)
    rows = np.empty((n_samples, n_columns))
    for start, stop in row_ranges(source):
        rows[start:stop] = transform.apply(source.read(start, stop))
    return rows

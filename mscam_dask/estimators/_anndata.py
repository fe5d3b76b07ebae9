"""Results of a fit written into AnnData or MuData."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from mscam_dask.data.views.conversion import as_text, is_omics
from mscam_dask.data.views.sample_ids import check_sample_ids, places_of
from mscam_dask.errors import DataError, DataTypeError

if TYPE_CHECKING:
    from mscam_dask.estimators.mscam import MSCAM


def write_anndata(
    estimator: MSCAM, data: Any, *, key: str = "mscam", confidence: bool = True
) -> None:
    """Write labels, confidence, graph, embeddings and settings of a fit into an AnnData or MuData.

    Parameters
    ----------
    estimator : MSCAM
        Fitted.
    data : AnnData or MuData
        Holds samples of the fit: matched by obs_names if the views of the fit had sample ids, else
        row by row. What is there under the same names is replaced.
    key : str, default="mscam"
        First part of all names.
    confidence : bool, default=True
        Whether to write `confidence_`, which reads the views of the fit again.

    Raises
    ------
    DataTypeError
        `data` is neither.
    DataError
        `data` has other samples than the fit, or repeated ids.

    Notes
    -----
    =====================================  ============================================================
    ``obs[key]``                           clusters, categorical
    ``obs[f"{key}_confidence"]``           `confidence_`
    ``obsp[f"{key}_connectivities"]``      `consensus_graph_`, CSR
    ``obsm[f"{key}_{view}"]``              embedding of each view, with "_" for "/" in its name
    ``uns[key]``                           status, number of clusters and neighbors, score, excluded
                                           views, and contribution, scale and alpha of each view
    =====================================  ============================================================
    """
    check_is_fitted(estimator)
    if not is_omics(data):
        raise DataTypeError(
            f"Got a {type(data).__module__}.{type(data).__qualname__}; allowed are AnnData and MuData."
        )
    rows = _rows(estimator._training.sample_ids, len(estimator.labels_), data)
    import pandas as pd

    # text as objects: anndata writes no other kind of pandas 3
    clusters = pd.Index([str(cluster) for cluster in estimator.cluster_names_], dtype=object)
    codes = np.searchsorted(estimator.cluster_names_, estimator.labels_[rows])
    data.obs[key] = pd.Categorical.from_codes(codes, clusters)
    if confidence:
        data.obs[f"{key}_confidence"] = estimator.confidence_[rows]
    data.obsp[f"{key}_connectivities"] = estimator.consensus_graph_[rows][:, rows].tocsr()
    for view, embedding in estimator.view_embeddings_.items():
        data.obsm[f"{key}_{view.replace('/', '_')}"] = embedding[rows]
    views = list(estimator.view_names_)
    data.uns[key] = {
        "estimator": type(estimator).__name__,
        "status": estimator.status_.name,
        "n_clusters": estimator.n_clusters_,
        "n_neighbors": estimator.n_neighbors_,
        "cross_view_information": estimator.cross_view_information_,
        "excluded_views": np.array(estimator.excluded_views_, dtype=np.str_),
        "views": pd.DataFrame(
            {
                "contribution": [estimator.view_contributions_[view] for view in views],
                "scale": pd.Series(
                    [str(estimator.view_settings_[view].scale) for view in views], dtype=object
                ),
                "alpha": [float(estimator.view_settings_[view].alpha) for view in views],
            },
        ).set_index(pd.Index(views, dtype=object)),
    }


def _rows(ids: tuple[str, ...] | None, n_samples: int, data: Any) -> NDArray[np.int64]:
    """Row of the fit for each sample of `data`."""
    own = tuple(map(as_text, data.obs_names))
    if ids is None and len(own) == n_samples:
        return np.arange(n_samples)
    check_sample_ids(own, where="obs_names")
    rows = places_of(ids or (), own)
    others = [name for name, row in zip(own, rows, strict=True) if row < 0]
    if others:
        known = "no ids" if ids is None else f"ids such as {list(ids[:3])}"
        raise DataError(
            f"{len(others)} of {len(own)} obs_names are not samples of the fit, the first {others[:3]}; it had "
            f"{n_samples} samples with {known}. Give the samples of the fit, such as data[list of ids]; to write to some of "
            "them, fit frames or AnnData."
        )
    return rows

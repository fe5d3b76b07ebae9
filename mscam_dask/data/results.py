"""The store of a run's result: labels, consensus graph, view embeddings, history and the model.

Layout, version 3, one Zarr v3 group::

    result.zarr/                    attributes: format, format_version, status, n_samples,
        |                           n_connected_components, n_neighbors, score, view_names,
        |                           view_contributions, the names in the last three groups, and
        |                           nodes and checksum (see `mscam_dask.data.store.schema`)
        labels                      (sample,) int64, the cluster of each sample
        consensus_graph/data        a compressed-sparse-row group as anndata reads and writes it
        consensus_graph/indices     (attributes encoding-type, encoding-version, shape)
        consensus_graph/indptr
        learned_graph/...           the same, where it is not the consensus graph
        assessment/...              the arrays of `mscam_dask.types.result.Assessment`; its texts are
                                    in the root attribute "assessment"
        view_embeddings/0           (sample, component) float64; attribute: name
        view_coordinates/0          (sample, axis) float32, where views have them; attribute: name
        history/graph_weight        (outer_iteration,) or (outer_iteration, view); attribute:
        history/...                 long_name
        model/records               (byte,) uint8, JSON as UTF-8: settings and records of the fit
        model/...                   memberships, encoders and ridge coordinates; see
                                    `mscam_dask.estimators._stored`

The rules are those of `mscam_dask.data.store.schema`: crc32c on every chunk, every chunk written,
numbers only, names in attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.result_arrays import StoredArrays, put_arrays
from mscam_dask.data.store.arrays import (
    get_array,
    get_json,
    new_group,
    open_array,
    put_array,
    put_json,
)
from mscam_dask.data.store.atomic_replace import new_partial
from mscam_dask.data.store.filesystem import (
    full_disk_is_temporary,
    remove_quietly,
    rename_durably,
    sync_tree,
)
from mscam_dask.data.store.schema import checked_attributes, usable_attributes, write_checksums
from mscam_dask.errors import DataError
from mscam_dask.types.events import IterationFinished, NClustersSelected
from mscam_dask.types.result import Assessment, ResultArrays, Solution, WithResultArrays
from mscam_dask.types.rules import SIZES

if TYPE_CHECKING:
    import xarray

FORMAT = "mscam_dask.result"
FORMAT_VERSION = 4

_ASSESSED = {
    "cluster_stability": ("cluster",),
    "co_clustering": ("cluster", "other_cluster"),
    "cluster_agreement": ("view", "cluster"),
    "view_agreement": ("view", "other_view"),
    "cluster_tree": ("merge", "column"),
}
_RECORDS = "model/records"


@dataclass(frozen=True, eq=False)
class StoredResult(WithResultArrays):
    """Contents of a result store.

    Attributes
    ----------
    labels : (n,) int64
    arrays : ResultArrays
        Graphs, embeddings and coordinates, which are attributes of the result too.
    n_connected_components : int
    status : str
        Name of a `mscam_dask.types.result.Status`.
    score : float
        Label-free score of the labels.
    n_neighbors : int
    view_contributions : dict of str to float
    history : xarray.Dataset
        Over (outer_iteration, view).
    assessment : Assessment or None
        None where nothing was assessed.
    """

    labels: NDArray[np.int64]
    arrays: ResultArrays
    n_connected_components: int
    status: str
    score: float
    n_neighbors: int
    view_contributions: dict[str, float]
    history: xarray.Dataset
    assessment: Assessment | None = None


@dataclass(frozen=True, eq=False)
class StoredModel:
    """Parts of a fit from which it predicts, as numbers and text.

    Attributes
    ----------
    records
        Values that JSON can hold; NaN and infinity are allowed.
    arrays
        Arrays by key, such as "membership".
    """

    records: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)


def write_result(
    solution: Solution, output: str | Path, *, model: StoredModel | None = None
) -> Path:
    """Write a fit's result as one store.

    Parameters
    ----------
    solution
        Of `mscam_dask.engine.fit.run_fit`, or an estimator's ``solution_``.
    model
        Of `mscam_dask.estimators._stored.stored_model`; None for a result that predicts nothing.
    output
        Directory to make; nothing may be there. It appears complete or not at all: a sibling
        directory is written, read back, synced to disk and renamed.

    Returns
    -------
    Path
        Absolute path of the store.

    Raises
    ------
    DataError
        When `output` exists.
    TemporaryFailure
        When the disk is full; nothing is left behind.
    """
    root = Path(output).absolute()
    if root.exists():
        raise DataError(f"{root} exists; a result is never overwritten. Choose another output.")
    root.parent.mkdir(parents=True, exist_ok=True)
    begun = _begun_by_workers(solution, root)
    partial = new_partial(root) if begun is None else begun.root
    try:
        with full_disk_is_temporary(root):
            _write(solution, partial, model, has_arrays=begun is not None)
            read_result(partial)
            read_model(partial)
            sync_tree(partial)
            rename_durably(partial, root)
    finally:
        remove_quietly(partial)
    if begun is not None:
        begun.root, begun.is_partial = root, False
    return root


def _begun_by_workers(solution: Solution, root: Path) -> StoredArrays | None:
    """Return the arrays that workers have written beside a result that is not complete yet."""
    arrays = solution.arrays
    if isinstance(arrays, StoredArrays) and arrays.is_partial and arrays.root.parent == root.parent:
        return arrays
    return None


def _write(
    solution: Solution, directory: Path, model: StoredModel | None, *, has_arrays: bool
) -> None:
    import zarr

    names = tuple(solution.view_contributions)
    history = history_dataset(solution.history, names).drop_vars("view").variables
    group = zarr.open_group(directory, mode="r+") if has_arrays else new_group(directory)
    group.attrs.put(
        {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "status": solution.status.name,
            "n_samples": len(solution.labels),
            "n_connected_components": int(solution.n_connected_components),
            "n_neighbors": int(solution.n_neighbors),
            "score": float(solution.score),
            "view_names": list(names),
            "view_contributions": [float(share) for share in solution.view_contributions.values()],
            "view_embeddings": list(solution.arrays.embedded_views),
            "view_coordinates": list(solution.arrays.projected_views),
            "history": [str(name) for name in history],
            "has_learned_graph": not solution.status.is_learned,
            "assessment": _assessment_texts(solution.assessment),
            "model": None if model is None else list(model.arrays),
        }
    )
    put_array(group, "labels", solution.labels.astype("<i8"), ("sample",))
    if not has_arrays:
        put_arrays(group, solution.arrays, has_learned_graph=not solution.status.is_learned)
    for name, dims in _ASSESSED.items() if solution.assessment is not None else ():
        values = getattr(solution.assessment, name).astype("<f8")
        put_array(group, f"assessment/{name}", values, dims)
    for variable_name, variable in history.items():
        numbers = variable.values.astype("<i8" if variable.dtype.kind in "iub" else "<f8")
        dims = tuple(str(dim) for dim in variable.dims)
        array = put_array(group, f"history/{variable_name}", numbers, dims)
        array.attrs.update({key: str(prose) for key, prose in variable.attrs.items()})
    if model is not None:
        put_json(group, _RECORDS, model.records)
        for key, values in model.arrays.items():
            put_array(group, f"model/{key}", values)
    write_checksums(group, directory)


def _assessment_texts(assessment: Assessment | None) -> dict[str, Any] | None:
    """Everything of an assessment but its arrays, with its structure and message for other readers."""
    if assessment is None:
        return None
    return {
        "structure": assessment.structure.name,
        "message": assessment.message,
        "cluster_names": list(assessment.cluster_names),
        "view_names": list(assessment.view_names),
        "neighbor_overlap": assessment.neighbor_overlap,
        "split_half_ari": assessment.split_half_ari,
    }


def read_result(path: str | Path) -> StoredResult:
    """Read a store written by `write_result`.

    Every file of it is read and verified. The arrays with a row for each sample stay in memory up to
    `SIZES.exact_samples` samples; above, they are read again when they are used.

    Raises
    ------
    DataError
        When there is no result at the path, or it was written by a newer version.
    StoreCorruptError
        When a file is missing or damaged; the message names it.
    """
    root = Path(path).absolute()
    attributes = _attributes(root)
    with usable_attributes(root):
        names = attributes["view_names"]
        texts = attributes["assessment"]
        stored = StoredArrays(
            root,
            attributes["n_samples"],
            has_learned_graph=attributes["has_learned_graph"],
            embedded_views=tuple(attributes["view_embeddings"]),
            projected_views=tuple(attributes["view_coordinates"]),
        )
        is_large = stored.n_samples > SIZES.exact_samples
        if is_large:
            stored.verify()
        return StoredResult(
            labels=get_array(root, "labels"),
            arrays=stored if is_large else stored.loaded(),
            n_connected_components=attributes["n_connected_components"],
            status=attributes["status"],
            score=attributes["score"],
            n_neighbors=attributes["n_neighbors"],
            view_contributions=dict(zip(names, attributes["view_contributions"], strict=True)),
            history=_history(root, names, attributes["history"]),
            assessment=None if texts is None else _assessment(root, texts),
        )


def _assessment(root: Path, texts: dict[str, Any]) -> Assessment:
    return Assessment(
        **{name: get_array(root, f"assessment/{name}") for name in _ASSESSED},
        view_names=tuple(texts["view_names"]),
        neighbor_overlap=texts["neighbor_overlap"],
        split_half_ari=texts["split_half_ari"],
        cluster_names=tuple(texts["cluster_names"]),
    )


def read_model(path: str | Path) -> StoredModel | None:
    """Read the parts of a result from which it predicts; None where it was written without.

    Raises
    ------
    DataError, StoreCorruptError
        As `read_result`.
    """
    root = Path(path).absolute()
    keys = _attributes(root)["model"]
    if keys is None:
        return None
    arrays = {key: get_array(root, f"model/{key}") for key in keys}
    return StoredModel(get_json(root, _RECORDS), arrays)


def _attributes(root: Path) -> Mapping[str, Any]:
    """Return the attributes of a result, after comparing metadata with their checksums."""
    return checked_attributes(
        root,
        FORMAT,
        FORMAT_VERSION,
        other="Give the result.zarr of a run directory.",
        again="run the pipeline again",
    )


def _history(root: Path, view_names: list[str], recorded: list[str]) -> xarray.Dataset:
    import xarray

    variables = {}
    for name in recorded:
        array = open_array(root, f"history/{name}")
        values = get_array(root, f"history/{name}")
        variables[name] = (array.metadata.dimension_names, values, dict(array.attrs))
    return xarray.Dataset(variables, coords={"view": view_names})


_PER_ITERATION = {
    "graph_weight": "weight λ of the accepted graph step",
    "n_connected_components": "connected components of the consensus graph after the iteration",
    "score": "cross-view information (nats) of the cut of the graph the iteration started from",
    "eigengap": "difference of the Laplacian's eigenvalues c+1 and c at the start",
    "spectrum_converged": "1 where that Laplacian's eigenvectors reached their tolerance, else 0",
    "seconds": "wall time of the iteration (s)",
}

_PER_VIEW = {
    "primal_residual": "norm of W - F over √c when the inner solver stopped",
    "dual_residual": "norm of the change of F over √c when the inner solver stopped",
    "inner_iterations": "iterations of the inner solver",
    "objective": "the view's terms of the objective",
}


_PER_COUNT = {
    "eigengap": "difference of the Laplacian's eigenvalues c+1 and c over the former",
    "modularity": "modularity of the cut into c clusters on the reference graphs, mean over views",
    "adjusted_modularity": "the modularity times the share of the entropy of that cut that the neighbors in all views explain",
    "information": "cross-view information (nats) of that cut",
    "stability": "adjusted Rand index of the cuts of two halves of the graph",
}


def count_dataset(selection: NClustersSelected) -> xarray.Dataset:
    """Curves from which the number of clusters was chosen, over n_clusters.

    Returns
    -------
    xarray.Dataset
        Each variable's ``long_name`` says what it is; the attribute ``chosen`` is the number.
    """
    import xarray

    curves = {
        name: ("n_clusters", _numbers(list(getattr(selection, name))), {"long_name": prose})
        for name, prose in _PER_COUNT.items()
    }
    return xarray.Dataset(
        curves,
        coords={"n_clusters": list(selection.counts)},
        attrs={"chosen": selection.n_clusters},
    )


def history_dataset(
    history: Sequence[IterationFinished], view_names: Sequence[str]
) -> xarray.Dataset:
    """Outer iterations as a Dataset over (outer_iteration, view).

    Parameters
    ----------
    history : sequence of IterationFinished
        Empty when no iteration was needed.
    view_names : sequence of str

    Returns
    -------
    xarray.Dataset
        Not a number for views that were left out. Each variable's ``long_name`` says what it is.
    """
    import xarray

    per_iteration = {
        name: (
            "outer_iteration",
            _numbers([getattr(r, name) for r in history]),
            {"long_name": prose},
        )
        for name, prose in _PER_ITERATION.items()
    }
    shape = (len(history), len(view_names))
    place = {name: position for position, name in enumerate(view_names)}
    where = [[place[view.view] for view in record.views] for record in history]
    per_view = {
        name: (
            ("outer_iteration", "view"),
            _by_view([[getattr(v, name) for v in r.views] for r in history], where, shape),
            {"long_name": prose},
        )
        for name, prose in _PER_VIEW.items()
    }
    per_view["view_score"] = (
        ("outer_iteration", "view"),
        _by_view([r.view_scores for r in history], where, shape),
        {"long_name": "information (nats) on that cut from the view's own reference graphs"},
    )
    return xarray.Dataset(
        {**per_iteration, **per_view},
        coords={
            "outer_iteration": np.array([r.iteration for r in history], dtype=np.int64),
            "view": list(view_names),
        },
    )


def _numbers(values: Sequence[float | bool]) -> NDArray[np.float64] | NDArray[np.int64]:
    """Numbers as they are, truth values as 0 and 1."""
    numbers = np.array(values)
    return numbers.astype(np.int64) if numbers.dtype == np.bool_ else numbers


def _by_view(
    values: Sequence[Sequence[float]], where: Sequence[Sequence[int]], shape: tuple[int, int]
) -> NDArray[np.float64]:
    """(iteration, view) numbers; NaN for a view left out, and where a solver keeps none by view."""
    table = np.full(shape, np.nan)
    for row, numbers, columns in zip(table, values, where, strict=True):
        if numbers:
            row[list(columns)] = numbers
    return table

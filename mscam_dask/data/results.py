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

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.result_arrays import (
    StoredArrays,
    get_array,
    new_arrays,
    open_arrays,
    put_array,
    put_arrays,
)
from mscam_dask.data.store.atomic_replace import new_partial
from mscam_dask.data.store.filesystem import (
    LOCAL,
    full_disk_is_temporary,
    rename_durably,
    sync_tree,
    unlink_quietly,
)
from mscam_dask.data.store.schema import (
    METADATA_ERRORS,
    corrupt_store,
    require_checksums,
    root_attributes,
    write_checksums,
)
from mscam_dask.errors import DataError
from mscam_dask.types.events import IterationFinished, NClustersSelected
from mscam_dask.types.result import Assessment, ResultArrays, Solution, WithResultArrays
from mscam_dask.types.rules import SIZES

if TYPE_CHECKING:
    import xarray

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "StoredModel",
    "StoredResult",
    "count_dataset",
    "history_dataset",
    "read_model",
    "read_result",
    "write_result",
]

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
            sync_tree(LOCAL, partial)
            rename_durably(LOCAL, partial, root)
    finally:
        unlink_quietly(LOCAL, partial)
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
    names = tuple(solution.view_contributions)
    history = history_dataset(solution.history, names).drop_vars("view").variables
    group = open_arrays(directory) if has_arrays else new_arrays(directory)
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
        text = np.frombuffer(json.dumps(model.records).encode(), dtype=np.uint8)
        put_array(group, _RECORDS, text, ("byte",))
        for key, values in model.arrays.items():
            put_array(group, f"model/{key}", values, tuple(f"dim_{i}" for i in range(values.ndim)))
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
    try:
        n_samples = int(attributes["n_samples"])
        names = tuple(str(name) for name in attributes["view_names"])
        shares = tuple(float(share) for share in attributes["view_contributions"])
        n_components = int(attributes["n_connected_components"])
        contributions = dict(zip(names, shares, strict=True))
        status, score = str(attributes["status"]), float(attributes["score"])
        n_neighbors = int(attributes["n_neighbors"])
        embedded = [str(name) for name in attributes["view_embeddings"]]
        projected = [str(name) for name in attributes["view_coordinates"]]
        recorded = [str(name) for name in attributes["history"]]
        has_learned_graph = bool(attributes["has_learned_graph"])
        texts = attributes["assessment"]
    except METADATA_ERRORS as error:
        raise corrupt_store(
            root / "zarr.json", f"attribute missing or unusable: {error!r}"
        ) from error
    labels = get_array(root, "labels")[0]
    if len(labels) != n_samples:
        raise corrupt_store(root / "labels", f"not one entry for each of {n_samples} samples")
    stored = StoredArrays(
        root,
        n_samples,
        has_learned_graph=has_learned_graph,
        embedded_views=embedded,
        projected_views=projected,
    )
    if n_samples > SIZES.exact_samples:
        stored.verify()
    return StoredResult(
        labels=labels,
        arrays=stored if n_samples > SIZES.exact_samples else stored.loaded(),
        n_connected_components=n_components,
        status=status,
        score=score,
        n_neighbors=n_neighbors,
        view_contributions=contributions,
        history=_history(root, names, recorded),
        assessment=None if texts is None else _assessment(root, texts),
    )


def _assessment(root: Path, texts: dict[str, Any]) -> Assessment:
    arrays = {name: get_array(root, f"assessment/{name}")[0] for name in _ASSESSED}
    try:
        half = texts["split_half_ari"]
        return Assessment(
            **arrays,
            view_names=tuple(str(name) for name in texts["view_names"]),
            neighbor_overlap={
                str(name): float(overlap) for name, overlap in texts["neighbor_overlap"].items()
            },
            split_half_ari=None if half is None else float(half),
            cluster_names=tuple(int(name) for name in texts["cluster_names"]),
        )
    except METADATA_ERRORS as error:
        raise corrupt_store(root / "zarr.json", f"assessment unusable: {error!r}") from error


def read_model(path: str | Path) -> StoredModel | None:
    """Read the parts of a result from which it predicts; None where it was written without.

    Raises
    ------
    DataError, StoreCorruptError
        As `read_result`.
    """
    root = Path(path).absolute()
    attributes = _attributes(root)
    try:
        keys = attributes["model"]
        if keys is None:
            return None
        records = json.loads(get_array(root, _RECORDS)[0].tobytes())
        arrays = {str(key): get_array(root, f"model/{key}")[0] for key in keys}
    except METADATA_ERRORS as error:
        if isinstance(error, DataError):
            raise
        raise corrupt_store(root / "model", f"its records are unusable: {error!r}") from error
    return StoredModel(records, arrays)


def _attributes(root: Path) -> Mapping[str, Any]:
    """Return the attributes of a result, after comparing metadata with their checksums."""
    attributes = root_attributes(root)
    if attributes.get("format") != FORMAT:
        raise DataError(
            f"{root} is a Zarr group, but no result of this package (format="
            f"{attributes.get('format')!r}). Give the result.zarr of a run directory."
        )
    if attributes.get("format_version") != FORMAT_VERSION:
        raise DataError(
            f"{root} has format version {attributes.get('format_version')!r}; this version reads "
            f"{FORMAT_VERSION}. Upgrade mscam_dask, or run the pipeline again."
        )
    require_checksums(root, attributes)
    return attributes


def _history(root: Path, view_names: tuple[str, ...], recorded: list[str]) -> xarray.Dataset:
    import xarray

    variables = {}
    for name in recorded:
        if not name.isidentifier():
            raise corrupt_store(root / "zarr.json", f"{name!r} is not a history variable")
        values, array = get_array(root, f"history/{name}")
        variables[name] = (array.metadata.dimension_names, values, dict(array.attrs))
    return xarray.Dataset(variables, coords={"view": list(view_names)})


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
        name: ("n_clusters", _numbers(list(getattr(selection, name))), _long_name(prose))
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
        name: ("outer_iteration", _numbers([getattr(r, name) for r in history]), _long_name(prose))
        for name, prose in _PER_ITERATION.items()
    }
    shape = (len(history), len(view_names))
    place = {name: position for position, name in enumerate(view_names)}
    where = [[place[view.view] for view in record.views] for record in history]
    per_view = {
        name: (
            ("outer_iteration", "view"),
            _by_view([[getattr(v, name) for v in r.views] for r in history], where, shape),
            _long_name(prose),
        )
        for name, prose in _PER_VIEW.items()
    }
    per_view["view_score"] = (
        ("outer_iteration", "view"),
        _by_view([r.view_scores for r in history], where, shape),
        _long_name("information (nats) on that cut from the view's own reference graphs"),
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


def _long_name(prose: str) -> dict[str, str]:
    return {"long_name": prose}

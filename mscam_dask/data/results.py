"""The store of a run's result: labels, consensus graph, view embeddings, history and the model.

Layout, version 3, one Zarr v3 group::

    result.zarr/                    attributes: format, format_version, status, n_samples,
        |                           n_connected_components, n_neighbors, score, view_names,
        |                           view_contributions, the names in the last three groups, and
        |                           nodes and checksum (see `mscam_dask.data.store.checksums`)
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

from mscam_dask.data.sparse import sparse_from_parts
from mscam_dask.data.store.atomic_replace import new_partial
from mscam_dask.data.store.checksums import (
    METADATA_ERRORS,
    corrupt_store,
    require_checksums,
    root_attributes,
    write_checksums,
)
from mscam_dask.data.store.filesystem import (
    LOCAL,
    full_disk_is_temporary,
    rename_durably,
    sync_tree,
    unlink_quietly,
)
from mscam_dask.data.store.read import check_codecs, open_array, read_chunk
from mscam_dask.data.store.write import create_array
from mscam_dask.errors import DataError
from mscam_dask.types.events import IterationFinished, NClustersSelected
from mscam_dask.types.result import Assessment, Solution

if TYPE_CHECKING:
    import xarray
    from scipy.sparse import csr_array

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

_CHUNK_ENTRIES = 2**20
_ASSESSED = {
    "cluster_stability": ("cluster",),
    "co_clustering": ("cluster", "other_cluster"),
    "cluster_agreement": ("view", "cluster"),
    "view_agreement": ("view", "other_view"),
    "cluster_tree": ("merge", "column"),
}
_RECORDS = "model/records"
_CSR = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0"}


@dataclass(frozen=True, eq=False)
class StoredResult:
    """Contents of a result store.

    Attributes
    ----------
    labels : (n,) int64
    consensus_graph : (n, n) CSR
        Rows on the simplex.
    learned_graph : (n, n) CSR
        Graph before it was rebuilt from the partition.
    n_connected_components : int
    status : str
        Name of a `mscam_dask.types.result.Status`.
    score : float
        Label-free score of the labels.
    n_neighbors : int
    view_embeddings : dict of str to (n, r)
    view_coordinates : dict of str to (n, m)
        Principal coordinates of the ridge embeddings, float32.
    view_contributions : dict of str to float
    history : xarray.Dataset
        Over (outer_iteration, view).
    assessment : Assessment or None
        None where nothing was assessed.
    """

    labels: NDArray[np.int64]
    consensus_graph: csr_array[np.float64]
    learned_graph: csr_array[np.float64]
    n_connected_components: int
    status: str
    score: float
    n_neighbors: int
    view_embeddings: dict[str, NDArray[np.float64]]
    view_coordinates: dict[str, NDArray[np.float32]]
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
        raise DataError(f"{root} exists; a result is never written over. Choose another output.")
    root.parent.mkdir(parents=True, exist_ok=True)
    partial = new_partial(root)
    try:
        with full_disk_is_temporary(root):
            _write(solution, partial, model)
            read_result(partial)
            read_model(partial)
            sync_tree(LOCAL, partial)
            rename_durably(LOCAL, partial, root)
    finally:
        unlink_quietly(LOCAL, partial)
    return root


def _write(solution: Solution, directory: Path, model: StoredModel | None) -> None:
    import zarr

    names = tuple(solution.view_contributions)
    history = history_dataset(solution.history, names).drop_vars("view").variables
    group = zarr.open_group(
        directory,
        mode="w-",
        zarr_format=3,
        attributes={
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "status": solution.status.name,
            "n_samples": len(solution.labels),
            "n_connected_components": int(solution.n_connected_components),
            "n_neighbors": int(solution.n_neighbors),
            "score": float(solution.score),
            "view_names": list(names),
            "view_contributions": [float(share) for share in solution.view_contributions.values()],
            "view_embeddings": list(solution.view_embeddings),
            "view_coordinates": list(solution.view_coordinates),
            "history": [str(name) for name in history],
            "has_learned_graph": not solution.status.is_learned,
            "assessment": _assessment_texts(solution.assessment),
            "model": None if model is None else list(model.arrays),
        },
    )
    _put(group, "labels", solution.labels.astype("<i8"), ("sample",))
    _put_graph(group, "consensus_graph", solution.consensus_graph)
    if not solution.status.is_learned:
        _put_graph(group, "learned_graph", solution.learned_graph)
    for name, dims in _ASSESSED.items() if solution.assessment is not None else ():
        values = getattr(solution.assessment, name).astype("<f8")
        _put(group, f"assessment/{name}", values, dims)
    for index, (name, values) in enumerate(solution.view_embeddings.items()):
        key = f"view_embeddings/{index}"
        array = _put(group, key, values.astype("<f8"), ("sample", "component"))
        array.attrs["name"] = name
    for index, (name, coordinates) in enumerate(solution.view_coordinates.items()):
        key = f"view_coordinates/{index}"
        array = _put(group, key, coordinates.astype("<f4"), ("sample", "axis"))
        array.attrs["name"] = name
    for variable_name, variable in history.items():
        numbers = variable.values.astype("<i8" if variable.dtype.kind in "iub" else "<f8")
        dims = tuple(str(dim) for dim in variable.dims)
        array = _put(group, f"history/{variable_name}", numbers, dims)
        array.attrs.update({key: str(prose) for key, prose in variable.attrs.items()})
    if model is not None:
        text = np.frombuffer(json.dumps(model.records).encode(), dtype=np.uint8)
        _put(group, _RECORDS, text, ("byte",))
        for key, values in model.arrays.items():
            _put(group, f"model/{key}", values, tuple(f"dim_{i}" for i in range(values.ndim)))
    write_checksums(group, directory)


def _put_graph(group: Any, key: str, graph: csr_array[np.float64]) -> None:
    sparse = group.create_group(key)
    sparse.attrs.update(_CSR, shape=[int(size) for size in graph.shape])
    _put(sparse, "data", graph.data.astype("<f8"), ("entry",))
    _put(sparse, "indices", graph.indices.astype("<i8"), ("entry",))
    _put(sparse, "indptr", graph.indptr.astype("<i8"), ("edge",))


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


def _put(group: Any, key: str, values: NDArray[Any], dims: tuple[str, ...]) -> Any:
    """Write one array, chunked by rows."""
    width = max(1, int(np.prod(values.shape[1:])))
    rows = max(1, min(len(values), _CHUNK_ENTRIES // width))
    chunks = (rows, *(max(1, size) for size in values.shape[1:]))
    array = create_array(group, key, values.shape, chunks, values.dtype, dims)
    array[:] = values
    return array


def read_result(path: str | Path) -> StoredResult:
    """Read a store written by `write_result`.

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
        is_rebuilt = bool(attributes["has_learned_graph"])
        texts = attributes["assessment"]
    except METADATA_ERRORS as error:
        raise corrupt_store(
            root / "zarr.json", f"attribute missing or unusable: {error!r}"
        ) from error
    labels = _get(root, "labels")[0]
    if len(labels) != n_samples:
        raise corrupt_store(root / "labels", f"not one entry for each of {n_samples} samples")
    graph = _graph(root, "consensus_graph", n_samples)
    return StoredResult(
        labels=labels,
        consensus_graph=graph,
        learned_graph=_graph(root, "learned_graph", n_samples) if is_rebuilt else graph,
        n_connected_components=n_components,
        status=status,
        score=score,
        n_neighbors=n_neighbors,
        view_embeddings={
            name: _get(root, f"view_embeddings/{index}")[0] for index, name in enumerate(embedded)
        },
        view_coordinates={
            name: _get(root, f"view_coordinates/{index}")[0] for index, name in enumerate(projected)
        },
        view_contributions=contributions,
        history=_history(root, names, recorded),
        assessment=None if texts is None else _assessment(root, texts),
    )


def _graph(root: Path, key: str, n_samples: int) -> csr_array[np.float64]:
    parts = {part: _get(root, f"{key}/{part}")[0] for part in ("data", "indices", "indptr")}
    if len(parts["indptr"]) != n_samples + 1:
        raise corrupt_store(root / key, f"not one row for each of {n_samples} samples")
    try:
        graph: csr_array[np.float64] = sparse_from_parts(
            "csr", parts, (n_samples, n_samples), "the graph"
        )
    except DataError as error:
        raise corrupt_store(root / key, str(error).partition(". ")[0]) from error
    return graph


def _assessment(root: Path, texts: dict[str, Any]) -> Assessment:
    arrays = {name: _get(root, f"assessment/{name}")[0] for name in _ASSESSED}
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
        records = json.loads(_get(root, _RECORDS)[0].tobytes())
        arrays = {str(key): _get(root, f"model/{key}")[0] for key in keys}
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
            raise corrupt_store(root / "zarr.json", f"{name!r} is no name of a history variable")
        values, array = _get(root, f"history/{name}")
        variables[name] = (array.metadata.dimension_names, values, dict(array.attrs))
    return xarray.Dataset(variables, coords={"view": list(view_names)})


def _get(root: Path, key: str) -> tuple[NDArray[Any], Any]:
    """Read one array, chunk by chunk; the values and the array."""
    array = open_array(root, key)
    check_codecs(array, root / key / "zarr.json")
    values = np.empty(array.shape, dtype=array.dtype)
    for start in range(0, array.shape[0], array.chunks[0]):
        rows = slice(start, min(start + array.chunks[0], array.shape[0]))
        values[rows] = read_chunk(array, root / key, rows)
    return values, array


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

    Parameters
    ----------
    selection : NClustersSelected

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

"""The store of a run's result: labels, consensus graph, view embeddings, history and the model.

Layout, version 7, one Zarr v3 group::

    result.zarr/                    attributes: format, format_version, status, nodes and checksum
        |                           (see `mscam_dask.data.store.arrays`)
        labels                      (sample,) int64, the cluster of each sample
        consensus_graph/data        a compressed-sparse-row group as anndata reads and writes it
        consensus_graph/indices     (attributes encoding-type, encoding-version, shape)
        consensus_graph/indptr
        learned_graph/...           the same, where it is not the consensus graph
        view_embeddings/0           (sample, component) float64; attribute: name
        view_coordinates/0          (sample, axis) float32, where views have them; attribute: name
        fit/records                 (byte,) uint8, JSON as UTF-8: `mscam_dask.types.result.FitRecords`
        fit/0, ...                  its arrays; the JSON has their keys in their places
        model/records, model/0, ... the same of `mscam_dask.estimators._stored.FittedModel`

The rules are those of `mscam_dask.data.store.arrays`: crc32c on every chunk, every chunk written,
numbers only, names in attributes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.sparse import sparse_from_parts
from mscam_dask.data.store.arrays import (
    ArrayPieces,
    Format,
    corrupt_store,
    get_array,
    get_json,
    new_group,
    open_array,
    put_array,
    put_json,
    usable_attributes,
    verify_arrays,
    write_checksums,
)
from mscam_dask.data.store.atomic_replace import new_partial
from mscam_dask.data.store.filesystem import (
    full_disk_is_temporary,
    remove_quietly,
    rename_durably,
    sync_tree,
)
from mscam_dask.errors import DataError
from mscam_dask.types.events import IterationFinished, NClustersSelected
from mscam_dask.types.result import ArraysInMemory, FitRecords, Solution, Status
from mscam_dask.types.rules import SIZES

if TYPE_CHECKING:
    import xarray
    from scipy.sparse import csr_array

_FORMAT = Format(
    "mscam_dask.result",
    7,
    other="Give the result.zarr of a run directory.",
    again="run the pipeline again",
)

Values = NDArray[Any] | ArrayPieces

_Records = TypeVar("_Records")

_CSR = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0"}
_GRAPH_PARTS = ("data", "indices", "indptr")
_EMBEDDINGS: dict[str, np.dtype[Any]] = {
    "view_embeddings": np.dtype("<f8"),
    "view_coordinates": np.dtype("<f4"),
}


@dataclass(eq=False)
class StoredArrays:
    """`ArraysInMemory` in a store, or in a directory in which it is still being written, each read when first used."""

    root: Path
    is_partial: bool = False

    @cached_property
    def consensus_graph(self) -> csr_array[np.float64]:
        return self._graph("consensus_graph")

    @cached_property
    def learned_graph(self) -> csr_array[np.float64]:
        has_its_own = (self.root / "learned_graph").is_dir()
        return self._graph("learned_graph") if has_its_own else self.consensus_graph

    @cached_property
    def view_embeddings(self) -> dict[str, NDArray[np.float64]]:
        return self._of_views("view_embeddings")

    @cached_property
    def view_coordinates(self) -> dict[str, NDArray[np.float32]]:
        return self._of_views("view_coordinates")

    def loaded(self) -> ArraysInMemory:
        """Read all arrays."""
        return ArraysInMemory(
            self.consensus_graph, self.learned_graph, self.view_embeddings, self.view_coordinates
        )

    def _graph(self, key: str) -> csr_array[np.float64]:
        parts = {part: get_array(self.root, f"{key}/{part}") for part in _GRAPH_PARTS}
        n_samples = len(parts["indptr"]) - 1
        try:
            graph: csr_array[np.float64] = sparse_from_parts(
                "csr", parts, (n_samples, n_samples), "the graph"
            )
        except DataError as error:
            raise corrupt_store(self.root / key, str(error).partition(". ")[0]) from error
        return graph

    def _of_views(self, kind: str) -> dict[str, NDArray[Any]]:
        n_views = len(list(self.root.glob(f"{kind}/[0-9]*")))
        keys = [f"{kind}/{index}" for index in range(n_views)]
        with usable_attributes(self.root):
            names = [open_array(self.root, key).attrs["name"] for key in keys]
        return {name: get_array(self.root, key) for name, key in zip(names, keys, strict=True)}


def put_graph(group: Any, key: str, data: Values, indices: Values, indptr: Values) -> None:
    """Write a graph (n, n): a CSR group as anndata writes it."""
    sparse, n_samples = group.create_group(key), indptr.shape[0] - 1
    sparse.attrs.update(_CSR, shape=[n_samples, n_samples])
    parts = (data, "<f8"), (indices, "<i8"), (indptr, "<i8")
    for name, (values, dtype) in zip(_GRAPH_PARTS, parts, strict=True):
        put_array(sparse, name, values, dtype=np.dtype(dtype))


def put_embedding(group: Any, kind: str, index: int, name: str, values: Values) -> None:
    """Write "view_embeddings" or "view_coordinates" of a view."""
    array = put_array(group, f"{kind}/{index}", values, dtype=_EMBEDDINGS[kind])
    array.attrs["name"] = name


def put_records(group: Any, key: str, value: Any) -> None:
    """Write a dataclass as JSON in key/records; its arrays are key/0, key/1, ..., and the JSON has their keys."""
    numbers = itertools.count()

    def put(item: Any) -> Any:
        if isinstance(item, np.generic):
            return item.item()
        place = f"{key}/{next(numbers)}"
        put_array(group, place, item)
        return place

    put_json(group, f"{key}/records", msgspec.to_builtins(value, enc_hook=put))


def get_records(root: Path, key: str, kind: type[_Records]) -> _Records:
    """Read what `put_records` wrote."""
    records = get_json(root, f"{key}/records")
    try:
        return msgspec.convert(
            records,
            kind,
            # no array outside of the key, which a path may lead to
            dec_hook=lambda _, place: get_array(root, f"{key}/{Path(place).name}"),
        )
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, DataError):  # of an array
            raise error.__cause__ from error
        raise DataError(
            f"{root / key} has records that this version of mscam_dask cannot read ({error}). Read them with the "
            "version that wrote them, or run the pipeline again."
        ) from error


def write_result(solution: Solution, output: str | Path, model: Any = None) -> Path:
    """Write a fit's result, with a dataclass `model` if it is to predict, complete or not at all; return its absolute path."""
    root = Path(output).absolute()
    if root.exists():
        raise DataError(f"{root} exists; a result is never overwritten. Choose another output.")
    root.parent.mkdir(parents=True, exist_ok=True)
    arrays = solution.arrays
    begun = None
    if isinstance(arrays, StoredArrays) and arrays.is_partial and arrays.root.parent == root.parent:
        begun = arrays
    partial = new_partial(root) if begun is None else begun.root
    try:
        with full_disk_is_temporary(root):
            _write(solution, partial, model, begun)
            read_result(partial)
            if model is not None:
                read_model(partial, type(model))
            sync_tree(partial)
            rename_durably(partial, root)
    finally:
        remove_quietly(partial)
    if begun is not None:
        begun.root, begun.is_partial = root, False
    return root


def _write(solution: Solution, directory: Path, model: Any, begun: StoredArrays | None) -> None:
    import zarr

    arrays = solution.arrays
    group = zarr.open_group(directory, mode="r+") if begun else new_group(directory)
    group.attrs.put({**_FORMAT.marks, "status": solution.status.name})
    put_array(group, "labels", solution.labels.astype("<i8"))
    if begun is None:
        graphs = {"consensus_graph": arrays.consensus_graph}
        if not solution.status.is_learned:
            graphs["learned_graph"] = arrays.learned_graph
        for key, graph in graphs.items():
            put_graph(group, key, graph.data, graph.indices, graph.indptr)
        for kind in _EMBEDDINGS:
            for index, (name, values) in enumerate(getattr(arrays, kind).items()):
                put_embedding(group, kind, index, name, values)
    records = {one.name: getattr(solution, one.name) for one in fields(FitRecords)}
    put_records(group, "fit", FitRecords(**records))
    if model is not None:
        put_records(group, "model", model)
    write_checksums(group, directory)


def read_result(path: str | Path) -> Solution:
    """Read and verify a store written by `write_result`; arrays of large data are read again when they are used."""
    root = Path(path).absolute()
    attributes = _FORMAT.attributes(root)
    with usable_attributes(root):
        labels, stored = get_array(root, "labels"), StoredArrays(root)
        is_large = len(labels) > SIZES.exact_samples
        if is_large:
            verify_arrays(root, attributes)
        return Solution(
            **vars(get_records(root, "fit", FitRecords)),
            labels=labels,
            status=Status[attributes["status"]],
            arrays=stored if is_large else stored.loaded(),
            encoders={},
        )


def read_model(path: str | Path, kind: type[_Records]) -> _Records:
    """Read the parts of a result from which it predicts."""
    root = Path(path).absolute()
    _FORMAT.attributes(root)
    return get_records(root, "model", kind)


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
    "objective": "the view's terms of the objective; of the refinement minus the separation of its metric",
    "view_score": "information (nats) on that cut from the view's own reference graphs",
}


def count_dataset(selection: NClustersSelected) -> xarray.Dataset:
    """p-values from which the number of clusters, the attribute `chosen`, was selected, over n_clusters."""
    import xarray

    prose = (
        "largest p-value of the borders between n_clusters clusters, the least of some partitions"
    )
    return xarray.Dataset(
        {"p_value": ("n_clusters", np.array(selection.p_values), {"long_name": prose})},
        coords={"n_clusters": list(selection.counts)},
        attrs={"chosen": selection.n_clusters},
    )


def history_dataset(
    history: Sequence[IterationFinished], view_names: Sequence[str]
) -> xarray.Dataset:
    """Outer iterations as a Dataset over (outer_iteration, view), NaN for views that were left out."""
    import xarray

    places = [[view_names.index(view.view) for view in record.views] for record in history]

    def of_views(name: str) -> NDArray[np.float64]:
        table = np.full((len(history), len(view_names)), np.nan)
        for row, columns, record in zip(table, places, history, strict=True):
            if name != "view_score":
                row[columns] = [getattr(view, name) for view in record.views]
            elif record.view_scores:  # a solver may keep none
                row[columns] = record.view_scores
        return table

    variables: dict[str, Any] = {
        name: (
            "outer_iteration",
            np.array([getattr(record, name) for record in history]) + 0,  # truth values as 0 and 1
            {"long_name": prose},
        )
        for name, prose in _PER_ITERATION.items()
    } | {
        name: (("outer_iteration", "view"), of_views(name), {"long_name": prose})
        for name, prose in _PER_VIEW.items()
    }
    numbers_of_iterations = np.array([r.iteration for r in history], dtype=np.int64)
    coords = {"outer_iteration": numbers_of_iterations, "view": list(view_names)}
    return xarray.Dataset(variables, coords=coords)

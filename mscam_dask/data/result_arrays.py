"""Arrays of a result with a row for each sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.sparse import sparse_from_parts
from mscam_dask.data.store.arrays import ArrayPieces, get_array, put_array, verify_array
from mscam_dask.data.store.schema import corrupt_store
from mscam_dask.errors import DataError
from mscam_dask.types.result import ArraysInMemory, ResultArrays

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Values = NDArray[Any] | ArrayPieces

_CSR = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0"}
_GRAPH_PARTS = ("data", "indices", "indptr")
_EMBEDDINGS: dict[str, tuple[str, np.dtype[Any]]] = {
    "view_embeddings": ("component", np.dtype("<f8")),
    "view_coordinates": ("axis", np.dtype("<f4")),
}


@dataclass(eq=False)
class StoredArrays:
    """`ResultArrays` in a store, or in a directory in which it is still being written, each read when first used."""

    root: Path
    n_samples: int
    has_learned_graph: bool
    embedded_views: tuple[str, ...]
    projected_views: tuple[str, ...]
    is_partial: bool = False

    @cached_property
    def consensus_graph(self) -> csr_array[np.float64]:
        """Consensus graph (n, n)."""
        return self._graph("consensus_graph")

    @cached_property
    def learned_graph(self) -> csr_array[np.float64]:
        """Learned graph (n, n)."""
        return self._graph("learned_graph") if self.has_learned_graph else self.consensus_graph

    @cached_property
    def view_embeddings(self) -> dict[str, NDArray[np.float64]]:
        """Embedding (n, c) of each view."""
        return self._of_views("view_embeddings", self.embedded_views)

    @cached_property
    def view_coordinates(self) -> dict[str, NDArray[np.float32]]:
        """Principal coordinates (n, m) of each view."""
        return self._of_views("view_coordinates", self.projected_views)

    def loaded(self) -> ArraysInMemory:
        """Read all arrays."""
        return ArraysInMemory(
            self.consensus_graph, self.learned_graph, self.view_embeddings, self.view_coordinates
        )

    def verify(self) -> None:
        """Read every chunk, one at a time; a missing or damaged one is a `StoreCorruptError`."""
        graphs = ("consensus_graph", "learned_graph")[: 1 + self.has_learned_graph]
        keys = [f"{graph}/{part}" for graph in graphs for part in _GRAPH_PARTS]
        keys += [f"view_embeddings/{index}" for index in range(len(self.embedded_views))]
        keys += [f"view_coordinates/{index}" for index in range(len(self.projected_views))]
        for key in keys:
            verify_array(self.root, key)

    def _graph(self, key: str) -> csr_array[np.float64]:
        parts = {part: get_array(self.root, f"{key}/{part}") for part in _GRAPH_PARTS}
        shape = (self.n_samples, self.n_samples)
        try:
            graph: csr_array[np.float64] = sparse_from_parts("csr", parts, shape, "the graph")
        except DataError as error:
            raise corrupt_store(self.root / key, str(error).partition(". ")[0]) from error
        return graph

    def _of_views(self, kind: str, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        return {name: get_array(self.root, f"{kind}/{index}") for index, name in enumerate(names)}


def put_graph(group: Any, key: str, data: Values, indices: Values, indptr: Values) -> None:
    """Write a graph (n, n): a CSR group as anndata writes it."""
    sparse, n_samples = group.create_group(key), indptr.shape[0] - 1
    sparse.attrs.update(_CSR, shape=[n_samples, n_samples])
    parts = (data, "<f8", "entry"), (indices, "<i8", "entry"), (indptr, "<i8", "edge")
    for name, (values, dtype, dim) in zip(_GRAPH_PARTS, parts, strict=True):
        put_array(sparse, name, values, (dim,), np.dtype(dtype))


def put_embedding(group: Any, kind: str, index: int, name: str, values: Values) -> None:
    """Write "view_embeddings" or "view_coordinates" of a view."""
    axis, dtype = _EMBEDDINGS[kind]
    array = put_array(group, f"{kind}/{index}", values, ("sample", axis), dtype)
    array.attrs["name"] = name


def put_arrays(group: Any, arrays: ResultArrays, *, has_learned_graph: bool) -> None:
    """Write all arrays of a result, the learned graph only if it is not the consensus graph."""
    graphs = {"consensus_graph": arrays.consensus_graph}
    if has_learned_graph:
        graphs["learned_graph"] = arrays.learned_graph
    for key, graph in graphs.items():
        put_graph(group, key, graph.data, graph.indices, graph.indptr)
    for kind in _EMBEDDINGS:
        for index, (name, values) in enumerate(getattr(arrays, kind).items()):
            put_embedding(group, kind, index, name, values)

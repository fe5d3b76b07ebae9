"""Arrays of a result with a row for each sample: written by the driver or by workers, with the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.sparse import sparse_from_parts
from mscam_dask.data.store.arrays import create_array, get_array, verify_array
from mscam_dask.data.store.schema import METADATA, corrupt_store
from mscam_dask.errors import DataError
from mscam_dask.types.result import ArraysInMemory, ResultArrays

if TYPE_CHECKING:
    from scipy.sparse import csr_array

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


def create_graph(group: Any, key: str, n_samples: int, n_entries: int) -> dict[str, Any]:
    """Create the arrays of a graph: a CSR group as anndata writes it."""
    sparse = group.create_group(key)
    sparse.attrs.update(_CSR, shape=[n_samples, n_samples])
    parts = {
        "data": ("<f8", n_entries, "entry"),
        "indices": ("<i8", n_entries, "entry"),
        "indptr": ("<i8", n_samples + 1, "edge"),
    }
    return {
        part: create_array(sparse, part, (size,), np.dtype(dtype), (dim,))
        for part, (dtype, size, dim) in parts.items()
    }


def create_embedding(group: Any, kind: str, index: int, name: str, shape: tuple[int, int]) -> Any:
    """Create the array of "view_embeddings" or "view_coordinates" of a view."""
    axis, dtype = _EMBEDDINGS[kind]
    array = create_array(group, f"{kind}/{index}", shape, dtype, ("sample", axis))
    array.attrs["name"] = name
    return array


def put_arrays(group: Any, arrays: ResultArrays, *, has_learned_graph: bool) -> None:
    """Write all arrays of a result, the learned graph only if it is not the consensus graph."""
    graphs = {"consensus_graph": arrays.consensus_graph}
    if has_learned_graph:
        graphs["learned_graph"] = arrays.learned_graph
    for key, graph in graphs.items():
        created = create_graph(group, key, graph.shape[0], len(graph.data))
        for part, array in created.items():
            array[:] = getattr(graph, part).astype(array.dtype)
    for kind in _EMBEDDINGS:
        for index, (name, values) in enumerate(getattr(arrays, kind).items()):
            array = create_embedding(group, kind, index, name, values.shape)
            array[:] = values.astype(array.dtype)


def write_rows(
    root: Path, key: str, parts: Sequence[NDArray[Any]], first: int, start: int, stop: int
) -> bool:
    """Write rows start … stop − 1, of `parts` from row `first` on; False where a worker cannot write to `root`."""
    import zarr

    if not (root / key / METADATA).is_file():
        return False
    try:
        array = zarr.open_array(
            root / key, mode="r+", zarr_format=3, config={"write_empty_chunks": True}
        )
        rows = np.concatenate(parts)[start - first : stop - first]
        array[start:stop] = rows.astype(array.dtype, copy=False)
    except OSError:
        return False
    return True

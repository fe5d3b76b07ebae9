"""Arrays of a result store that have a row for each sample: graphs, embeddings, coordinates.

They are written whole by the driver, or chunk by chunk by the workers; the bytes are the same. Those of
large data are read when they are used.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.sparse import sparse_from_parts
from mscam_dask.data.store.read import check_codecs, open_array, read_chunk
from mscam_dask.data.store.schema import corrupt_store
from mscam_dask.data.store.write import create_array
from mscam_dask.errors import DataError
from mscam_dask.types.result import ArraysInMemory, ResultArrays

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "StoredArrays",
    "create_embedding",
    "create_graph",
    "get_array",
    "new_arrays",
    "open_arrays",
    "put_array",
    "put_arrays",
    "write_rows",
]

_CHUNK_ENTRIES = 2**20
_CSR = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0"}
_GRAPH_PARTS = ("data", "indices", "indptr")
_EMBEDDINGS: dict[str, tuple[str, np.dtype[Any]]] = {
    "view_embeddings": ("component", np.dtype("<f8")),
    "view_coordinates": ("axis", np.dtype("<f4")),
}


class StoredArrays:
    """`mscam_dask.types.result.ResultArrays` in a store, each read when it is first used.

    Parameters
    ----------
    root
        The store, or the directory in which it is being written.
    n_samples
    has_learned_graph
        False where the learned graph is the consensus graph.
    embedded_views, projected_views
        Names of the views with embeddings and with coordinates.
    is_partial
        Whether `mscam_dask.data.results.write_result` has still to complete the store and to give it
        its name.
    """

    def __init__(
        self,
        root: Path,
        n_samples: int,
        *,
        has_learned_graph: bool,
        embedded_views: Sequence[str],
        projected_views: Sequence[str],
        is_partial: bool = False,
    ) -> None:
        self.root = root
        self.is_partial = is_partial
        self.n_samples = n_samples
        self.has_learned_graph = has_learned_graph
        self.embedded_views, self.projected_views = tuple(embedded_views), tuple(projected_views)

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
        return _of_views(self.root, "view_embeddings", self.embedded_views)

    @cached_property
    def view_coordinates(self) -> dict[str, NDArray[np.float32]]:
        """Principal coordinates (n, m) of each view."""
        return _of_views(self.root, "view_coordinates", self.projected_views)

    def loaded(self) -> ArraysInMemory:
        """Read all arrays."""
        return ArraysInMemory(
            self.consensus_graph, self.learned_graph, self.view_embeddings, self.view_coordinates
        )

    def verify(self) -> None:
        """Read every chunk, one at a time.

        Raises
        ------
        StoreCorruptError
            When a file is missing or damaged; the message names it.
        """
        graphs = ("consensus_graph", "learned_graph")[: 1 + self.has_learned_graph]
        keys = [f"{graph}/{part}" for graph in graphs for part in _GRAPH_PARTS]
        keys += [f"view_embeddings/{index}" for index in range(len(self.embedded_views))]
        keys += [f"view_coordinates/{index}" for index in range(len(self.projected_views))]
        for key in keys:
            array = _open(self.root, key)
            for start, stop in _chunks(array):
                read_chunk(array, self.root / key, slice(start, stop))

    def _graph(self, key: str) -> csr_array[np.float64]:
        parts = {part: get_array(self.root, f"{key}/{part}")[0] for part in _GRAPH_PARTS}
        if len(parts["indptr"]) != self.n_samples + 1:
            raise corrupt_store(
                self.root / key, f"not one row for each of {self.n_samples} samples"
            )
        try:
            graph: csr_array[np.float64] = sparse_from_parts(
                "csr", parts, (self.n_samples, self.n_samples), "the graph"
            )
        except DataError as error:
            raise corrupt_store(self.root / key, str(error).partition(". ")[0]) from error
        return graph


def _of_views(root: Path, kind: str, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    return {name: get_array(root, f"{kind}/{index}")[0] for index, name in enumerate(names)}


def new_arrays(directory: Path) -> Any:
    """Make the root group of a store whose arrays are written before its attributes."""
    import zarr

    return zarr.open_group(directory, mode="w-", zarr_format=3)


def open_arrays(directory: Path) -> Any:
    """Open the root group that `new_arrays` made."""
    import zarr

    return zarr.open_group(directory, mode="r+", zarr_format=3)


def create_graph(group: Any, key: str, n_samples: int, n_entries: int) -> dict[str, Any]:
    """Create the arrays of a graph: a CSR group as anndata writes it."""
    sparse = group.create_group(key)
    sparse.attrs.update(_CSR, shape=[n_samples, n_samples])
    sizes = {
        "data": ("<f8", n_entries),
        "indices": ("<i8", n_entries),
        "indptr": ("<i8", n_samples + 1),
    }
    return {
        part: _create(
            sparse, part, (size,), np.dtype(dtype), ("edge" if part == "indptr" else "entry",)
        )
        for part, (dtype, size) in sizes.items()
    }


def create_embedding(group: Any, kind: str, index: int, name: str, shape: tuple[int, int]) -> Any:
    """Create the array of "view_embeddings" or "view_coordinates" of a view."""
    axis, dtype = _EMBEDDINGS[kind]
    array = _create(group, f"{kind}/{index}", shape, dtype, ("sample", axis))
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


def put_array(group: Any, key: str, values: NDArray[Any], dims: tuple[str, ...]) -> Any:
    """Write one array, chunked by rows."""
    array = _create(group, key, values.shape, values.dtype, dims)
    array[:] = values
    return array


def _create(
    group: Any, key: str, shape: tuple[int, ...], dtype: np.dtype[Any], dims: tuple[str, ...]
) -> Any:
    width = max(1, int(np.prod(shape[1:])))
    rows = max(1, min(shape[0], _CHUNK_ENTRIES // width))
    chunks = (rows, *(max(1, size) for size in shape[1:]))
    return create_array(group, key, shape, chunks, dtype, dims)


def write_rows(
    root: Path, key: str, parts: Sequence[NDArray[Any]], first: int, start: int, stop: int
) -> bool:
    """Write rows start … stop − 1 of an array, which are whole chunks; False where this is impossible.

    Parameters
    ----------
    root
        Directory that the driver has made, which a worker may not see or may not write to.
    key
    parts
        Consecutive rows of the array, which have those that are written.
    first
        Row of the array where `parts` start.
    """
    import zarr

    if not (root / key / "zarr.json").is_file():
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


def get_array(root: Path, key: str) -> tuple[NDArray[Any], Any]:
    """Read one array, chunk by chunk; the values and the array."""
    array = _open(root, key)
    values = np.empty(array.shape, dtype=array.dtype)
    for start, stop in _chunks(array):
        values[start:stop] = read_chunk(array, root / key, slice(start, stop))
    return values, array


def _open(root: Path, key: str) -> Any:
    array = open_array(root, key)
    check_codecs(array, root / key / "zarr.json")
    return array


def _chunks(array: Any) -> list[tuple[int, int]]:
    """First and last rows of the chunks."""
    edges = [*range(0, array.shape[0], array.chunks[0]), array.shape[0]]
    return list(itertools.pairwise(edges))

"""Row sources: one view each, read by blocks of rows as C-ordered float64, wherever the view is held."""

from __future__ import annotations

import csv
import hashlib
import lzma
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from mscam_dask.data.sparse import checked_sparse, is_sparse
from mscam_dask.errors import DataError, StoreCorruptError
from mscam_dask.types.parameters import ImputeMethod

if TYPE_CHECKING:
    import dask.array as da

    from mscam_dask.linalg.incomplete import PresentSamples

ViewType = Literal["features", "distance", "kernel"]
"""Coordinates of the samples (n, d), pairwise distances (n, n, not squared) or a kernel (n, n)."""

VIEW_TYPES: tuple[ViewType, ...] = get_args(ViewType)

BLOCK_BYTES = 64 * 2**20
"""Float64 bytes of one row block when a whole view is streamed."""

# Errors that libraries raise for files that are damaged or made to harm: those for bad values, and those that a
# program raises by mistake too.
_BAD_VALUES = (
    *(ArithmeticError, EOFError, OSError, SyntaxError, ValueError),
    *(csv.Error, lzma.LZMAError, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
_MISTAKES = (
    *(AssertionError, AttributeError, BufferError, LookupError, NameError),
    *(RuntimeError, SystemError, TypeError),
)

DIGEST_ROWS = 8192
"""Rows of a block of `ViewDigest`."""

# Bytes that are copied and digested at a time, which stay in a cache.
_DIGESTED_BYTES = 2**20


class RowSource:
    """One view (n, d), read by row blocks; `dtype` is that of the values where they are held."""

    if TYPE_CHECKING:  # fields of some subclasses, which properties at run time would hide

        @property
        def name(self) -> str: ...
        @property
        def view_type(self) -> ViewType: ...
        @property
        def shape(self) -> tuple[int, int]: ...
        @property
        def dtype(self) -> np.dtype[Any]: ...

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the d columns, None where they have none."""
        return None

    @property
    def chunk_size(self) -> int:
        """Rows that are decoded together; 1 without chunks."""
        return 1

    @property
    def is_in_memory(self) -> bool:
        """Whether the rows are in the memory of this process."""
        return False

    @property
    def recorded_digest(self) -> str:
        """`view_digest` that a store has recorded; else an empty text."""
        return ""

    @property
    def impute(self) -> ImputeMethod | None:
        """Method by which a store says that missing cells were filled."""
        return None

    @property
    def n_samples(self) -> int:
        """Number of samples n of the data that the view is part of."""
        return self.shape[0]

    @property
    def present(self) -> PresentSamples | None:
        """Samples that the view has, None for all."""
        return None

    @property
    def whole(self) -> RowSource:
        """The view with a row for each sample; those of absent samples have arbitrary values."""
        return self

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return rows start..stop-1, (stop - start, d), C-contiguous, not to be written to."""
        if not 0 <= start <= stop <= self.shape[0]:  # which NumPy would shorten silently
            raise IndexError(
                f"Rows {start}:{stop} of view {self.name!r} asked for; it has rows 0:{self.shape[0]}."
            )
        with np.errstate(over="ignore"):  # infinite values are refused by validation
            rows = np.ascontiguousarray(self._rows(start, stop), dtype=np.float64).view()
        rows.flags.writeable = False
        return rows

    def _rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows start..stop-1, which exist, of any dtype and layout."""
        raise NotImplementedError


class RowsOf(RowSource):
    """Base of views that are read from another one: `source` has their name, type, dtype, shape and columns."""

    source: RowSource

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def view_type(self) -> ViewType:
        return self.source.view_type

    @property
    def shape(self) -> tuple[int, int]:
        return self.source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype

    @property
    def is_in_memory(self) -> bool:
        return self.source.is_in_memory

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        return self.source.feature_names


@dataclass(frozen=True, eq=False)
class _Array(RowSource):
    """A view (n, d) of any real dtype that an array holds; nothing is copied."""

    array: Any
    name: str
    view_type: ViewType = "features"
    feature_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_view(self.name, self.array.shape, self.array.dtype)

    @property
    def shape(self) -> tuple[int, int]:
        n_samples, n_columns = self.array.shape
        return int(n_samples), int(n_columns)

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = np.dtype(self.array.dtype)
        return dtype


@dataclass(frozen=True, eq=False)
class ArrayRows(_Array):
    """A view held in memory, dense or compressed sparse row."""

    array: NDArray[Any] | sparse.csr_array[Any]
    is_in_memory = True

    def _rows(self, start: int, stop: int) -> NDArray[Any]:
        rows: Any = self.array[start:stop]
        dense: NDArray[Any] = rows.toarray() if is_sparse(rows) else rows
        return dense


@dataclass(frozen=True, eq=False)
class DaskRows(_Array):
    """A Dask array with a graph of its own, computed by blocks; `file` is what it reads, empty for a user's graph."""

    array: da.Array
    file: str = ""

    def __post_init__(self) -> None:
        if any(np.isnan(size) for size in self.array.shape):
            raise DataError(
                f"View {self.name!r} is a Dask array of unknown shape {self.array.shape}; the "
                "number of samples must be known before work starts. Call "
                ".compute_chunk_sizes() on it (or .to_dask_array(lengths=True) on a frame)."
            )
        super().__post_init__()
        tasks = list(dict(self.array.dask).values())
        if any(type(task).__module__.startswith("distributed") for task in tasks):
            raise DataError(
                f"View {self.name!r} is a Dask array persisted on a cluster: its blocks are futures "
                "that a worker cannot compute by itself. Pass the array as it was before "
                ".persist(), or write it with mscam_dask.data.ingest and pass the store's path."
            )

    @property
    def chunk_size(self) -> int:
        """Rows of the largest chunk."""
        return max(1, *(int(rows) for rows in self.array.chunks[0]))

    def _rows(self, start: int, stop: int) -> NDArray[Any]:
        import dask.array as da
        from dask.array.utils import meta_from_array

        array, where = self.array, f"A block of view {self.name!r}"
        meta = meta_from_array(array)
        if is_sparse(meta):  # before rows are taken out of the blocks
            array = da.map_blocks(_checked_block, array, where=where, dtype=array.dtype, meta=meta)
        try:
            block: Any = _checked_block(array[start:stop].compute(scheduler="synchronous"), where)
        except MemoryError as error:
            if not self.file:
                raise
            raise no_memory(self.file, error) from error
        except Exception as error:
            if not self.file or isinstance(error, DataError) or not is_of_file(error):
                raise
            raise StoreCorruptError(
                f"{self.file} is damaged: rows {start}:{stop} of view {self.name!r} cannot be read "
                f"({str(error) or type(error).__name__}). Restore it from a copy."
            ) from error
        if hasattr(block, "toarray"):
            block = block.toarray()
        if block.shape != (stop - start, self.shape[1]):
            raise DataError(
                f"View {self.name!r} is a Dask array that declares shape {self.shape}, but its rows "
                f"{start}:{stop} have shape {block.shape}. Pass the chunks of the result to "
                "map_blocks (chunks=...), or call .compute_chunk_sizes()."
            )
        check_view(self.name, block.shape, block.dtype)
        return unmasked(block)


def no_memory(file: str, error: MemoryError) -> DataError:
    """Error of a file that takes more memory than there is, as damaged ones may ask for."""
    return DataError(
        f"{file} cannot be read: not enough memory ({str(error) or 'MemoryError'}). Use a computer with more memory, or "
        "check that the file is complete."
    )


def is_of_file(error: Exception, *, in_own_code: bool = False) -> bool:
    """Return whether an error says that a file is damaged; one that a mistake may raise counts in code of this package only if told."""
    if isinstance(error, _BAD_VALUES) or type(error).__module__.startswith(("scipy.io", "anndata")):
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    package = __name__.partition(".")[0]
    is_own = trace is not None and trace.tb_frame.f_globals["__name__"].startswith(f"{package}.")
    return isinstance(error, _MISTAKES) and (in_own_code or not is_own)


def _checked_block(block: Any, where: str) -> Any:
    """The block of a Dask array, checked where it is sparse."""
    return checked_sparse(block, where) if is_sparse(block) else block


def row_ranges(source: RowSource, *, block_bytes: int = BLOCK_BYTES) -> Iterator[tuple[int, int]]:
    """Cut a view into (start, stop) ranges of at most `block_bytes` as float64, and of whole chunks where it has some."""
    n_samples, n_columns = source.shape
    rows = max(1, block_bytes // max(1, 8 * n_columns))
    if source.chunk_size <= rows:
        rows -= rows % source.chunk_size
    for start in range(0, n_samples, rows):
        yield start, min(start + rows, n_samples)


class ViewDigest:
    """SHA-256 of a view's shape and of that of each `DIGEST_ROWS` rows as little-endian float64, no −0."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._hash = hashlib.sha256()
        self._n_rows = 0

    def update(self, rows: NDArray[np.float64]) -> None:
        """Add the next rows."""
        step = max(1, _DIGESTED_BYTES // (8 * max(1, rows.shape[1])))
        while len(rows):
            part = rows[: min(step, DIGEST_ROWS - self._n_rows)]
            self._hash.update((part + 0.0).astype("<f8", copy=False).data)
            self._n_rows += len(part)
            if self._n_rows == DIGEST_ROWS:
                self._blocks.append(self._hash.digest())
                self._hash, self._n_rows = hashlib.sha256(), 0
            rows = rows[len(part) :]

    def blocks(self) -> list[bytes]:
        """Return the digest of each block of rows that were added so far."""
        return [*self._blocks, self._hash.digest()] if self._n_rows else list(self._blocks)

    def hexdigest(self, shape: tuple[int, int]) -> str:
        """Return the digest of the rows that were added, 64 hexadecimal digits."""
        return digest_of_blocks(shape, self.blocks())


def digest_of_blocks(shape: tuple[int, int], blocks: Sequence[bytes]) -> str:
    """Return the digest of a view from those of its blocks of rows."""
    return hashlib.sha256(b"%dx%d;" % shape + b"".join(blocks)).hexdigest()


def view_digest(source: RowSource) -> str:
    """Read a view once and return its `ViewDigest`, 64 hexadecimal digits."""
    digest = ViewDigest()
    for start, stop in row_ranges(source):
        digest.update(source.read(start, stop))
    return digest.hexdigest(source.shape)


def check_view(name: str, shape: tuple[Any, ...], dtype: DTypeLike) -> None:
    """Refuse a view that is not a two-dimensional table of real numbers, with a `DataError`."""
    resolved = np.dtype(dtype)
    if resolved.kind not in "biuf":
        raise DataError(
            f"View {name!r} has values of dtype {resolved}; allowed are real numbers (bool, integer, floating "
            "point). Give numbers in its place: view.astype(float) of numbers that are objects or text, a column for "
            "each category or field of a record, the parts of complex numbers, or days since a date."
        )
    if len(shape) != 2:
        raise DataError(
            f"View {name!r} has {len(shape)} dimension(s), shape {tuple(shape)}; allowed is a "
            "two-dimensional array (samples, features). Reshape a single feature to (n, 1), "
            "flatten images to one row per sample; for one view of each entry, pass list(array)."
        )


def unmasked(values: NDArray[Any]) -> NDArray[Any]:
    """Return the plain array of a masked one, with NaN where numbers are masked."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    has_gaps = np.ma.is_masked(values) and values.dtype.kind in "biuf"
    plain: NDArray[Any] = np.ma.filled(values.astype("f8"), np.nan) if has_gaps else values.data
    return plain


def rows_at(
    source: RowSource,
    places: NDArray[np.int64],
    columns: NDArray[np.int64] | None = None,
    *,
    dtype: DTypeLike = np.float64,
) -> NDArray[Any]:
    """Read rows of a view in any order, and some of their columns; NaN where a place is −1."""
    n_columns = source.shape[1] if columns is None else len(columns)
    rows = np.full((len(places), n_columns), np.nan, dtype)
    for first, last in row_ranges(source):
        here = np.flatnonzero((places >= first) & (places < last))
        if here.size:
            held = places[here]
            low = int(held.min())
            block = source.read(low, int(held.max()) + 1)[held - low]
            rows[here] = block if columns is None else block[:, columns]
    if columns is not None:
        rows[:, columns < 0] = np.nan
    return rows


def is_numbering(names: Sequence[str]) -> bool:
    """Return whether names are 0, 1, ..., the default of a frame."""
    return tuple(names) == tuple(map(str, range(len(names))))


def changed_names(names: Sequence[str] | None, now: Sequence[str] | None) -> str:
    """Say how names of columns are different `now`: the first column that is, and names of one of the two only.

    Empty if they are the same, or one side has none, or a numbering that is not the names of the other in another order.
    """
    if names is None or now is None or names == now:
        return ""
    if (is_numbering(names) or is_numbering(now)) and {*names} != {*now}:
        return ""
    column = [*map(str.__eq__, names, now)].index(False)
    told = f"column {column} is {now[column]!r} and was {names[column]!r}"
    for what, some, others in (("new", now, {*names}), ("missing", names, {*now})):
        if only := [name for name in some if name not in others]:
            told += f"; {what} are {listed(only)}"
    return told


def listed(names: Sequence[str | int]) -> str:
    """The first names, quoted, or numbers, for messages."""
    return ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")

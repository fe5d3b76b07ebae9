"""Sources of readers, their contents, and the limits, checks and errors that all readers share."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Literal

from numpy.typing import NDArray

from mscam_dask.data.store.object_store import Location, as_location
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import RowSource, is_of_file, no_memory
from mscam_dask.errors import ConfigurationError, DataError, MscamError

_COMPRESSIONS = (".gz", ".bz2", ".xz")

MAX_BYTES = 8 * 2**30
"""Bytes that a file may declare for what is held in memory at once, unless a source says otherwise."""

# Declared bytes for each stored byte: beyond, more than the limit is never read unasked.
_MAX_EXPANSION = 1000

# A Dask array has a task for each chunk.
_MAX_CHUNKS = 250_000


@dataclass(frozen=True)
class Source:
    """File to read, with options that its content does not give.

    Parameters
    ----------
    path
        File or directory.
    samples_in
        "columns" for (features, samples) matrices, which are then transposed; of a text file the
        header has the sample ids then, and the column of ids the names of features.
    header
        Whether the first line of a table names the columns; None: it does when it is not
        all numbers, or these number the columns (0, 1, 2, ... above measured values).
    id_column
        Name or position (0, 1, ...) of the column of a table with sample ids; False where none has.
        None: the column that several tables share, one that is called id, sample, patient or the like, the
        first one of text, or a first column of consecutive whole numbers; values differ in every row. It is an
        error where a first column of whole numbers may as well be a feature.
    delimiter
        Of a text file; None: that under which most fields are numbers, of tab, semicolon, bar and comma, else
        runs of blanks.
    decimal
        Decimal mark of a text file, "." or ","; None: as the numbers say.
    comment
        Lines of a text file that begin with this text are left out; None: those that begin with # above the
        header, and where it begins with !, all of these.
    skip
        Number of lines above the header of a text file, or rows of a sheet.
    max_bytes
        Largest size that the file may declare for what is held in memory at once: the arrays of a
        .npz or MATLAB file before v7.3, a chunk of the others.
    """

    path: str | Location
    samples_in: Literal["rows", "columns"] = "rows"
    header: bool | None = None
    id_column: str | int | None = None
    delimiter: str | None = None
    decimal: Literal[".", ","] | None = None
    comment: str | None = None
    skip: int = 0
    max_bytes: int = MAX_BYTES

    def __post_init__(self) -> None:
        for name, is_right, allowed in (
            ("max_bytes", self.max_bytes >= 1, "at least 1"),
            ("decimal", self.decimal in (None, ".", ","), "'.' or ','"),
            ("delimiter", self.delimiter is None or len(self.delimiter) == 1, "one character"),
            ("comment", self.comment != "", "a text of at least one character"),
            ("skip", self.skip >= 0, "at least 0"),
            ("samples_in", self.samples_in in ("rows", "columns"), "'rows' or 'columns'"),
        ):
            if not is_right:
                raise ConfigurationError(
                    f"{name}={getattr(self, name)!r} for {self.path}; allowed is {allowed}."
                )

    @property
    def file(self) -> Path:
        """The path, as a Path; of a URL its last part."""
        place = as_location(self.path)
        return place if isinstance(place, Path) else Path(place.name)

    @property
    def view_name(self) -> str:
        """Name of the only view of this file."""
        return _unzipped(self.file).stem

    @property
    def suffix(self) -> str:
        """Suffix of the file name in lower case, without that of a compression."""
        return _unzipped(self.file).suffix.lower()


def oriented_sources(
    files: Sequence[Source],
    samples_in: Mapping[str, Any] | Literal["rows", "columns"] | None,
    named: Sequence[Source],
) -> list[Source]:
    """Files with an orientation for all of them, or by the name of the view of a file, one of `named`."""
    if not isinstance(samples_in, Mapping):
        return [replace(file, samples_in=samples_in or "rows") for file in files]
    known = [file.view_name for file in named]
    unknown = [name for name in samples_in if name not in known]
    if unknown:
        raise ConfigurationError(
            f"samples_in (--samples-in) names {unknown}, but the views of the files are {known}. Correct "
            "the name."
        )
    return [replace(file, samples_in=samples_in.get(file.view_name, "rows")) for file in files]


def _unzipped(file: Path) -> Path:
    return file.with_suffix("") if file.suffix.lower() in _COMPRESSIONS else file


@dataclass(frozen=True)
class Selection:
    """Views to read (None: all) and the name of the labels (None: a usual one)."""

    views: tuple[str, ...] | None = None
    labels: str | None = None

    def wants(self, name: str) -> bool:
        """Return whether a view is to be read."""
        return self.views is None or name in self.views


@dataclass(frozen=True, eq=False)
class SourceContents:
    """Contents of one source: requested views, labels (n,) and sample ids (n,), and how they were found.

    `skipped` are names of possible other views, `cell_arrays` the views of each cell array, by name; `may_be_ids` are
    vectors and columns of unique texts, each of which may have the sample ids;
    `labels_explicit` says that the labels were requested; `origin` has what was decided in few words, by title.
    """

    where: str
    views: tuple[RowSource, ...]
    labels: NDArray[Any] | None = None
    label_names: tuple[str, ...] | None = None
    sample_ids: tuple[str, ...] | None = None
    labels_explicit: bool = False
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    cell_arrays: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    may_be_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    origin: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_data(cls, data: MultiViewData, where: str, selection: Selection) -> SourceContents:
        """Contents of data that are complete already."""
        return cls(
            where=where,
            views=data.views,
            labels=data.labels,
            label_names=data.label_names,
            sample_ids=data.sample_ids,
            labels_explicit=selection.labels == "labels" and data.labels is not None,
        )


def not_allowed(source: Source, error: PermissionError) -> DataError:
    """Return the error for a source that this user may not read."""
    file = source.path if error.filename is None else error.filename
    return DataError(
        f"{file} may not be read ({error.strerror or error}). Ask its owner for permission "
        "(chmod a+r, and a+rx for the directories above it), or use a copy."
    )


def check_samples_on_rows(source: Source, how: str) -> None:
    """Refuse samples_in="columns" for a file that says itself where its samples are."""
    if source.samples_in == "columns":
        raise DataError(
            f"samples_in='columns' (--samples-in columns) for {source.path}, which has its samples on {how}. Leave "
            "the option out for this file."
        )


def check_size(source: Source, what: str, nbytes: int) -> None:
    """Refuse what takes more memory than `Source.max_bytes`, before it is allocated."""
    if nbytes > source.max_bytes:
        raise DataError(
            f"{source.path}: {what} would take {nbytes} bytes of memory; allowed are {source.max_bytes}. "
            "Restore the file if it should be smaller, or raise the limit (max_bytes "
            "of Source, [data] max_bytes, or --max-bytes)."
        )


def check_row_size(values: Any, source: Source) -> Any:
    """Return a sparse matrix as it is, if one row of it fits into memory as a dense array."""
    check_size(source, f"a row of a sparse matrix of shape {values.shape}", 8 * max(values.shape))
    return values


def check_lazy_size(
    source: Source, what: str, array: Any, *, chunks: Sequence[int] | None, stored_bytes: int
) -> None:
    """Refuse an array of HDF5 or Zarr, to be read by `chunks` of this shape, whose declared shape its file can hardly hold."""
    shape, item_bytes = array.shape, array.dtype.itemsize
    declared = math.prod(shape) * item_bytes
    if declared > _MAX_EXPANSION * stored_bytes:
        held = f"{what} of shape {tuple(shape)}, of which {stored_bytes} bytes are stored,"
        check_size(source, held, declared)
    if chunks is None:
        return
    check_size(source, f"a chunk {tuple(chunks)} of {what}", math.prod(chunks) * item_bytes)
    n_chunks = math.prod(
        -(-size // max(1, chunk)) for size, chunk in zip(shape, chunks, strict=True)
    )
    if n_chunks > _MAX_CHUNKS:
        raise DataError(
            f"{source.path}: {what} has {n_chunks} chunks {tuple(chunks)}; allowed are {_MAX_CHUNKS}. Write "
            "it again in larger chunks, of some megabytes each."
        )


@contextmanager
def needing(source: Source, install: str, instead: str) -> Iterator[None]:
    """Turn the lack of a package into a DataError that says how to install it, or what to do instead."""
    try:
        yield
    except ImportError as error:
        raise DataError(
            f"{source.path} needs a package that is not installed ({error}). Install it (pip install {install}), or "
            f"{instead}."
        ) from error


@contextmanager
def unreadable(source: Source, what: str, *, unpacks: bool = False) -> Iterator[None]:
    """Turn a library's errors while reading into a DataError that names the file.

    A mistake in this package is a defect, unless a reader `unpacks` objects of a file, which may be of any kind.
    """
    try:
        yield
    except MscamError:
        raise
    except PermissionError as error:
        raise not_allowed(source, error) from error
    except MemoryError as error:
        raise no_memory(str(source.path), error) from error
    except Exception as error:
        if not is_of_file(error, in_own_code=unpacks):
            raise
        if isinstance(error, UnicodeDecodeError):
            raise DataError(
                f"{source.path} cannot be read as {what}: byte 0x{error.object[error.start]:02x} is not "
                "UTF-8. Convert text of another encoding (iconv -f ENCODING -t utf-8 FILE, with latin1 or cp932 for "
                'example; "CSV UTF-8" in Excel), and binary files to a format that can be read.'
            ) from error
        raise DataError(
            f"{source.path} cannot be read as {what}: {str(error) or type(error).__name__}. Check that "
            "the file is complete and in the format that its name says."
        ) from error


class _Limited(io.RawIOBase):
    """Unpacked bytes of a file, of which no more are read than `Source.max_bytes`."""

    def __init__(self, stream: IO[bytes], source: Source) -> None:
        self._stream, self._source, self._n_bytes = stream, source, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._stream.read(len(buffer))
        self._n_bytes += len(part)
        check_size(self._source, "its text", self._n_bytes)
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self._stream.close()
        super().close()


_UNPACKERS: dict[bytes, Callable[[Path], Any]] = {  # by patterns of the first bytes
    rb"\x1f\x8b": gzip.open,
    rb"BZh[1-9]1AY&SY": bz2.open,  # BZh alone may begin a name
    rb"\xfd7zX": lzma.open,
}


def open_text(source: Source) -> IO[str]:
    """Open a text file, unpacked if its first bytes say so, as UTF-8 or, by its byte order mark, UTF-16."""
    stream: Any = source.file.open("rb")
    for pattern, unpack in _UNPACKERS.items():
        if re.match(pattern, stream.peek(10)):
            stream.close()
            stream = io.BufferedReader(_Limited(unpack(source.file), source), 2**18)
            break
    is_wide = stream.peek(2).startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return io.TextIOWrapper(stream, encoding="utf-16" if is_wide else "utf-8-sig")

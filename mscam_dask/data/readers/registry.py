"""Table of the file formats by suffix, and the reading of sources by it.

A new format is a reader in a module of this package and its suffix in `READERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from mscam_dask.data.readers.array_files import read_mat, read_npy, read_npz
from mscam_dask.data.readers.base import Selection, Source, SourceContents, not_allowed
from mscam_dask.data.readers.omics_files import read_omics
from mscam_dask.data.readers.parquet import arrow_tables, excel_tables
from mscam_dask.data.readers.roles import Table
from mscam_dask.data.readers.tables import read_tables
from mscam_dask.data.readers.text import text_table
from mscam_dask.data.readers.xarray_files import read_netcdf, read_store, read_zarr
from mscam_dask.data.store.atomic_replace import recover
from mscam_dask.data.store.object_store import ObjectPath, as_location
from mscam_dask.errors import DataError

_Reader = Callable[
    [Source, Selection, ExitStack], SourceContents | Sequence[SourceContents | Table]
]

READERS: dict[str, _Reader] = {
    ".npz": read_npz,
    ".npy": read_npy,
    ".mat": read_mat,
    **dict.fromkeys((".parquet", ".pq", ".feather", ".arrow"), arrow_tables),
    **dict.fromkeys((".xlsx", ".xlsm", ".xls"), excel_tables),
    **dict.fromkeys((".h5ad", ".h5mu"), read_omics),
    **dict.fromkeys((".nc", ".nc4", ".cdf", ".netcdf"), read_netcdf),
}
"""Readers by suffix; a file with another suffix is text."""

# Suffixes of other files that are never read as tables of text.
_NOT_TEXT = (
    *(".pkl", ".pickle", ".joblib", ".pt", ".rds", ".rdata", ".rda", ".ods", ".h5", ".hdf5"),
    *(".zip", ".zst", ".7z", ".tar", ".tgz"),
    *(".loom", ".mtx", ".arff", ".svm", ".libsvm", ".svmlight"),
    *(".json", ".jsonl", ".xml", ".html", ".vcf", ".sav", ".dta", ".sas7bdat", ".xpt", ".orc"),
)


def _reader_of(source: Source) -> _Reader | None:
    """The reader of a file or directory, None if there is none."""
    path = source.file
    if any((path / name).is_file() for name in ("zarr.json", ".zgroup", ".zarray")):
        return read_zarr
    if source.suffix in READERS:  # None if it is compressed
        return READERS.get(path.suffix.lower()) if path.is_file() else None
    is_text = path.is_file() and source.suffix not in _NOT_TEXT
    return (lambda source, *_: [text_table(source)]) if is_text else None


def read_sources(
    sources: Sequence[Source], selection: Selection, stack: ExitStack
) -> list[SourceContents]:
    """Read sources; columns of ids are found for all together. `stack` keeps files of lazy views open."""
    found = [item for source in sources for item in _opened(source, selection, stack)]
    return read_tables(found, selection)


def table_of(source: Source) -> Table:
    """Open a file that is one table."""
    with ExitStack() as stack:
        match [item for item in _opened(source, Selection(), stack) if isinstance(item, Table)]:
            case [table]:
                return table
    raise DataError(
        f"{source.path} is not one table: allowed are text (.csv, .tsv, .txt, also compressed), .parquet, .feather "
        "and Excel files of one sheet. Convert it, or give it as a source of its own and name its variable of labels "
        "(--labels NAME)."
    )


def _opened(
    source: Source, selection: Selection, stack: ExitStack
) -> Sequence[SourceContents | Table]:
    if isinstance(as_location(source.path), ObjectPath):
        return [read_store(source, selection)]
    path = source.file
    try:
        recover(path)
        if not path.exists():
            raise DataError(f"There is no {path}. Check the path (relative to {Path.cwd()}).")
        if (read := _reader_of(source)) is not None:
            found = read(source, selection, stack)
            return [found] if isinstance(found, SourceContents) else found
    except PermissionError as error:
        raise not_allowed(source, error) from error
    if path.suffix.lower() in (".rds", ".rdata", ".rda"):
        raise DataError(
            f"{path} is a file of R, which only R reads. In R write its table as text, with row names as ids: "
            f'write.csv(readRDS({path.name!r}), "{path.stem}.csv"), or arrow::write_parquet('
            f'tibble::rownames_to_column(x, "id"), "{path.stem}.parquet").'
        )
    of_run = path / "data.zarr"
    hint = f" The data of this run are {of_run}." if of_run.is_dir() else ""
    if path.is_dir() and not hint:
        hint = " Name the files in the folder."
    raise DataError(
        f"{path} is in no format that can be read; allowed are text (.csv, .tsv, .txt, GCT; also .csv.gz, .bz2, .xz), "
        f"{', '.join(READERS)} and Zarr directories. Convert it to one of them (pandas, SciPy and anndata read others), and "
        f"unpack what is compressed.{hint}"
    )

"""Table of the file formats: how each one is recognized, and the function that reads it.

A new format is a reader in a module of this package and a line in `FORMATS` above that of text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from mscam_dask.data.readers.base import (
    COMPRESSIONS,
    Selection,
    Source,
    SourceContents,
    not_allowed,
)
from mscam_dask.data.readers.matlab import read_mat
from mscam_dask.data.readers.named_arrays import read_npy, read_npz
from mscam_dask.data.readers.omics_files import read_omics
from mscam_dask.data.readers.parquet import arrow_tables, excel_tables
from mscam_dask.data.readers.roles import Table
from mscam_dask.data.readers.tables import read_tables
from mscam_dask.data.readers.text import text_table
from mscam_dask.data.readers.xarray_files import read_netcdf, read_store, read_zarr
from mscam_dask.data.store.atomic_replace import recover
from mscam_dask.data.store.object_store import ObjectPath, as_location
from mscam_dask.errors import DataError


@dataclass(frozen=True)
class Format:
    """A file format: its name for messages, whether a path is in it, and its reader."""

    name: str
    matches: Callable[[Path], bool]
    read: Callable[
        [Source, Selection, ExitStack], SourceContents | Sequence[SourceContents | Table]
    ]


def _ends_with(*suffixes: str) -> Callable[[Path], bool]:
    return lambda path: path.is_file() and path.suffix.lower() in suffixes


def _is_zarr(path: Path) -> bool:
    return any((path / name).is_file() for name in ("zarr.json", ".zgroup", ".zarray"))


def _is_text(path: Path) -> bool:
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in COMPRESSIONS]
    return path.is_file() and not {*suffixes[-1:]} & {*_NOT_TEXT}


# Suffixes of files that are never read as tables of text.
_NOT_TEXT = (
    *(".pkl", ".pickle", ".joblib", ".pt", ".rds", ".rdata", ".rda", ".xlsx", ".xls", ".ods"),
    *(".feather", ".arrow", ".h5", ".hdf5", ".h5ad", ".h5mu", ".loom", ".mtx", ".arff"),
    *(".zip", ".7z", ".tar", ".tgz", ".svm", ".libsvm", ".svmlight", ".json", ".jsonl", ".xml"),
    *(".html", ".vcf", ".sav", ".dta", ".sas7bdat", ".xpt", ".orc"),
)

# Tried in this order; a file that matches no other format is whitespace-separated text.
FORMATS: tuple[Format, ...] = (
    Format("NumPy archive (.npz)", _ends_with(".npz"), read_npz),
    Format("NumPy array (.npy)", _ends_with(".npy"), read_npy),
    Format("MATLAB (.mat)", _ends_with(".mat"), read_mat),
    Format("Parquet (.parquet)", _ends_with(".parquet", ".pq"), arrow_tables),
    Format("Feather (.feather, .arrow)", _ends_with(".feather", ".arrow"), arrow_tables),
    Format("Excel (.xlsx, .xlsm, .xls)", _ends_with(".xlsx", ".xlsm", ".xls"), excel_tables),
    Format("AnnData (.h5ad)", _ends_with(".h5ad"), read_omics),
    Format("MuData (.h5mu)", _ends_with(".h5mu"), read_omics),
    Format("NetCDF (.nc)", _ends_with(".nc", ".nc4", ".cdf", ".netcdf"), read_netcdf),
    Format("Zarr directory", _is_zarr, read_zarr),
    Format(
        "text (.csv, .tsv, .txt, GCT; also .csv.gz, .zst, .bz2, .xz)",
        _is_text,
        lambda source, *_: [text_table(source)],
    ),
)


def read_sources(
    sources: Sequence[Source], selection: Selection, stack: ExitStack
) -> list[SourceContents]:
    """Read sources; roles of columns are decided for all together. `stack` keeps files of lazy views open."""
    found = [item for source in sources for item in _opened(source, selection, stack)]
    tables = [item for item in found if isinstance(item, Table)]
    contents = iter(read_tables(tables, selection))
    return [next(contents) if isinstance(item, Table) else item for item in found]


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
        for candidate in FORMATS:
            if candidate.matches(path):
                found = candidate.read(source, selection, stack)
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
        f"{path} is in no format that can be read; allowed are "
        f"{', '.join(candidate.name for candidate in FORMATS)}. Convert it to one of them (pandas, SciPy and anndata "
        f"read others), and unpack what is compressed.{hint}"
    )

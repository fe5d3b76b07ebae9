"""The UCI Multiple Features digits: 2000 handwritten numerals in six feature families.

References
----------
M. van Breukelen, R. P. W. Duin, D. M. J. Tax, J. E. den Hartog, "Handwritten digit
recognition by combined classifiers", Kybernetika 34(4), 1998. R. Duin, "Multiple Features",
UCI Machine Learning Repository, doi:10.24432/C5HC70.
"""

from __future__ import annotations

import os
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.store.filesystem import LOCAL, rename_durably, unlink_quietly
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows, view_digest
from mscam_dask.errors import DataError, StoreCorruptError

__all__ = ["MFEAT_FILES", "fetch_mfeat", "load_mfeat", "mfeat_file"]

_PER_CLASS = 200
_N_SAMPLES = 10 * _PER_CLASS
_SOURCE = "https://archive.ics.uci.edu/dataset/72/multiple+features"


@dataclass(frozen=True)
class _Table:
    """One of the six tables: width, OpenML data id, fingerprint of the published values."""

    n_columns: int
    openml_id: int
    fingerprint: float


_TABLES = {
    "fac": _Table(216, 12, 83554.79218701653),
    "fou": _Table(76, 14, 26.639866691518225),
    "kar": _Table(64, 16, -372.2989744837986),
    "mor": _Table(6, 18, -123831.21018301538),
    "pix": _Table(240, 20, -587.1450361820268),
    "zer": _Table(47, 22, 10648.837735447623),
}

MFEAT_FILES: tuple[str, ...] = tuple(f"mfeat-{name}" for name in _TABLES)
"""Names of the six text files of the UCI archive."""


def load_mfeat(directory: str | Path) -> MultiViewData:
    """Read the six UCI text files mfeat-fac, -fou, -kar, -mor, -pix and -zer.

    Parameters
    ----------
    directory
        Where they are; a .txt ending is accepted.

    Returns
    -------
    MultiViewData
        Views "fac" (216 profile correlations), "fou" (76 Fourier coefficients), "kar" (64
        Karhunen-Loeve coefficients), "mor" (6 morphological features), "pix" (240 pixel
        averages), "zer" (47 Zernike moments), and labels: 200 samples of 0, then of 1, ...

    Raises
    ------
    DataError
        When a file is missing, not numeric, or not 2000 rows of the published width.
    """
    root = Path(directory)
    missing = [f"mfeat-{name}" for name in _TABLES if mfeat_file(root, name) is None]
    if missing:
        raise DataError(
            f"{root} has no {', '.join(missing)}; needed are the six files {list(MFEAT_FILES)}. "
            f"Download the archive from {_SOURCE} and unpack it there."
        )
    return _labelled({name: _read_text(mfeat_file(root, name) or root, name) for name in _TABLES})


def mfeat_file(directory: Path, name: str) -> Path | None:
    """Path of one table ("fac", ...) in a directory, None when it is not there."""
    for file in (directory / f"mfeat-{name}", directory / f"mfeat-{name}.txt"):
        if file.is_file():
            return file
    return None


def fetch_mfeat(cache: str | Path) -> MultiViewData:
    """Get the six tables from OpenML once, and from a cached file afterwards.

    Parameters
    ----------
    cache
        Directory for mfeat.npz and OpenML's own files; made if needed.

    Returns
    -------
    MultiViewData
        As from `load_mfeat`.

    Raises
    ------
    DataError
        When OpenML cannot be reached (the message says which files to put where), or what it
        sends is not the published tables in the published order.
    StoreCorruptError
        When the cached file is damaged.

    Notes
    -----
    The tables of OpenML (data ids 12, 14, ..., 22) carry no sample ids, and may be rounded to
    six decimals. They are accepted when the sums of cos(i) (1 + j/d) x_ij over rows i and
    columns j equal those of the UCI files within 1e-7 of the sum of magnitudes: rounding
    changes that by less than 1e-8, swapping two neighboring rows by more than 1e-6, so the
    rows of the six tables are known to belong together. The cached file records the SHA-256
    of each table.
    """
    root = Path(cache)
    file = root / "mfeat.npz"
    if file.is_file():
        return _labelled(_read_cache(file))
    tables = {name: _download(name, root) for name in _TABLES}
    for name, values in tables.items():
        _check_fingerprint(name, values)
    _write_cache(file, tables)
    return _labelled(tables)


def _labelled(tables: dict[str, NDArray[np.float64]]) -> MultiViewData:
    return MultiViewData(
        views=tuple(ArrayRows(values, name) for name, values in tables.items()),
        labels=np.repeat(np.arange(10, dtype=np.int64), _PER_CLASS),
        label_names=tuple(str(digit) for digit in range(10)),
    )


def _check_shape(values: NDArray[np.float64], name: str, where: str) -> NDArray[np.float64]:
    expected = (_N_SAMPLES, _TABLES[name].n_columns)
    if values.shape != expected:
        raise DataError(
            f"{where} has shape {values.shape}; the published table mfeat-{name} has {expected}. "
            f"Download it again from {_SOURCE}."
        )
    return values


def _read_text(file: Path, name: str) -> NDArray[np.float64]:
    try:
        values = np.loadtxt(file, dtype=np.float64, ndmin=2)
    except (ValueError, UnicodeDecodeError) as error:
        raise DataError(
            f"{file} is not a table of whitespace-separated numbers: {error}. Download it again "
            f"from {_SOURCE}."
        ) from error
    return _check_shape(values, name, str(file))


def _download(name: str, cache: Path) -> NDArray[np.float64]:
    from sklearn.datasets import fetch_openml

    table = _TABLES[name]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "network error, retrying": the last one is raised
            bunch = fetch_openml(
                data_id=table.openml_id,
                data_home=str(cache),
                as_frame=False,
                parser="liac-arff",
            )
    except (OSError, ValueError) as error:
        raise DataError(
            f"OpenML table {table.openml_id} (mfeat-{name}) could not be fetched: {error}. Without "
            f"a network, download {', '.join(MFEAT_FILES)} from {_SOURCE}, put them into one "
            "directory and give that directory instead (load_mfeat, or the path option of the "
            "pipeline)."
        ) from error
    values = np.asarray(bunch.data, dtype=np.float64)
    return _check_shape(values, name, f"OpenML table {table.openml_id}")


def _check_fingerprint(name: str, values: NDArray[np.float64]) -> None:
    n_samples, n_columns = values.shape
    row_weights = np.cos(np.arange(n_samples))
    column_weights = 1 + np.arange(n_columns) / n_columns
    found = float(row_weights @ values @ column_weights)
    magnitude = float(np.abs(row_weights) @ np.abs(values) @ column_weights)
    expected = _TABLES[name].fingerprint
    if not abs(found - expected) <= 1e-7 * magnitude:
        raise DataError(
            f"OpenML table {_TABLES[name].openml_id} is not the published mfeat-{name} (fingerprint "
            f"{found:.12g}, expected {expected:.12g}): values or order of rows differ, so its rows "
            f"cannot be matched with the other tables. Use the UCI files from {_SOURCE}."
        )


def _write_cache(file: Path, tables: dict[str, NDArray[np.float64]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.{os.getpid()}.partial.npz")
    arrays = {f"view_{index}": values for index, values in enumerate(tables.values())}
    digests = [view_digest(ArrayRows(values, name)) for name, values in tables.items()]
    try:
        np.savez_compressed(
            partial,
            allow_pickle=False,
            view_names=np.array(list(tables)),
            kind=np.array(["features"] * len(tables)),
            labels=np.repeat(np.arange(10, dtype=np.int64), _PER_CLASS),
            digests=np.array(digests),
            **arrays,
        )
        LOCAL.sync(partial)
        rename_durably(LOCAL, partial, file)
    finally:
        unlink_quietly(LOCAL, partial)


def _read_cache(file: Path) -> dict[str, NDArray[np.float64]]:
    tables = {}
    try:
        # Opened here: np.load leaves a damaged archive open.
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            digests = archive["digests"].tolist()
            for index, name in enumerate(_TABLES):
                values = np.asarray(archive[f"view_{index}"], dtype=np.float64)
                if view_digest(ArrayRows(values, name)) != digests[index]:
                    raise ValueError(f"table mfeat-{name} has another digest than recorded")
                tables[name] = values
    except (OSError, ValueError, KeyError, EOFError, IndexError, zipfile.BadZipFile) as error:
        raise StoreCorruptError(
            f"The cached file {file} is damaged: {error}. Delete it; it is fetched again."
        ) from error
    return tables

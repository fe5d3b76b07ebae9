"""UCI Multiple Features as published: 2000 handwritten numerals in six feature families.

References
----------
M. van Breukelen, R. P. W. Duin, D. M. J. Tax, J. E. den Hartog, "Handwritten digit
recognition by combined classifiers", Kybernetika 34(4), 1998. R. Duin, "Multiple Features",
UCI Machine Learning Repository, doi:10.24432/C5HC70.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.errors import DataError

_SOURCE = "https://archive.ics.uci.edu/dataset/72/multiple+features"

Table = NDArray[np.float64]


# Columns of each of the six tables, and its data id at OpenML.
_MFEAT = {
    "fac": (216, 12),
    "fou": (76, 14),
    "kar": (64, 16),
    "mor": (6, 18),
    "pix": (240, 20),
    "zer": (47, 22),
}

_FILES = tuple(f"mfeat-{name}" for name in _MFEAT)


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
    files = {name: _file(Path(directory), name) for name in _MFEAT}
    missing = [f"mfeat-{name}" for name, file in files.items() if file is None]
    if missing:
        raise DataError(
            f"{directory} has no {', '.join(missing)}; needed are the six files {list(_FILES)}. "
            f"Download the archive from {_SOURCE} and unpack it there."
        )
    tables = {name: _table(file) for name, file in files.items() if file is not None}
    return _mfeat_data(tables, {name: str(file) for name, file in files.items()})


def _file(directory: Path, name: str) -> Path | None:
    """Path of one table ("fac", ...) in a directory, None when it is not there."""
    files = (directory / f"mfeat-{name}", directory / f"mfeat-{name}.txt")
    return next((file for file in files if file.is_file()), None)


def fetch_mfeat(cache: str | Path) -> MultiViewData:
    """Get the six tables from OpenML once, and from scikit-learn's cache of them afterwards.

    Parameters
    ----------
    cache
        Directory for what OpenML sends; made if needed.

    Returns
    -------
    MultiViewData
        As from `load_mfeat`.

    Raises
    ------
    DataError
        When OpenML cannot be reached (the message says which files to put where), or what it
        sends is not the published tables in the published order.

    Notes
    -----
    The tables of OpenML (data ids 12, 14, ..., 22, which never change) carry no sample ids, may be rounded to
    six decimals, and have their rows in the order of the UCI files. scikit-learn compares what it gets with
    the checksum of OpenML.
    """
    from sklearn.datasets import fetch_openml

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "network error, retrying": the last one is raised
            tables = {
                name: np.asarray(
                    fetch_openml(data_id=data_id, data_home=str(cache), as_frame=False).data,
                    dtype=np.float64,
                )
                for name, (_, data_id) in _MFEAT.items()
            }
    except (OSError, ValueError) as error:
        raise DataError(
            f"The mfeat tables could not be fetched from OpenML: {error}. Without a network, download "
            f"{', '.join(_FILES)} from {_SOURCE}, put them into one directory and give that "
            "directory instead (load_mfeat, or the path option of the pipeline)."
        ) from error
    return _mfeat_data(tables, dict.fromkeys(_MFEAT, "OpenML's table"))


def _mfeat_data(tables: dict[str, Table], where: dict[str, str]) -> MultiViewData:
    for name, values in tables.items():
        n_columns, _ = _MFEAT[name]
        if values.shape != (2000, n_columns):
            raise DataError(
                f"{where[name]} has shape {values.shape}; the published table mfeat-{name} has "
                f"{(2000, n_columns)}. Download it again from {_SOURCE}."
            )
    return MultiViewData(
        views=tuple(ArrayRows(values, name) for name, values in tables.items()),
        labels=np.repeat(np.arange(10, dtype=np.int64), 200),
        label_names=tuple(str(digit) for digit in range(10)),
    )


def _table(path: Path) -> Table:
    try:
        return np.loadtxt(path, dtype=np.float64, ndmin=2)
    except (ValueError, UnicodeDecodeError, OSError) as error:
        raise DataError(
            f"{path} is not a table of whitespace-separated numbers: {error}. Download it again."
        ) from error

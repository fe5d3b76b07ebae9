"""Data sets as published: UCI Multiple Features and Oxford Flowers 17.

UCI Multiple Features: 2000 handwritten numerals in six feature families.

Oxford Flowers 17: χ² distance matrices in two MATLAB files, each 1360 x 1360.
distancematrices17gcfeat06.mat has D_colourgc, D_shapegc and D_texturegc (CVPR 2006, the three
views of the paper), distancematrices17itfeat08.mat has D_hog, D_hsv, D_siftint and D_siftbdy.
The files have no labels: images are in the order of their classes, 80 each.

References
----------
M. van Breukelen, R. P. W. Duin, D. M. J. Tax, J. E. den Hartog, "Handwritten digit
recognition by combined classifiers", Kybernetika 34(4), 1998. R. Duin, "Multiple Features",
UCI Machine Learning Repository, doi:10.24432/C5HC70.

M.-E. Nilsback, A. Zisserman, "A visual vocabulary for flower classification", CVPR 2006;
"Automated flower classification over a large number of classes", ICVGIP 2008.
https://www.robots.ox.ac.uk/~vgg/data/flowers/17/
"""

from __future__ import annotations

import warnings
from contextlib import ExitStack
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

MFEAT_FILES: tuple[str, ...] = tuple(f"mfeat-{name}" for name in _MFEAT)
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
    files = {name: mfeat_file(Path(directory), name) for name in _MFEAT}
    missing = [f"mfeat-{name}" for name, file in files.items() if file is None]
    if missing:
        raise DataError(
            f"{directory} has no {', '.join(missing)}; needed are the six files {list(MFEAT_FILES)}. "
            f"Download the archive from {_SOURCE} and unpack it there."
        )
    tables = {name: _table(file) for name, file in files.items() if file is not None}
    return _mfeat_data(tables, {name: str(file) for name, file in files.items()})


def mfeat_file(directory: Path, name: str) -> Path | None:
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
            f"{', '.join(MFEAT_FILES)} from {_SOURCE}, put them into one directory and give that "
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


FLOWERS17_FILES = ("distancematrices17gcfeat06.mat", "distancematrices17itfeat08.mat")
"""Names of the two published files; either is enough."""


def flowers17_files(path: Path) -> tuple[Path, ...]:
    """Return the published files that a path is, or that a directory has; empty for none."""
    if path.is_file():
        return (path,) if path.name in FLOWERS17_FILES else ()
    return tuple(path / name for name in FLOWERS17_FILES if (path / name).is_file())


def load_flowers17(path: str | Path) -> MultiViewData:
    """Read the matrices D_* of the published files.

    Parameters
    ----------
    path
        One of the files, or a directory with one or both.

    Returns
    -------
    MultiViewData
        Distance views "colourgc", "shapegc", ... in the files' order, and labels: a seventeenth
        of the samples in class 0, as many in class 1, ...

    Raises
    ------
    DataError
        When there is no such file, a file is damaged, or its matrices are not square, of one
        size, with a multiple of 17 rows.
    """
    files = flowers17_files(Path(path))
    if not files:
        raise DataError(
            f"{path} has neither {' nor '.join(FLOWERS17_FILES)}. Download them from "
            "https://www.robots.ox.ac.uk/~vgg/data/flowers/17/ and give the directory they are in."
        )
    views = [view for file in files for view in _distances(file)]
    n_samples = views[0].shape[0]
    odd = [view for view in views if view.shape != (n_samples, n_samples)]
    if odd or n_samples % 17:
        listing = ", ".join(f"{view.name} {view.shape}" for view in views)
        raise DataError(
            f"{path}: matrices are {listing}; the published ones are square, of one size, with as "
            f"many images of each of 17 classes (1360 x 1360). Download the files again."
        )
    return MultiViewData(
        views=tuple(views),
        labels=np.repeat(np.arange(17, dtype=np.int64), n_samples // 17),
    )


def _distances(file: Path) -> list[ArrayRows]:
    from mscam_dask.data.readers.base import Source, unreadable
    from mscam_dask.data.readers.matlab import variables_of

    with unreadable(Source(file), "a MATLAB file"), ExitStack() as stack:
        content = variables_of(Source(file), stack)
    matrices = {
        name.removeprefix("D_"): values for name, values in content.items() if name.startswith("D_")
    }
    if not matrices:
        raise DataError(
            f"{file} has {list(content)} and no matrix D_*, as the published files have."
        )
    return [ArrayRows(np.asarray(values), name, "distance") for name, values in matrices.items()]

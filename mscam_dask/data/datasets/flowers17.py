"""Oxford Flowers 17 as published: χ² distance matrices in two MATLAB files.

distancematrices17gcfeat06.mat has D_colourgc, D_shapegc and D_texturegc (CVPR 2006, the three
views of the paper), distancematrices17itfeat08.mat has D_hog, D_hsv, D_siftint and D_siftbdy.
Each is 1360 x 1360. The files have no labels: images are in the order of their classes, 80 each.

References
----------
M.-E. Nilsback, A. Zisserman, "A visual vocabulary for flower classification", CVPR 2006;
"Automated flower classification over a large number of classes", ICVGIP 2008.
https://www.robots.ox.ac.uk/~vgg/data/flowers/17/
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.errors import DataError

__all__ = ["FLOWERS17_FILES", "flowers17_files", "load_flowers17"]

FLOWERS17_FILES = ("distancematrices17gcfeat06.mat", "distancematrices17itfeat08.mat")
"""Names of the two published files; either is enough."""

_CLASSES = 17


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
    views = [view for file in files for view in _matrices(file)]
    n_samples = views[0].shape[0]
    odd = [view for view in views if view.shape != (n_samples, n_samples)]
    if odd or n_samples % _CLASSES:
        listing = ", ".join(f"{view.name} {view.shape}" for view in views)
        raise DataError(
            f"{path}: matrices are {listing}; the published ones are square, of one size, with as "
            f"many images of each of {_CLASSES} classes (1360 x 1360). Download the files again."
        )
    return MultiViewData(
        views=tuple(views),
        labels=np.repeat(np.arange(_CLASSES, dtype=np.int64), n_samples // _CLASSES),
    )


def _matrices(file: Path) -> list[ArrayRows]:
    from scipy.io import loadmat

    from mscam_dask.data.readers.base import Source, unreadable
    from mscam_dask.data.readers.matlab import check_elements

    source = Source(file)
    with unreadable(source, "a MATLAB file"):
        check_elements(source)
        content: dict[str, Any] = loadmat(file)
    found = [
        ArrayRows(np.asarray(values), name.removeprefix("D_"), "distance")
        for name, values in content.items()
        if name.startswith("D_")
    ]
    if not found:
        names = [name for name in content if not name.startswith("__")]
        raise DataError(f"{file} has {names} and no matrix D_*, as the published files have.")
    return found

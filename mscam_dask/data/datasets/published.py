"""Data sets as published: UCI Multiple Features, Oxford Flowers 17 and NUS-WIDE.

UCI Multiple Features: 2000 handwritten numerals in six feature families.

Oxford Flowers 17: χ² distance matrices in two MATLAB files, each 1360 x 1360.
distancematrices17gcfeat06.mat has D_colourgc, D_shapegc and D_texturegc (CVPR 2006, the three
views of the paper), distancematrices17itfeat08.mat has D_hog, D_hsv, D_siftint and D_siftbdy.
The files have no labels: images are in the order of their classes, 80 each.

NUS-WIDE and NUS-WIDE-Object: a directory, with subdirectories of any names, has for each feature
a table Train_<F>.dat and Test_<F>.dat (also <F>_Train.dat, Train_Normalized_<F>.dat,
BoW_Train_int.dat, or <F>.dat where there is one table for all), and for each concept a column of 0
and 1 in Labels_<concept>_Train.txt and ..._Test.txt, or one list of class numbers in a file with
"label" in its name. Row i of every file is image i.

References
----------
M. van Breukelen, R. P. W. Duin, D. M. J. Tax, J. E. den Hartog, "Handwritten digit
recognition by combined classifiers", Kybernetika 34(4), 1998. R. Duin, "Multiple Features",
UCI Machine Learning Repository, doi:10.24432/C5HC70.

M.-E. Nilsback, A. Zisserman, "A visual vocabulary for flower classification", CVPR 2006;
"Automated flower classification over a large number of classes", ICVGIP 2008.
https://www.robots.ox.ac.uk/~vgg/data/flowers/17/

T.-S. Chua, J. Tang, R. Hong, H. Li, Z. Luo, Y. Zheng, "NUS-WIDE: a real-world web image database
from National University of Singapore", CIVR 2009, doi:10.1145/1646396.1646452.
"""

from __future__ import annotations

import re
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


NUS_WIDE_FEATURES = {
    "ch": "CH",
    "cm": "CM",
    "cm55": "CM",
    "corr": "CORR",
    "edh": "EDH",
    "wt": "WT",
    "bow": "BOW_SIFT",
}
"""Word of a file name to view: color histogram (64 columns), block-wise color moments (225),
color auto-correlogram (144), edge directions (73), wavelet texture (128), bag of words (500)."""

_PARTS = ("train", "all", "test")  # in the order in which the samples are put


_Files = dict[str, dict[str, Path]]
"""View or concept, then part ("train", "test", "all"), to file."""


def is_nus_wide(path: Path) -> bool:
    """Return whether a directory has tables of at least two of the features."""
    return path.is_dir() and len(_nus_wide_files(path, (".dat",))[0]) > 1


def load_nus_wide(directory: str | Path) -> MultiViewData:
    """Read the features and the concepts of a directory as published.

    Returns
    -------
    MultiViewData
        Views in the order of `NUS_WIDE_FEATURES`, the images of Train before those of Test,
        and for labels the concept. Only images of exactly one concept are kept, those of none
        or of several left out. To draw 100 images of each, see
        `mscam_dask.data.views.multi_view.sample_per_class`.

    Raises
    ------
    DataError
        When tables or concepts are missing, not numeric, or not of the same images.
    """
    root = Path(directory)
    features, concepts = _nus_wide_files(root, (".dat", ".txt"))
    views = {
        name: {part: _table(features[name][part]) for part in _PARTS if part in features[name]}
        for name in dict.fromkeys(NUS_WIDE_FEATURES.values())
        if name in features
    }
    if not views:
        raise DataError(
            f"{root} has no tables of NUS-WIDE features, such as Train_Normalized_CH.dat. Give "
            "the directory in which the low-level features were unpacked."
        )
    first, parts = next(iter(views.items()))
    for name, tables in views.items():
        shapes = {part: table.shape for part, table in tables.items()}
        n_images = {part: len(table) for part, table in parts.items()}
        is_one_width = len({width for _, width in shapes.values()}) == 1
        if {part: rows for part, (rows, _) in shapes.items()} != n_images or not is_one_width:
            raise DataError(
                f"{root}: {first} has the images {n_images}, {name} has the tables {shapes}; every "
                "feature needs the same images, in tables of one width. Unpack the files again."
            )
    membership, names = _membership(root, concepts, list(parts), sum(map(len, parts.values())))
    kept = np.flatnonzero(membership.sum(axis=1) == 1)
    if not kept.size:
        raise DataError(
            f"{root}: none of {len(membership)} images has exactly one of {len(names)} concepts, so "
            "there is nothing to cluster by them. Keep the label files of the wanted concepts."
        )
    return MultiViewData(
        views=tuple(
            ArrayRows(np.concatenate([*tables.values()])[kept], name)
            for name, tables in views.items()
        ),
        labels=membership[kept].argmax(axis=1).astype(np.int64),
        label_names=names,
    )


def _nus_wide_files(root: Path, suffixes: tuple[str, ...]) -> tuple[_Files, _Files]:
    """Files of the features, and of the concepts."""
    features: _Files = {}
    concepts: _Files = {}
    for path in sorted(root.rglob("*")):
        if path.suffix.lower() not in suffixes or not path.is_file():
            continue
        words = re.split(r"[^a-z0-9]+", path.stem.lower())
        part = next((word for word in words if word in ("train", "test")), "all")
        view = next((NUS_WIDE_FEATURES[word] for word in words if word in NUS_WIDE_FEATURES), None)
        if view is not None and "label" not in path.name.lower():
            other = features.setdefault(view, {}).setdefault(part, path)
            if other != path:
                raise DataError(
                    f"{root} has {view} ({part}) twice: {other.name} and {path.name}. Keep one of them."
                )
        elif re.search("label|truth", str(path.relative_to(root)).lower()):
            ignored = ("train", "test", "labels", "label", "lite")
            concept = "_".join(word for word in words if word not in ignored)
            concepts.setdefault(concept, {})[part] = path
    return features, concepts


def _membership(
    root: Path, concepts: _Files, parts: list[str], n_images: int
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """(n, concepts) of 0 and 1, and the names of the concepts."""
    columns: dict[str, Table] = {}
    for name, files in sorted(concepts.items()):
        tables = [_table(files[part]) for part in parts if part in files]
        # A matrix of all concepts repeats their columns.
        if len(tables) == len(parts) and all(min(table.shape) == 1 for table in tables):
            columns[name] = np.concatenate([table.ravel() for table in tables])
    if not columns:
        raise DataError(
            f"{root} has no labels of the images ({' and '.join(parts)}), such as "
            "Labels_bear_Train.txt with one 0 or 1 a line. Unpack the ground truth beside the "
            "features."
        )
    lengths = {name: len(column) for name, column in columns.items() if len(column) != n_images}
    if lengths:
        raise DataError(
            f"{root}: labels {lengths} for {n_images} images; there must be one for each. Unpack them again."
        )
    odd = [name for name, column in columns.items() if not np.isin(column, (0, 1)).all()]
    if odd and len(columns) == 1:
        classes, codes = np.unique(columns[odd[0]], return_inverse=True)
        return np.eye(len(classes), dtype=np.int64)[codes], tuple(f"{one:g}" for one in classes)
    if odd:
        raise DataError(
            f"{root}: labels of {odd} have values other than 0 and 1; allowed is a column of 0 and "
            "1 for each concept, or a single list of class numbers."
        )
    return np.stack([*columns.values()], axis=1).astype(np.int64), tuple(columns)

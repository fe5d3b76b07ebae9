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

import os
import re
import warnings
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.store.filesystem import LOCAL, remove_quietly, rename_durably
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows, view_digest
from mscam_dask.errors import DataError, StoreCorruptError

__all__ = [
    "FLOWERS17_FILES",
    "MFEAT_FILES",
    "NUS_WIDE_FEATURES",
    "fetch_mfeat",
    "flowers17_files",
    "is_nus_wide",
    "load_flowers17",
    "load_mfeat",
    "load_nus_wide",
    "mfeat_file",
]

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
        rename_durably(partial, file)
    finally:
        remove_quietly(partial)


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

_SPLITS = ("train", "test")
_PARTS = ("train", "all", "test")  # in the order in which the samples are put


@dataclass(frozen=True)
class _File:
    """File with the words of its name."""

    path: Path
    words: tuple[str, ...]

    @property
    def part(self) -> str:
        """Return "train", "test" or "all"."""
        return next((word for word in self.words if word in _SPLITS), "all")

    @property
    def feature(self) -> str | None:
        """Name of the view, None for a file of something else."""
        return next(
            (NUS_WIDE_FEATURES[word] for word in self.words if word in NUS_WIDE_FEATURES), None
        )

    @property
    def concept(self) -> str:
        """Name of the concept: the words of the file name that mean nothing else."""
        ignored = (*_SPLITS, "labels", "label", "lite")
        return "_".join(word for word in self.words if word not in ignored)


def is_nus_wide(path: Path) -> bool:
    """Return whether a directory has tables of at least two of the features."""
    if not path.is_dir():
        return False
    return len({file.feature for file in _files(path, (".dat",)) if file.feature}) >= 2


def load_nus_wide(directory: str | Path) -> MultiViewData:
    """Read the features and the concepts of a directory as published.

    Returns
    -------
    MultiViewData
        Views in the order of `NUS_WIDE_FEATURES`, the images of Train before those of Test,
        and for labels the concept. Only images of exactly one concept are kept, those of none
        or of several left out. To draw 100 images of each, see
        `mscam_dask.data.views.sampling.sample_per_class`.

    Raises
    ------
    DataError
        When tables or concepts are missing, not numeric, or not of the same images.
    """
    root = Path(directory)
    views = _features(root)
    sizes = {part: len(rows) for part, rows in next(iter(views.values())).items()}
    membership, names = _concepts(root, sizes)
    counts = membership.sum(axis=1)
    kept = np.flatnonzero(counts == 1)
    if not kept.size:
        raise DataError(
            f"{root}: none of {len(counts)} images has exactly one of {len(names)} concepts, so "
            "there is nothing to cluster by them. Keep the label files of the wanted concepts."
        )
    labels = membership[kept].argmax(axis=1)
    return MultiViewData(
        views=tuple(
            ArrayRows(np.concatenate([tables[part] for part in sizes])[kept], name)
            for name, tables in views.items()
        ),
        labels=labels.astype(np.int64),
        label_names=names,
    )


def _files(root: Path, endings: Iterable[str]) -> list[_File]:
    return [
        _File(path, tuple(re.split(r"[^a-z0-9]+", path.stem.lower())))
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.suffix.lower() in endings
    ]


def _features(root: Path) -> dict[str, dict[str, NDArray[np.float64]]]:
    """View to part to table."""
    found: dict[str, dict[str, Path]] = {}
    for file in _files(root, (".dat", ".txt")):
        if file.feature is None or "label" in file.path.name.lower():
            continue
        parts = found.setdefault(file.feature, {})
        if file.part in parts:
            raise DataError(
                f"{root} has {file.feature} ({file.part}) twice: {parts[file.part].name} and "
                f"{file.path.name}. Keep one of them."
            )
        parts[file.part] = file.path
    order = [name for name in dict.fromkeys(NUS_WIDE_FEATURES.values()) if name in found]
    if not order:
        raise DataError(
            f"{root} has no tables of NUS-WIDE features, such as Train_Normalized_CH.dat. Give "
            "the directory in which the low-level features were unpacked."
        )
    expected = sorted(found[order[0]])
    for name in order:
        if sorted(found[name]) != expected:
            raise DataError(
                f"{root}: {order[0]} has the tables {expected}, {name} has {sorted(found[name])}; "
                "every feature needs the same. Unpack the missing ones."
            )
    tables = {
        name: {part: _table(found[name][part]) for part in _PARTS if part in found[name]}
        for name in order
    }
    _check_sizes(root, tables)
    return tables


def _check_sizes(root: Path, tables: dict[str, dict[str, NDArray[np.float64]]]) -> None:
    first = next(iter(tables))
    for name, parts in tables.items():
        if len({rows.shape[1] for rows in parts.values()}) > 1:
            widths = {part: rows.shape[1] for part, rows in parts.items()}
            raise DataError(f"{root}: the tables of {name} have {widths} columns; allowed is one.")
        for part, rows in parts.items():
            if len(rows) != len(tables[first][part]):
                raise DataError(
                    f"{root}: {first} ({part}) has {len(tables[first][part])} images, {name} has "
                    f"{len(rows)}; row i of every table is image i. Unpack the files again."
                )


def _table(path: Path) -> NDArray[np.float64]:
    try:
        return np.loadtxt(path, dtype=np.float64, ndmin=2)
    except (ValueError, UnicodeDecodeError, OSError) as error:
        raise DataError(f"{path} is not a table of numbers: {error}. Unpack it again.") from error


def _concepts(root: Path, sizes: dict[str, int]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """(n, concepts) of 0 and 1, and the names of the concepts."""
    found: dict[str, dict[str, NDArray[np.float64]]] = {}
    for file in _files(root, (".txt", ".dat")):
        if file.feature is not None and "label" not in file.path.name.lower():
            continue
        if not _says_labels(file.path, root):
            continue
        column = _table(file.path)
        if column.shape[1] != 1 and len(column) != 1:
            continue  # the matrix of all concepts, which the columns repeat
        found.setdefault(file.concept, {})[file.part] = column.ravel()
    columns = {
        name: np.concatenate([parts[part] for part in sizes])
        for name, parts in sorted(found.items())
        if set(parts) == set(sizes)
    }
    if not columns:
        raise DataError(
            f"{root} has no labels of the images ({' and '.join(sizes)}), such as "
            "Labels_bear_Train.txt with one 0 or 1 a line. Unpack the ground truth beside the "
            "features."
        )
    wrong = {
        name: len(column) for name, column in columns.items() if len(column) != sum(sizes.values())
    }
    if wrong:
        raise DataError(
            f"{root}: labels {wrong} for {sum(sizes.values())} images; there must be one for each."
        )
    if len(columns) == 1 and not np.isin(next(iter(columns.values())), (0, 1)).all():
        classes, codes = np.unique(next(iter(columns.values())), return_inverse=True)
        return np.eye(len(classes), dtype=np.int64)[codes], tuple(f"{one:g}" for one in classes)
    odd = [name for name, column in columns.items() if not np.isin(column, (0, 1)).all()]
    if odd:
        raise DataError(
            f"{root}: labels of {odd} have values other than 0 and 1; allowed is a column of 0 and "
            "1 for each concept, or a single list of class numbers."
        )
    return np.stack(list(columns.values()), axis=1).astype(np.int64), tuple(columns)


def _says_labels(path: Path, root: Path) -> bool:
    words = str(path.relative_to(root)).lower()
    return "label" in words or "truth" in words

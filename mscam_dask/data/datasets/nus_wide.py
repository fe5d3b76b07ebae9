"""NUS-WIDE and NUS-WIDE-Object as published: text files of low-level features and of concepts.

A directory, with subdirectories of any names, has for each feature a table Train_<F>.dat and
Test_<F>.dat (also <F>_Train.dat, Train_Normalized_<F>.dat, BoW_Train_int.dat, or <F>.dat where
there is one table for all), and for each concept a column of 0 and 1 in Labels_<concept>_Train.txt
and ..._Test.txt, or one list of class numbers in a file with "label" in its name. Row i of every
file is image i.

References
----------
T.-S. Chua, J. Tang, R. Hong, H. Li, Z. Luo, Y. Zheng, "NUS-WIDE: a real-world web image database
from National University of Singapore", CIVR 2009, doi:10.1145/1646396.1646452.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.errors import DataError

__all__ = ["NUS_WIDE_FEATURES", "is_nus_wide", "load_nus_wide"]

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

    Parameters
    ----------
    directory

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

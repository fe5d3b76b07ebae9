"""Smaller data from larger ones: as many samples of every class."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.multiview import MultiViewData
from mscam_dask.data.sources import ArrayRows, RowSource, row_ranges
from mscam_dask.errors import DataError

__all__ = ["sample_per_class"]


def sample_per_class(
    data: MultiViewData, per_class: int, *, rng: np.random.Generator
) -> MultiViewData:
    """Draw the same number of samples of every class, without replacement, in the given order.

    The protocol of NUS-WIDE-Object in the literature: 100 images of each of its 31 classes.

    Parameters
    ----------
    data
        With labels; read once, by blocks.
    per_class
        Samples of each class, at least 1.
    rng

    Returns
    -------
    MultiViewData
        In memory, samples in the order of `data`.

    Raises
    ------
    DataError
        When there are no labels, or a class has fewer samples.
    """
    if data.labels is None:
        raise DataError("There are no labels, so no samples can be drawn by class.")
    if per_class < 1:
        raise DataError(f"per_class={per_class}; allowed is at least 1 sample of each class.")
    classes, sizes = np.unique(data.labels, return_counts=True)
    small = [
        f"{_name(data, label)} ({size})"
        for label, size in zip(classes.tolist(), sizes.tolist(), strict=True)
        if size < per_class
    ]
    if small:
        raise DataError(
            f"per_class={per_class}, but {len(small)} of {len(classes)} classes have fewer samples: "
            f"{', '.join(small[:5])}. Allowed here are 1 to {int(sizes.min())}."
        )
    chosen = np.sort(
        np.concatenate(
            [
                rng.choice(np.flatnonzero(data.labels == label), size=per_class, replace=False)
                for label in classes
            ]
        )
    )
    ids = data.sample_ids
    return dataclasses.replace(
        data,
        views=tuple(_taken(view, chosen) for view in data.views),
        labels=data.labels[chosen],
        sample_ids=None if ids is None else tuple(ids[index] for index in chosen),
    )


def _name(data: MultiViewData, label: int) -> str:
    names = data.label_names
    return names[label] if names is not None and 0 <= label < len(names) else str(label)


def _taken(view: RowSource, chosen: NDArray[np.int64]) -> ArrayRows:
    blocks = []
    for start, stop in row_ranges(view):
        inside = chosen[(chosen >= start) & (chosen < stop)] - start
        blocks.append(view.read(start, stop)[inside])
    rows = np.concatenate(blocks)
    if view.metric != "features":
        rows = np.ascontiguousarray(rows[:, chosen])
    return ArrayRows(rows, view.name, view.metric)

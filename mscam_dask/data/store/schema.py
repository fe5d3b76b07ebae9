"""Data dictionary of a store: arrays by name, dimensions, type and meaning.

A store is one Zarr v3 group in a local or shared directory. Its layout, version 3::

    data.zarr/                          attributes: format, format_version, n_samples, n_views,
        |                               has_labels, has_sample_ids, label_names, nodes, checksum
        views/0                         attributes: feature_names and impute, optional
        views/0/values                  (sample, feature)   one array per view, by position
        views/1/values                  attributes: name, view_type, source_dtype, digest
        views/1/presence                (sample,)           only of views without some samples
        labels                          (sample,)           optional
        sample_ids/bytes                (byte,)             optional
        sample_ids/offsets              (edge,)

Rules: every array carries a crc32c checksum in each chunk (Zarr's default codecs decode a
flipped bit into wrong numbers without an error); every chunk is written, also when it is all
fill value (a missing chunk would read as zeros); every zarr.json has a checksum (see
`mscam_dask.data.store.checksums`); dtypes are numeric, never object; a view's
name is an attribute, never part of a path. `feature_names` lists the names of a view's columns
where they have some, and `impute` is the method by which missing cells of the view were filled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = [
    "FEATURE_NAMES",
    "FORMAT",
    "FORMAT_VERSION",
    "IMPUTE",
    "LABELS",
    "N_PRESENT",
    "PRESENCE",
    "SAMPLE_ID_BYTES",
    "SAMPLE_ID_OFFSETS",
    "VALUES",
    "ArraySpec",
    "presence_key",
    "stored_dtype",
    "view_key",
]

FORMAT = "mscam_dask.dataset"
FORMAT_VERSION = 3

FEATURE_NAMES = "feature_names"
"""Attribute of a view's group, not of its array, whose metadata are read with every block."""

IMPUTE = "impute"
"""Attribute of a view's group: the method by which its missing cells were filled, if one was asked for."""

N_PRESENT = "n_present"
"""Attribute of the values of a view that does not have all samples: the number of those it has."""


@dataclass(frozen=True)
class ArraySpec:
    """One entry of the data dictionary.

    Attributes
    ----------
    key
        Path inside the store; `{index}` is the position of a view.
    dims
        Names of the dimensions, written into the array.
    kinds
        NumPy kind letters its dtype may have.
    required
        Whether every store has it.
    description
        Meaning of the numbers.
    """

    key: str
    dims: tuple[str, ...]
    kinds: str
    required: bool
    description: str


VALUES = ArraySpec(
    key="views/{index}/values",
    dims=("sample", "feature"),
    kinds="biuf",
    required=True,
    description=(
        "Values of one view, one row per sample, chunked by rows only. Their meaning is in the "
        "attribute `view_type`: coordinates, distances (not squared; zero diagonal, symmetric) or a "
        "kernel (symmetric). Attributes: name, view_type, source_dtype, digest (SHA-256 of the "
        "shape and of the SHA-256 of each 8192 rows as little-endian float64)."
    ),
)
PRESENCE = ArraySpec(
    key="views/{index}/presence",
    dims=("sample",),
    kinds="b",
    required=False,
    description=(
        "Whether the view has each sample, for views that do not have all. Rows of absent samples are NaN "
        "in the values, as are columns in distance and kernel views; the digest is of the other "
        "rows and columns. The attribute n_present of the values is the number of samples."
    ),
)
LABELS = ArraySpec(
    key="labels",
    dims=("sample",),
    kinds="i",
    required=False,
    description=(
        "Ground truth, int64, for evaluation only. The group's attribute label_names gives the "
        "names of 0, 1, ... where labels were text."
    ),
)
SAMPLE_ID_BYTES = ArraySpec(
    key="sample_ids/bytes",
    dims=("byte",),
    kinds="u",
    required=False,
    description="All sample ids as UTF-8, one after the other, uint8.",
)
SAMPLE_ID_OFFSETS = ArraySpec(
    key="sample_ids/offsets",
    dims=("edge",),
    kinds="i",
    required=False,
    description="Sample i's id is bytes[offsets[i]:offsets[i + 1]]; int64, n + 1 of them.",
)


def view_key(index: int) -> str:
    """Path of the values of the view at a position."""
    return VALUES.key.format(index=index)


def presence_key(index: int) -> str:
    """Path of the presence of the samples in the view at a position."""
    return PRESENCE.key.format(index=index)


def stored_dtype(source: np.dtype[Any]) -> np.dtype[Any]:
    """Little-endian type in which a view's values are stored, exact for all float64 can hold.

    Types that convert to float64 without loss are kept (bool, integers up to 32 bits, float16,
    float32, float64); wider ones (int64, uint64, extended precision) are stored as the float64
    they are computed in.
    """
    if np.can_cast(source, np.float64, casting="safe") and source.itemsize <= 8:
        exact = source.kind == "f" or source.itemsize < 8
        return source.newbyteorder("<") if exact else np.dtype("<f8")
    return np.dtype("<f8")

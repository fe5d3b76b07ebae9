"""What the report of a run is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.results import StoredResult

__all__ = ["FileLink", "RunContent"]


@dataclass(frozen=True, kw_only=True)
class FileLink:
    """A file of the run, as the report links to it.

    Attributes
    ----------
    name
        As it is shown.
    href
        Relative to the report, quoted as a URL.
    what
        What is in it, in a few words.
    """

    name: str
    href: str
    what: str


@dataclass(frozen=True, kw_only=True, eq=False)
class RunContent:
    """A run that ended with results.

    Attributes
    ----------
    record
        run.json, version 1, as plain dicts and lists.
    result
    settings_text
        pipeline.toml.
    sample_ids
        n ids, or None when samples are known by row.
    labels_true : (n,) int64 or None
        Ground truth.
    label_names
        Name of label 0, 1, ..., or None.
    files
    moved
        Name, cluster before and cluster now of each sample that changed cluster since the run before.
    notes
        What the reader should know about the report itself.
    """

    record: Mapping[str, Any]
    result: StoredResult
    settings_text: str
    sample_ids: Sequence[str] | None
    labels_true: NDArray[np.int64] | None
    label_names: Sequence[str] | None
    files: tuple[FileLink, ...]
    moved: Sequence[tuple[str, int, int]] = ()
    notes: tuple[str, ...] = ()

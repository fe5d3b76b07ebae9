"""Sources of two views to ingest, and what is in the store then."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from mscam_dask.data.ingest import IngestReport
from mscam_dask.data.readers.base import Selection, Source, SourceContents
from mscam_dask.data.readers.registry import read_sources
from mscam_dask.data.store.dataset import verify_store
from tests.synthetic import values_of

N = 7
COLOUR = np.arange(3.0 * N).reshape(N, 3) / 7
SHAPE = np.arange(2.0 * N).reshape(N, 2) ** 2
LABELS = np.array([0, 0, 1, 1, 2, 2, 2])


def save_archive(path: Path, **arrays: Any) -> Path:
    np.savez(path, allow_pickle=False, **arrays)
    return path


def save_group(path: Path, **arrays: Any) -> Path:
    group = zarr.open_group(path, mode="w")
    for name, array in arrays.items():
        group[name] = array
    return path


def save_npz(path: Path, **more: Any) -> Path:
    return save_archive(path, view_0=COLOUR, view_1=SHAPE.astype(np.float32), **more)


def stored(report: IngestReport) -> dict[str, NDArray[np.float64]]:
    return values_of(verify_store(report.output))


def read(
    source: Path | Source, **selection: Any
) -> tuple[dict[str, NDArray[np.float64]], SourceContents]:
    """Values of the views of a source by name, and its contents."""
    with ExitStack() as stack:
        given = source if isinstance(source, Source) else Source(source)
        (loaded,) = read_sources([given], Selection(**selection), stack)
        return {view.name: view.read(0, view.shape[0]) for view in loaded.views}, loaded

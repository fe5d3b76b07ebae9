"""Limits on what a file may declare: told with the sizes, and raised by an argument."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mscam_dask.data.ingest import ingest
from mscam_dask.data.readers.base import Source
from mscam_dask.errors import ConfigurationError, DataError
from tests.data.ingested import stored
from tests.data.readers.matlab_files import save_compressed, save_version_5, save_version_73
from tests.messages import quotes

TABLE = np.random.default_rng(0).normal(size=(20, 3))
NBYTES = TABLE.nbytes


def save_npz(path: Path, **arrays: Any) -> Path:
    np.savez(path, allow_pickle=False, **arrays)
    return path


def save_zarr(path: Path, **arrays: Any) -> Path:
    import zarr

    group = zarr.create_group(path)
    for name, values in arrays.items():
        group.create_array(name, data=values, dimension_names=("sample", "feature"))
    return path


@pytest.mark.parametrize(
    ("save", "name"),
    [
        (save_npz, "a.npz"),
        (save_version_5, "a.mat"),
        (save_compressed, "a.mat"),
        (save_version_73, "a.mat"),
        (save_zarr, "a.zarr"),
    ],
)
def test_a_file_may_hold_as_much_as_the_source_allows(save: Any, name: str, tmp_path: Path) -> None:
    path = save(tmp_path / name, colour=np.zeros_like(TABLE) + TABLE)
    report = ingest(Source(path, max_bytes=2 * NBYTES), tmp_path / "out.zarr")
    np.testing.assert_array_equal(stored(report)["colour"], TABLE)


@pytest.mark.parametrize(
    ("save", "name"),
    [
        (save_npz, "a.npz"),
        (save_version_5, "a.mat"),
        (save_compressed, "a.mat"),
        (save_zarr, "a.zarr"),
    ],
)
def test_what_takes_more_memory_is_refused_with_both_sizes(
    save: Any, name: str, tmp_path: Path
) -> None:
    path = save(tmp_path / name, colour=TABLE)
    limit = NBYTES - 1
    with pytest.raises(DataError, match=quotes(path, limit, "max_bytes")):
        ingest(Source(path, max_bytes=limit), tmp_path / "out.zarr")
    assert not (tmp_path / "out.zarr").exists()


def test_a_large_file_that_is_read_by_blocks_needs_no_larger_limit(tmp_path: Path) -> None:
    path = save_version_73(tmp_path / "a.mat", colour=TABLE)
    report = ingest(Source(path, max_bytes=NBYTES // 4), tmp_path / "out.zarr")
    np.testing.assert_array_equal(stored(report)["colour"], TABLE)


def test_a_limit_below_one_byte_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=quotes(0, "max_bytes")):
        Source(tmp_path / "a.npz", max_bytes=0)

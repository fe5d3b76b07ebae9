"""Limits on what a file may declare: told with the sizes, and raised by an argument."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from mscam_dask.data.readers.base import Source, unreadable
from mscam_dask.data.readers.fields import number_of
from mscam_dask.errors import DataError
from tests.data.ingested import read, save_archive, save_group
from tests.data.readers.matlab_files import save_version_5

TABLE = np.random.default_rng(0).normal(size=(20, 3))
NBYTES = TABLE.nbytes


@pytest.mark.parametrize(
    ("save", "name"), [(save_archive, "a.npz"), (save_version_5, "a.mat"), (save_group, "a.zarr")]
)
def test_a_file_may_hold_as_much_as_the_source_allows(save: Any, name: str, tmp_path: Path) -> None:
    path = save(tmp_path / name, colour=TABLE)
    values, _ = read(Source(path, max_bytes=2 * NBYTES))
    np.testing.assert_array_equal(values["colour"], TABLE)
    with pytest.raises(DataError, match=rf"{NBYTES - 1}.*max_bytes"):
        read(Source(path, max_bytes=NBYTES - 1))


@pytest.mark.parametrize("error", [ZeroDivisionError, TypeError, MemoryError])
def test_only_damage_is_told_as_damage(tmp_path: Path, error: type[Exception]) -> None:
    """A mistake of a library says that the file is damaged; one of this package does not, and a lack of memory is named."""

    def failing() -> None:
        raise error

    def read_by(function: Callable[[], object]) -> None:
        with unreadable(Source(tmp_path / "a.csv"), "text"):
            function()

    with pytest.raises(DataError) as found:
        read_by(failing)
    assert ("not enough memory" in str(found.value)) == (error is MemoryError)
    with pytest.raises(AttributeError):
        read_by(lambda: number_of(cast("str", 1)))

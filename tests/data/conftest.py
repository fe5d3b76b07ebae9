"""What the tests of the data layer share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from mscam_dask.data.store_writer import write_store
from tests.data.stores import example_data


@pytest.fixture(scope="session")
def data_file() -> Callable[[str], Path]:
    """Path of a file of the benchmark folder; skips when it is not there."""

    def find(name: str) -> Path:
        directory = os.environ.get("MSCAM_DATA")
        if not directory:
            pytest.skip(f"{name}: MSCAM_DATA (the folder of benchmark sets) is not set")
        path = Path(directory) / name
        if not path.is_file():
            pytest.skip(f"{name} is not in the folder that MSCAM_DATA names")
        return path

    return find


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of `example_data`, in chunks of four rows."""
    return write_store(example_data(), tmp_path / "data.zarr", chunk_rows=4)


def dask_array(values: NDArray[Any], chunks: Any) -> Any:
    """Return `dask.array.from_array`, which has no types."""
    return da.from_array(values, chunks=chunks)  # type: ignore[no-untyped-call]


def real_dtypes() -> st.SearchStrategy[np.dtype[Any]]:
    """Every dtype of real numbers up to 64 bits, in either byte order."""
    return st.one_of(
        hnp.boolean_dtypes(),
        hnp.integer_dtypes(endianness="?"),
        hnp.unsigned_integer_dtypes(endianness="?"),
        hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    )


@st.composite
def finite_tables(
    draw: st.DrawFn, *, n_samples: int | None = None, max_side: int = 9
) -> NDArray[Any]:
    """Finite (n, d) tables of any real dtype: C, Fortran, strided, reversed, read-only."""
    rows = draw(st.integers(1, max_side)) if n_samples is None else n_samples
    columns = draw(st.integers(1, max_side))
    dtype = draw(real_dtypes())
    elements = hnp.from_dtype(dtype, allow_nan=False, allow_infinity=False)
    layout = draw(st.sampled_from(["C", "F", "strided", "reversed", "read-only"]))
    factor = 2 if layout == "strided" else 1
    values = draw(hnp.arrays(dtype, (factor * rows, factor * columns), elements=elements))
    if layout == "F":
        return np.asfortranarray(values)
    if layout == "strided":
        return values[::2, 1::2]
    if layout == "reversed":
        return values[::-1, ::-1]
    if layout == "read-only":
        values.flags.writeable = False
    return values

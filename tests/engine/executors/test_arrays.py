from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.engine.executors._process import aligned
from mscam_dask.linalg.orthonormal import Basis


def misplaced(array: NDArray[Any]) -> NDArray[Any]:
    """The same numbers and memory order, one byte off."""
    order: Literal["C", "F"] = "C" if array.flags.c_contiguous else "F"
    buffer = np.empty(array.nbytes + 1, dtype=np.uint8)[1:]
    moved: NDArray[Any] = np.ndarray(array.shape, array.dtype, buffer=buffer.data, order=order)
    moved[...] = array
    assert not moved.flags.aligned
    return moved


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_unaligned_arrays_are_copied_in_their_order(dtype: type, order: str) -> None:
    array = np.asarray(np.arange(12).reshape(3, 4), dtype=dtype, order=order)  # type: ignore[call-overload]
    mended = aligned(misplaced(array))
    assert mended.flags.aligned
    assert mended.strides == array.strides
    np.testing.assert_array_equal(mended, array)


def test_what_is_aligned_is_the_same_object() -> None:
    basis = Basis(np.eye(3), np.ones(3))
    value = [basis, (csr_array(np.eye(2)), {"a": np.ones(2)}), "word", 3]
    assert aligned(value) is value


def test_arrays_are_found_wherever_they_are() -> None:
    graph = csr_array(np.eye(3))
    odd = csr_array((misplaced(graph.data), graph.indices, graph.indptr), shape=(3, 3))
    basis = Basis(misplaced(np.eye(3)), np.ones(3))
    first, (second, third), fourth = aligned([basis, (odd, {"a": misplaced(np.ones(2))}), 3])
    assert first.vectors.flags.aligned
    assert first.singular_values_squared is basis.singular_values_squared
    assert not basis.vectors.flags.aligned, "nothing is changed in place"
    assert second.data.flags.aligned
    assert third["a"].flags.aligned
    assert fourth == 3
    assert dataclasses.is_dataclass(first)

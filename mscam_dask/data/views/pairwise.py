"""Views of pairs of samples: what makes a matrix a distance or a kernel matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mscam_dask.data.views.sources import RowSource, row_ranges
from mscam_dask.errors import DataError

__all__ = ["check_not_negative", "check_pairwise", "check_square"]

_TOLERANCE = 1e-6  # of the largest magnitude: what float32 rounding leaves


def check_square(view: RowSource) -> None:
    """Refuse a distance or kernel view without one row and one column per sample.

    Raises
    ------
    DataError
        Naming the view and its shape.
    """
    if view.shape[0] != view.shape[1]:
        raise DataError(
            f"View {view.name!r} has view_type={view.view_type!r} and shape {view.shape}; a {view.view_type} "
            "view is square, one row and one column per sample. Declare it view_type='features', or "
            "give the full matrix (scipy.spatial.distance.squareform expands a condensed one)."
        )


@dataclass
class _Extremes:
    """Running extremes of one matrix."""

    lowest: float = np.inf
    highest: float = -np.inf
    largest_diagonal: float = 0.0  # in magnitude, with its sign
    largest_diagonal_row: int = 0
    lowest_diagonal: float = 0.0


def check_pairwise(view: RowSource) -> None:
    """Refuse a square view of finite values that is no distance or no kernel matrix.

    Distances are nonnegative with a zero diagonal; the diagonal of a kernel is nonnegative;
    both are symmetric. Differences up to 1e-6 of the largest magnitude pass. Whether a kernel
    is positive semidefinite is left to those who take its eigenvalues.

    Raises
    ------
    DataError
        Naming the view, the worst entry, its place and what to do.
    """
    extremes = _scan(view)
    allowed = _TOLERANCE * max(abs(extremes.lowest), abs(extremes.highest))
    if view.view_type == "distance":
        _refuse_negative(view, extremes.lowest, allowed)
        if abs(extremes.largest_diagonal) > allowed:
            raise DataError(
                f"Distance view {view.name!r} has {extremes.largest_diagonal:.6g} on the diagonal, "
                f"in row {extremes.largest_diagonal_row}; the distance of a sample to itself is 0. "
                "If it holds similarities, declare it view_type='kernel'; else set the diagonal to 0."
            )
    elif extremes.lowest_diagonal < -allowed:
        raise DataError(
            f"Kernel view {view.name!r} has {extremes.lowest_diagonal:.6g} on the diagonal; a "
            "kernel's diagonal (squared lengths) is nonnegative. If it holds distances, declare "
            "it view_type='distance'."
        )
    _check_symmetric(view, allowed)


def check_not_negative(view: RowSource) -> None:
    """Refuse negative distances, in a block to other samples too; reads the view once.

    Raises
    ------
    DataError
        Naming the view and the lowest value, when it is below −1e-6 of the largest magnitude.
    """
    lowest = highest = 0.0
    for start, stop in row_ranges(view):
        rows = view.read(start, stop)
        lowest = min(lowest, float(rows.min(initial=0.0)))
        highest = max(highest, float(rows.max(initial=0.0)))
    _refuse_negative(view, lowest, _TOLERANCE * max(-lowest, highest))


def _refuse_negative(view: RowSource, lowest: float, allowed: float) -> None:
    if lowest < -allowed:
        raise DataError(
            f"Distance view {view.name!r} has negative values, down to {lowest:.6g}; "
            "distances are nonnegative. If it holds similarities, declare it view_type='kernel'."
        )


def _scan(view: RowSource) -> _Extremes:
    extremes = _Extremes()
    for start, stop in row_ranges(view):
        rows = view.read(start, stop)
        extremes.lowest = min(extremes.lowest, float(rows.min()))
        extremes.highest = max(extremes.highest, float(rows.max()))
        diagonal = rows.diagonal(offset=start)
        row = int(np.abs(diagonal).argmax())
        if abs(diagonal[row]) > abs(extremes.largest_diagonal):
            extremes.largest_diagonal = float(diagonal[row])
            extremes.largest_diagonal_row = start + row
        extremes.lowest_diagonal = min(extremes.lowest_diagonal, float(diagonal.min()))
    return extremes


def _check_symmetric(view: RowSource, allowed: float) -> None:
    """Compare every pair of tiles (I, J), (J, I), so that memory stays two row blocks."""
    n_different, largest, where = 0, 0.0, (0, 0)
    ranges = list(row_ranges(view))
    for index, (start, stop) in enumerate(ranges):
        rows = view.read(start, stop)
        for other_start, other_stop in ranges[: index + 1]:
            others = rows if other_start == start else view.read(other_start, other_stop)
            with np.errstate(over="ignore"):
                gap = np.abs(rows[:, other_start:other_stop] - others[:, start:stop].T)
            different = int(np.count_nonzero(gap > allowed))
            # The diagonal tile holds each pair twice.
            n_different += different // 2 if other_start == start else different
            if different and gap.max() > largest:
                row, column = np.unravel_index(int(gap.argmax()), gap.shape)
                largest = float(gap.max())
                where = (int(row) + start, int(column) + other_start)
    if n_different:
        raise DataError(
            f"{view.view_type.capitalize()} view {view.name!r} is not symmetric: {n_different} pair(s) of "
            f"samples differ from their transpose by more than {allowed:.3g}, the most at "
            f"{where} by {largest:.6g}. If both directions are estimates of one value, pass "
            "(matrix + matrix.T) / 2; if rows are coordinates, declare view_type='features'."
        )

"""Validation of data before a fit: errors with place and remedy, and data warnings."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from numbers import Integral
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.conversion import check_unique_ids
from mscam_dask.data.views.missing_cells import naming_missing_cells
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.presence import present_samples
from mscam_dask.data.views.sampling import blocks_of_rows
from mscam_dask.data.views.sources import (
    RowSource,
    ViewDigest,
    check_view,
    recorded_digest,
    row_ranges,
)
from mscam_dask.errors import ConfigurationError, DataError

__all__ = [
    "DataIssue",
    "DistinctRows",
    "ValidationReport",
    "check_finite",
    "check_not_empty",
    "check_not_negative",
    "check_sizes",
    "duplicate_samples",
    "validate",
    "validate_view",
]

_SHOWN = 5

# Samples of an incomplete view: fewer have no neighbors.
_MIN_PRESENT = 3

# Sums and differences of numbers below this are numbers.
_MAX = 1e304


@dataclass(frozen=True)
class DataIssue:
    """Data warning: an unusual property of the data that is accepted.

    Attributes
    ----------
    view
        Name of the view, "" for all of them together.
    kind
        "zero rows", "constant columns", or "repeated samples" where fewer samples differ than there
        are clusters asked for.
    count
        Number of rows, columns or samples.
    first
        The first few, by position.
    total
        Number of rows (columns) the view has.
    """

    view: str
    kind: Literal["zero rows", "constant columns", "repeated samples"]
    count: int
    first: tuple[int, ...]
    total: int

    @property
    def message(self) -> str:
        """Message of the warning: the finding, and the remedy."""
        more = ", ..." if self.count > len(self.first) else ""
        listing = ", ".join(map(str, self.first)) + more
        if self.kind == "zero rows":
            return (
                f"View {self.view!r}: {self.count} of {self.total} samples are all zero (rows "
                f"{listing}). This view does not distinguish them, so their clusters depend on the other "
                "views. If zero stands for 'not measured', drop these samples or this view."
            )
        if self.kind == "repeated samples":
            n_distinct = self.total - self.count
            return (
                f"Only {n_distinct} of {self.total} samples are distinct: the others (rows {listing}) "
                f"equal an earlier sample in every view. Set n_clusters to at most {n_distinct}, because "
                "more clusters split equal samples at random, or check how the views were made."
            )
        return (
            f"View {self.view!r}: {self.count} of {self.total} columns are constant (columns "
            f"{listing}). They are zero after scaling and have no effect; they can be dropped."
        )


@dataclass(frozen=True)
class ValidationReport:
    """Report of `validate`.

    Attributes
    ----------
    n_samples
    view_names
    issues
        Of all views, in their order.
    digests
        `view_digest` of each view by name, recorded or as it was read; empty unless asked for.
    """

    n_samples: int
    view_names: tuple[str, ...]
    issues: tuple[DataIssue, ...]
    digests: dict[str, str] = field(default_factory=dict)


_Findings = tuple[DataIssue, ...]
_Over = Callable[[Callable[[RowSource], Any], Sequence[RowSource]], Iterable[Any]]


def validate(
    data: MultiViewData,
    *,
    n_clusters: int,
    n_neighbors: int,
    digest: bool = False,
    over: _Over = map,
) -> ValidationReport:
    """Check that data can be clustered with the given sizes; reads every view by row blocks.

    Parameters
    ----------
    data
        The views; their numbers of samples agree by construction.
    n_clusters
        c, at least 1 and at most n.
    n_neighbors
        k, at least 1 and at most n - 1.
    digest
        Whether views are digested too, by the same read.
    over
        Applies a function to each view, or to blocks of rows of views, in their order; by default one
        after another, here.

    Returns
    -------
    ValidationReport
        All-zero samples and constant columns: accepted, since real data have them; and repeated
        samples, where fewer than c differ from each other.

    Raises
    ------
    ConfigurationError
        When c or k does not fit the number of samples.
    DataError
        When ids repeat; a view is empty, not of real numbers, has NaN or infinite values or
        is constant; a distance view is not square, symmetric and nonnegative with a zero
        diagonal; or a kernel view is not square and symmetric with a nonnegative diagonal.

    Notes
    -----
    Memory: a few row blocks of 64 MiB. A view is read once; a distance or kernel view of B
    blocks twice, and once for each pair of blocks, B (B + 1) / 2 block reads, to compare it with
    its transpose. Differences up to 1e-6 of the largest magnitude pass.
    """
    for view in data.views:
        if present_samples(view) is None:
            check_not_empty(view)
    check_sizes(data.n_samples, n_clusters=n_clusters, n_neighbors=n_neighbors)
    if data.sample_ids is not None:
        check_unique_ids(data.sample_ids, where="the data")
    recorded = [recorded_digest(view) for view in data.views]
    with naming_missing_cells(data, over):
        for view in data.views:
            _check_kind(view)
        is_digested = digest and not all(recorded)
        scans = _scanned(data.views, n_clusters, digest=is_digested, over=over)
        found = [_issues(view, scan, over) for view, scan in zip(data.views, scans, strict=True)]
        list(over(check_pairwise, [view for view in data.views if view.view_type != "features"]))
    numbers = [scan.distinct.numbers() for scan in scans]
    presents = map(present_samples, data.views)
    spread = [
        rows if present is None or rows is None else present.spread(rows, n_clusters)
        for present, rows in zip(presents, numbers, strict=True)
    ]  # absent samples are alike in a view, and unlike the others
    repeated = duplicate_samples(spread, n_clusters)
    issues = list(itertools.chain.from_iterable(found))
    if repeated is not None:
        first = tuple(repeated[:_SHOWN].tolist())
        issues.append(DataIssue("", "repeated samples", repeated.size, first, data.n_samples))
    digests = {
        view.name: known or scan.digest_of(view.shape)
        for view, known, scan in zip(data.views, recorded, scans, strict=True)
        if digest
    }
    return ValidationReport(data.n_samples, data.view_names, tuple(issues), digests)


def check_sizes(n_samples: int, *, n_clusters: int, n_neighbors: int) -> None:
    """Refuse a number of clusters or neighbors that n samples cannot have."""
    for name, value, largest, reason in (
        ("n_clusters", n_clusters, n_samples, "a cluster has at least one sample"),
        ("n_neighbors", n_neighbors, n_samples - 1, "a sample is no neighbor of itself"),
    ):
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise ConfigurationError(
                f"{name}={value!r} is a {type(value).__name__}; allowed are integers from 1 to "
                f"{largest}. Set {name} to one."
            )
        if value < 1 or value > largest:
            if largest < 1:
                remedy = "Give at least 2 samples."
            else:
                remedy = f"Set {name} to {'at least 1' if value < 1 else f'at most {largest}'}."
            raise ConfigurationError(
                f"{name}={value} with {n_samples} sample(s); allowed are 1 to {largest} ({reason}). "
                f"{remedy}"
            )


def check_not_empty(view: RowSource) -> None:
    """Refuse a view without rows or columns."""
    if 0 in view.shape:
        raise DataError(
            f"View {view.name!r} is empty: shape {view.shape}; it needs at least one sample and one "
            "column. Drop the view, or check how it was read."
        )


def check_finite(view: RowSource) -> None:
    """Refuse a view with NaN, infinite or nearly infinite values; reads it once.

    Raises
    ------
    DataError
        With the number of each, the number of rows they are in and the first of those; or the
        largest magnitude when it is above 1e304.
    """
    n_nan = n_infinite = n_rows = 0
    largest = 0.0
    first: list[int] = []
    for start, stop in row_ranges(view):
        rows = view.read(start, stop)
        bad = ~np.isfinite(rows)
        hit = np.flatnonzero(bad.any(axis=1))
        if hit.size:
            block_nan = int(np.isnan(rows).sum())
            n_nan += block_nan
            n_infinite += int(bad.sum()) - block_nan
            n_rows += hit.size
            first.extend(_sample_rows(view, hit[: _SHOWN - len(first)] + start))
        elif rows.size:
            largest = max(largest, float(rows.max()), -float(rows.min()))
    if n_rows:
        raise DataError(
            f"View {view.name!r} has {n_nan} NaN and {n_infinite} infinite value(s), in {n_rows} of "
            f"{view.shape[0]} rows (first rows: {first}); allowed are finite numbers. Impute them, "
            "or drop these samples from every view, or drop the view."
        )
    if largest > _MAX:
        raise DataError(
            f"View {view.name!r} has values of magnitude {largest:.3g}; allowed are magnitudes up to "
            f"{_MAX:g}, because sums of larger ones overflow. If they stand for 'missing', impute them; "
            "otherwise divide the view by a constant."
        )


def validate_view(view: RowSource) -> _Findings:
    """Return the data warnings of one view that is not empty; raise `DataError` as `validate` does."""
    _check_kind(view)
    found = _issues(view, _scan(view, 1, digest=False))
    if view.view_type != "features":
        check_pairwise(view)
    return found


def _check_kind(view: RowSource) -> None:
    """Refuse a view of other values than real numbers, of too few samples, or that is not square."""
    check_view(view.name, view.shape, view.dtype)
    present = present_samples(view)
    if present is not None and len(present) < _MIN_PRESENT:
        raise DataError(
            f"View {view.name!r} has {len(present)} of {present.n_samples} samples (rows that are all "
            f"NaN are absent samples); allowed is at least {_MIN_PRESENT}. Drop the view."
        )
    if view.view_type != "features":
        check_square(view)


def _issues(view: RowSource, scan: _Scan, over: _Over = map) -> _Findings:
    """Data warnings of a view that was scanned; it is read again if some values are not finite."""
    if not (scan.lowest.min() >= -_MAX and scan.highest.max() <= _MAX):  # which NaN is not either
        list(over(check_finite, [view]))
    is_constant = scan.lowest == scan.highest
    if is_constant.all():
        _refuse_constant(view)
    issues = []
    if scan.zero_rows:
        first = tuple(_sample_rows(view, np.array(scan.zero_rows[:_SHOWN])))
        issues.append(DataIssue(view.name, "zero rows", len(scan.zero_rows), first, view.shape[0]))
    if view.view_type == "features" and is_constant.any():
        columns = np.flatnonzero(is_constant).tolist()
        first = tuple(columns[:_SHOWN])
        issues.append(DataIssue(view.name, "constant columns", len(columns), first, view.shape[1]))
    return tuple(issues)


@dataclass(frozen=True)
class _Scan:
    """Facts about consecutive rows of a view.

    Attributes
    ----------
    n_rows
        Number of the rows.
    lowest, highest
        Smallest and largest value of each column, (d,), NaN where there is one.
    zero_rows
        Rows that are all zero.
    distinct
        The distinct rows.
    blocks
        Digests of blocks of rows; empty unless asked for.
    """

    n_rows: int
    lowest: NDArray[np.float64]
    highest: NDArray[np.float64]
    zero_rows: list[int]
    distinct: DistinctRows
    blocks: list[bytes]

    def joined(self, later: _Scan) -> _Scan:
        """Return the facts about these rows and those that follow."""
        return _Scan(
            self.n_rows + later.n_rows,
            np.minimum(self.lowest, later.lowest),
            np.maximum(self.highest, later.highest),
            [*self.zero_rows, *(self.n_rows + row for row in later.zero_rows)],
            self.distinct.joined(later.distinct),
            [*self.blocks, *later.blocks],
        )

    def digest_of(self, shape: tuple[int, int]) -> str:
        """Return the digest of a view of this shape, all of whose rows were scanned."""
        digest = ViewDigest(shape)
        digest.extend(self.blocks)
        return digest.hexdigest()


def _scanned(
    views: Sequence[RowSource], n_clusters: int, *, digest: bool, over: _Over
) -> list[_Scan]:
    """Facts about each view, by blocks of rows."""
    parts = [blocks_of_rows(view) for view in views]
    look = functools.partial(_scan, limit=n_clusters, digest=digest)
    found = iter(over(look, list(itertools.chain.from_iterable(parts))))
    return [functools.reduce(_Scan.joined, itertools.islice(found, len(part))) for part in parts]


def _scan(view: RowSource, limit: int, *, digest: bool) -> _Scan:
    """Facts about some rows from one read; distinct rows are counted up to `limit`."""
    n_columns = view.shape[1]
    lowest, highest = np.full(n_columns, np.inf), np.full(n_columns, -np.inf)
    zero_rows: list[int] = []
    distinct, read = DistinctRows(limit), ViewDigest(view.shape)
    for start, stop in row_ranges(view):
        rows = view.read(start, stop)
        np.minimum(lowest, rows.min(axis=0), out=lowest)
        np.maximum(highest, rows.max(axis=0), out=highest)
        zero_rows.extend((np.flatnonzero(~rows.any(axis=1)) + start).tolist())
        distinct.update(rows)
        if digest:
            read.update(rows)
    return _Scan(view.shape[0], lowest, highest, zero_rows, distinct, read.blocks())


def _sample_rows(view: RowSource, rows: NDArray[np.int64]) -> list[int]:
    """Positions of rows of a view among all samples."""
    present = present_samples(view)
    own = rows if present is None else present.samples[rows]
    return [int(row) for row in own]


def _refuse_constant(view: RowSource) -> None:
    raise DataError(
        f"View {view.name!r} is constant: all {view.shape[0]} rows are equal in all "
        f"{view.shape[1]} columns, so it cannot tell samples apart. Drop the view."
    )


_TOLERANCE = 1e-6  # of the largest magnitude: what float32 rounding leaves


def check_square(view: RowSource) -> None:
    """Refuse a distance or kernel view without one row and one column per sample."""
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
    """
    extremes = _extremes_of(view)
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


def _extremes_of(view: RowSource) -> _Extremes:
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


# Of rows that are compared at a time.
_COMPARED_BYTES = 2**20


@dataclass
class DistinctRows:
    """Distinct rows of one view, as long as there are fewer than `limit`.

    Most views have more within their first rows, and the others are skipped then.

    Parameters
    ----------
    limit
        Number of clusters.
    """

    limit: int
    _number_of: dict[bytes, int] = field(default_factory=dict)
    _numbers: list[NDArray[np.int64]] | None = field(default_factory=list)

    def update(self, rows: NDArray[np.float64]) -> None:
        """Add the next rows, (m, d)."""
        step = max(1, _COMPARED_BYTES // (8 * rows.shape[1]))
        for start in range(0, len(rows), step):
            if self._numbers is None:
                return
            part = rows[start : start + step] + 0.0  # one zero for both signs
            as_bytes = part.view(np.dtype((np.void, part.strides[0]))).ravel()
            found, which = np.unique(as_bytes, return_inverse=True)
            number = [
                self._number_of.setdefault(
                    blake2b(row.tobytes(), digest_size=16).digest(), len(self._number_of)
                )
                for row in found[: self.limit]
            ]
            if len(self._number_of) >= self.limit:
                self._numbers, self._number_of = None, {}
            else:
                self._numbers.append(np.array(number)[which])

    def joined(self, later: DistinctRows) -> DistinctRows:
        """Return the distinct rows of these rows and those that follow."""
        if self._numbers is None or later._numbers is None:
            return DistinctRows(self.limit, {}, None)
        number_of = dict(self._number_of)
        names = [number_of.setdefault(row, len(number_of)) for row in later._number_of]
        if len(number_of) >= self.limit:
            return DistinctRows(self.limit, {}, None)
        renamed = [np.array(names)[part] for part in later._numbers]
        return DistinctRows(self.limit, number_of, [*self._numbers, *renamed])

    def numbers(self) -> NDArray[np.int64] | None:
        """Number of each sample's row among the distinct ones, (n,); None where there are `limit`."""
        return None if self._numbers is None else np.concatenate(self._numbers)


def duplicate_samples(
    numbers: Sequence[NDArray[np.int64] | None], limit: int
) -> NDArray[np.int64] | None:
    """Return samples that equal an earlier one in all views, if fewer than `limit` are distinct.

    Parameters
    ----------
    numbers
        `DistinctRows.numbers` of each view.
    limit
        Number of clusters.

    Returns
    -------
    (m,) int64 or None
        In ascending order; None where at least `limit` samples differ from each other.
    """
    kinds = np.zeros(1, dtype=np.int64)
    for view in numbers:
        if view is None:
            return None
        _, kinds = np.unique(kinds * (limit + 1) + view, return_inverse=True)
    _, first = np.unique(kinds, return_index=True)
    if len(first) >= limit:
        return None
    return np.setdiff1d(np.arange(len(kinds)), first)

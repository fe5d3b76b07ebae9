"""What cannot be clustered is refused with its place and a remedy; what is odd is reported."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.content import check_view
from mscam_dask.data.views.conversion import check_unique_ids
from mscam_dask.data.views.data_warnings import DataIssue, ValidationReport
from mscam_dask.data.views.duplicates import DistinctRows, duplicate_samples
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.pairwise import check_pairwise, check_square
from mscam_dask.data.views.sources import RowSource, ViewDigest, recorded_digest, row_ranges
from mscam_dask.errors import ConfigurationError, DataError

__all__ = [
    "DataIssue",
    "ValidationReport",
    "check_finite",
    "check_not_empty",
    "check_sizes",
    "validate",
    "validate_view",
]

_SHOWN = 5

# Sums and differences of numbers below this are numbers.
_LARGEST = 1e304


_Findings = tuple[DataIssue, ...]
_Seen = tuple[_Findings, str, NDArray[np.int64] | None]
_Over = Callable[[Callable[[RowSource], _Seen], Sequence[RowSource]], Iterable[_Seen]]


def validate(
    data: MultiViewData,
    *,
    n_clusters: int,
    n_neighbors: int,
    digest: bool = False,
    over: _Over = map,
) -> ValidationReport:
    """Check that data can be clustered as asked; reads every view by row blocks.

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
        Applies a function to each view, in their order; by default one after another, here.

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
        check_not_empty(view)
    check_sizes(data.n_samples, n_clusters=n_clusters, n_neighbors=n_neighbors)
    if data.sample_ids is not None:
        check_unique_ids(data.sample_ids, where="the data")
    look = functools.partial(_validated, n_clusters=n_clusters, digest=digest)
    found, read, numbers = zip(*over(look, data.views), strict=True)
    repeated = duplicate_samples(numbers, n_clusters)
    issues = list(itertools.chain.from_iterable(found))
    if repeated is not None:
        first = tuple(repeated[:_SHOWN].tolist())
        issues.append(DataIssue("", "repeated samples", repeated.size, first, data.n_samples))
    digests = dict(zip(data.view_names, read, strict=True)) if digest else {}
    return ValidationReport(data.n_samples, data.view_names, tuple(issues), digests)


def check_sizes(n_samples: int, *, n_clusters: int, n_neighbors: int) -> None:
    """Refuse a number of clusters or neighbours that n samples cannot have.

    Raises
    ------
    ConfigurationError
        With the value, the range allowed and what to set.
    """
    for name, value, largest, reason in (
        ("n_clusters", n_clusters, n_samples, "a cluster has at least one sample"),
        ("n_neighbors", n_neighbors, n_samples - 1, "a sample is no neighbour of itself"),
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
    """Refuse a view without rows or columns.

    Raises
    ------
    DataError
        Naming the view and its shape.
    """
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
            first.extend((hit[: _SHOWN - len(first)] + start).tolist())
        elif rows.size:
            largest = max(largest, float(rows.max()), -float(rows.min()))
    if n_rows:
        raise DataError(
            f"View {view.name!r} has {n_nan} NaN and {n_infinite} infinite value(s), in {n_rows} of "
            f"{view.shape[0]} rows (first rows: {first}); allowed are finite numbers. Impute them, "
            "or drop these samples from every view, or drop the view."
        )
    if largest > _LARGEST:
        raise DataError(
            f"View {view.name!r} has values of magnitude {largest:.3g}; allowed are magnitudes up to "
            f"{_LARGEST:g}, whose sums are still numbers. If they stand for 'missing', impute them; "
            "else divide the view by a constant."
        )


def validate_view(
    view: RowSource, digest: ViewDigest | None = None, distinct: DistinctRows | None = None
) -> _Findings:
    """What is odd about one view that is not empty; raises `DataError` as `validate` does.

    Its rows go into `digest` and `distinct`, if there are some.
    """
    check_view(view.name, view.shape, view.dtype)
    if view.view_type != "features":
        check_square(view)
    lowest, highest, zero_rows = _scan(view, digest, distinct)
    if not (lowest.min() >= -_LARGEST and highest.max() <= _LARGEST):  # which NaN is not either
        check_finite(view)
    is_constant = lowest == highest
    if is_constant.all():
        _refuse_constant(view)
    if view.view_type != "features":
        check_pairwise(view)
    issues = []
    if zero_rows:
        first = tuple(zero_rows[:_SHOWN])
        issues.append(DataIssue(view.name, "zero rows", len(zero_rows), first, view.shape[0]))
    if view.view_type == "features" and is_constant.any():
        columns = np.flatnonzero(is_constant).tolist()
        first = tuple(columns[:_SHOWN])
        issues.append(DataIssue(view.name, "constant columns", len(columns), first, view.shape[1]))
    return tuple(issues)


def _validated(view: RowSource, *, n_clusters: int, digest: bool) -> _Seen:
    distinct = DistinctRows(n_clusters)
    recorded = recorded_digest(view)
    if recorded or not digest:
        return validate_view(view, None, distinct), recorded, distinct.numbers()
    read = ViewDigest(view.shape)
    return validate_view(view, read, distinct), read.hexdigest(), distinct.numbers()


def _scan(
    view: RowSource, digest: ViewDigest | None, distinct: DistinctRows | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], list[int]]:
    """Smallest and largest value of each column, (d,), NaN where there is one; rows of zeros."""
    n_columns = view.shape[1]
    lowest, highest = np.full(n_columns, np.inf), np.full(n_columns, -np.inf)
    zero_rows: list[int] = []
    for start, stop in row_ranges(view):
        rows = view.read(start, stop)
        np.minimum(lowest, rows.min(axis=0), out=lowest)
        np.maximum(highest, rows.max(axis=0), out=highest)
        zero_rows.extend((np.flatnonzero(~rows.any(axis=1)) + start).tolist())
        if digest is not None:
            digest.update(rows)
        if distinct is not None:
            distinct.update(rows)
    return lowest, highest, zero_rows


def _refuse_constant(view: RowSource) -> None:
    raise DataError(
        f"View {view.name!r} is constant: all {view.shape[0]} rows are equal in all "
        f"{view.shape[1]} columns, so it cannot tell samples apart. Drop the view."
    )

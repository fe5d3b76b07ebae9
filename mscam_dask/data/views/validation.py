"""Validation of data before a fit: errors with place and remedy, and data warnings."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from mscam_dask.data.views.conversion import is_of_ids, label_rank
from mscam_dask.data.views.missing_cells import LARGEST, missing_cells, refuse_missing_cells
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.rows import blocks_of_rows
from mscam_dask.data.views.sample_ids import linked_groups
from mscam_dask.data.views.sources import (
    RowSource,
    ViewDigest,
    digest_of_blocks,
    listed,
    row_ranges,
)
from mscam_dask.errors import DataError
from mscam_dask.types.allowed import check_value

_SHOWN = 5

# Samples of an incomplete view: fewer have no neighbors.
_MIN_PRESENT = 3

# Samples of each cluster that tell which clusters of two views are the same; with fewer, clusters follow the views.
_LINKS_PER_CLUSTER = 5

_CODES = np.array(  # that mark missing values, and those that NetCDF and others fill in
    [
        *(int(digit * times) for digit in "789" for times in range(1, 7)),
        *(9.99, 99.9, 99.99, 999.9, 999.99, 9999.9, 9999.99, 99999.9),
        *(999.25, 9999.25),  # of well logs
        *(32767, 32768, 2147483647, 2147483648),
        *(1e20, 1e30, 1e35, 1e36, 1e37, 1e38, 9.96921e36, 3.4028235e38),
    ],
    dtype=np.float32,
)

_LONG_CODE = 99  # the least one that no scale of answers, such as 1 to 9, has

_LARGEST_COUNT = 4095  # that is told from larger ones
_COUNTED_TOGETHER = 2**17  # values that stay in a cache

_CORNER = 64  # rows and columns that show the kind of a square view

_TOLERANCE = 1e-6  # of the largest magnitude: what float32 rounding leaves


@dataclass(frozen=True)
class DataIssue:
    """Data warning: an unusual property of the data that is accepted."""

    view: str  # "" for all of them together
    kind: Literal[
        "zero rows",
        "constant columns",
        "label columns",
        "missing codes",
        "presence table",
        "counts",
        "repeated samples",
        "few shared samples",
    ]
    count: int  # of rows, columns or samples
    message: str  # the finding, and the remedy
    first: tuple[int, ...] = ()  # positions of the first few
    others: tuple[str, ...] = ()  # with which the view shares few samples; names of columns


@dataclass(frozen=True)
class ValidationReport:
    """Report of `validate`: its warnings, and the digest of each view by name where it was asked for."""

    issues: tuple[DataIssue, ...]
    digests: dict[str, str] = field(default_factory=dict)


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

    `digest` says whether views are digested by the same read, and `over` applies a function to each view, or to
    blocks of rows of views, in their order. A pairwise view of B blocks is read B (B + 1) / 2 times more.
    """
    for view in data.views:
        _check_kind(view)
    check_sizes(data.n_samples, n_clusters=n_clusters, n_neighbors=n_neighbors)
    issues = _few_shared(data, n_clusters)
    recorded = [view.recorded_digest for view in data.views]
    parts = [blocks_of_rows(view) for view in data.views]
    scan_part = functools.partial(_scan, digest=digest and not all(recorded))
    found = iter(over(scan_part, list(itertools.chain.from_iterable(parts))))
    scans = [functools.reduce(_Scan.joined, itertools.islice(found, len(part))) for part in parts]
    pairs = list(zip(data.views, scans, strict=True))
    bad = [view for view, scan in pairs if not scan.is_finite]
    refuse_missing_cells(over(functools.partial(missing_cells, sample_ids=data.sample_ids), bad))
    marks = {view.name for view, scan in pairs if scan.are_marks and view.shape[1] > 1}
    for view, scan in pairs:
        issues += _issues(view, scan)
        if view.name in marks and (
            view.shape[1] == len(pairs) - len(marks)
            or all((view.read(*edges).sum(axis=1) == 1).all() for edges in row_ranges(view))
        ):
            message = (
                f"View {view.name!r} has 0 and 1 only, and may say which samples a class, a fold or a view has. Leave it out "
                "then, and give samples that a view does not have as rows of NaN."
            )
            issues.append(DataIssue(view.name, "presence table", 0, message))
    may_have = [v for v, scan in pairs if _are_codes(np.r_[scan.lowest, scan.highest]).any()]
    issues += itertools.chain.from_iterable(over(issues_of_codes, may_have))
    pairwise = [view for view in data.views if view.view_type != "features"]
    allowed = {view.name: scan.rounding for view, scan in pairs}
    list(over(functools.partial(_check_pairwise, allowed=allowed), pairwise))
    digests = {
        view.name: known or digest_of_blocks(view.shape, scan.blocks)
        for (view, scan), known in zip(pairs, recorded, strict=True)
        if digest
    }
    return ValidationReport(tuple(issues), digests)


def check_sizes(n_samples: int, *, n_clusters: int, n_neighbors: int) -> None:
    """Refuse a number of clusters or neighbors that n samples cannot have."""
    for name, value, largest, reason in (
        ("n_clusters", n_clusters, n_samples, "a cluster has at least one sample"),
        ("n_neighbors", n_neighbors, n_samples - 1, "a sample is no neighbor of itself"),
    ):
        allowed = f"a whole number from 1 to {largest}" if largest else "two samples or more"
        allowed += f" for {n_samples} sample(s), because {reason}"
        check_value(name, value, Annotated[int, Meta(ge=1, le=largest, title=allowed)])


def check_not_empty(view: RowSource) -> None:
    """Refuse a view without rows or columns."""
    if 0 in view.shape:
        raise DataError(
            f"View {view.name!r} is empty: shape {view.shape}; it needs at least one sample and one "
            "column. Drop the view, or check how it was read."
        )


def _are_codes(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    with np.errstate(all="ignore"):
        return np.isin(np.abs(values).astype(np.float32), _CODES)


def _may_mark(values: NDArray[np.float64], codes: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which values of columns are their codes, or others of the same sign for other reasons, such as 97 and 98 beside 99."""
    are_near = (codes >= _LONG_CODE) & (values > codes - 10) & (np.floor(values) == values)
    may_mark: NDArray[np.bool_] = (np.sign(values) == np.sign(codes)) & (
        _are_codes(values) | are_near
    )
    return may_mark


def _is_most_frequent(column: NDArray[np.float64], code: float) -> bool:
    """Return whether a value is more than twice as frequent as any other."""
    kinds, counts = np.unique(column, return_counts=True)
    return bool(counts[kinds == code].sum() > 2 * counts[kinds != code].max())


def issues_of_codes(view: RowSource) -> list[DataIssue]:
    """Return data warnings on numbers, such as -999, that are far from all others of a feature, or more frequent than them."""
    extremes = np.full((2, view.shape[1]), np.nan)
    for start, stop in row_ranges(view) if view.view_type == "features" else ():
        rows = view.read(start, stop)
        extremes[0] = np.fmin(extremes[0], np.fmin.reduce(rows))
        extremes[1] = np.fmax(extremes[1], np.fmax.reduce(rows))
    may_be = _are_codes(extremes)
    columns, codes = np.nonzero(may_be)[1], extremes[may_be]
    low, high = np.full((2, len(codes)), np.nan)
    for start, stop in row_ranges(view) if len(codes) else ():
        rows = view.read(start, stop)[:, columns]
        rows = np.where(_may_mark(rows, codes), np.nan, rows)
        low, high = np.fmin(low, np.fmin.reduce(rows)), np.fmax(high, np.fmax.reduce(rows))
    is_below = (codes < 0) & ((low >= 0) | (2 * (low - codes) > high - low))
    is_far = is_below | (np.fmax(-low, high) < np.abs(codes) / 10)
    is_far &= low < high
    may_repeat = np.flatnonzero(~is_far & (low < high) & (np.abs(codes) >= _LONG_CODE))[:_CORNER]
    if may_repeat.size:
        at = columns[may_repeat]
        rows = np.concatenate([view.read(*edges)[:, at] for edges in row_ranges(view)])
        is_far[may_repeat] = [
            _is_most_frequent(column, code)
            for column, code in zip(rows.T, codes[may_repeat], strict=True)
        ]
    names, issues = view.feature_names or [f"column {at}" for at in range(view.shape[1])], []
    for code in np.unique(codes[is_far]):
        at = columns[is_far & (codes == code)].tolist()
        message = (
            f"View {view.name!r}: {len(at)} column(s), the first {names[at[0]]!r}, have {code:g}, far from all other "
            "values or the most frequent one; write NaN (NA in text) if it marks missing cells."
        )
        first = tuple(at[:_SHOWN])
        issues.append(DataIssue(view.name, "missing codes", len(at), message, first))
    return issues


def check_values(view: RowSource) -> _Scan:
    """Refuse values that are NaN, infinite or beyond 1e304, and negative distances; return what one read found."""
    scan = _scan(view, digest=False)
    if not scan.is_finite:
        refuse_missing_cells([missing_cells(view)])
    _refuse_negative(view, scan)
    return scan


def validate_view(view: RowSource) -> tuple[DataIssue, ...]:
    """Return the data warnings of one view that is not empty; raise `DataError` as `validate` does."""
    _check_kind(view)
    scan = check_values(view)
    issues = _issues(view, scan)
    if view.view_type != "features":
        _check_pairwise(view, allowed={view.name: scan.rounding})
    return tuple(issues)


def _check_kind(view: RowSource) -> None:
    """Refuse a view of too few samples, or that is not square."""
    present = view.present
    if present is not None and len(present) < _MIN_PRESENT:
        raise DataError(
            f"View {view.name!r} has {len(present)} of {present.n_samples} samples (rows that are all "
            f"NaN are absent samples); allowed is at least {_MIN_PRESENT}. Drop the view."
        )
    check_not_empty(view)
    if view.view_type != "features" and view.shape[0] != view.shape[1]:
        raise DataError(
            f"View {view.name!r} has view_type={view.view_type!r} and shape {view.shape}; a {view.view_type} "
            "view is square, one row and one column per sample. Declare it view_type='features', or "
            "give the full matrix (scipy.spatial.distance.squareform expands a condensed one)."
        )


def _few_shared(data: MultiViewData, n_clusters: int) -> list[DataIssue]:
    """Data warning of views that too few samples link; views that are not linked are refused."""
    check_linked(data, n_clusters)
    groups, n_shared = linked_groups(data.presence, _LINKS_PER_CLUSTER * n_clusters)
    others, *names = [tuple(data.view_names[view] for view in group) for group in groups]
    message = (
        f"shares only {n_shared} of {data.n_samples} samples with view(s) {list(others)}, fewer than "
        f"{_LINKS_PER_CLUSTER} for each cluster, so they hardly tell which clusters of these views are the same. Add "
        "samples that both have, or lower n_clusters."
    )
    return [
        DataIssue(
            group[0], "few shared samples", n_shared, f"View {group[0]!r} {message}", others=others
        )
        for group in names
    ]


def check_linked(data: MultiViewData, n_clusters: int = 1) -> None:
    """Refuse views that no chain of shared samples links: one for each cluster, or a tenth of those of a view."""
    # Measured with two views of separate clusters: fewer gave an ARI of 0.2 to 0.6, five for each cluster 0.8 to 1.
    groups, n_shared = linked_groups(data.presence, n_clusters, share=0.1)
    if len(groups) > 1:
        first, *others = [[data.view_names[view] for view in group] for group in groups]
        raise DataError(
            f"View(s) {first} share at most {n_shared} of {data.n_samples} samples with view(s) "
            f"{' and '.join(map(str, others))}; allowed is one for each of {n_clusters} cluster(s), because "
            "only shared samples tell which clusters of one view are those of another. Add samples that both "
            "have, or cluster these views apart."
        )


def _issues(view: RowSource, scan: _Scan) -> list[DataIssue]:
    """Data warnings of a view of finite values that was scanned; constant and negative ones are refused."""
    is_constant = scan.lowest == scan.highest
    if is_constant.all():
        raise DataError(
            f"View {view.name!r} is constant: all {view.shape[0]} rows are equal in all "
            f"{view.shape[1]} columns, so it cannot tell samples apart. Drop the view."
        )
    _refuse_negative(view, scan)
    issues = []
    if scan.zero_rows:
        zeros = np.array(scan.zero_rows[:_SHOWN])
        present = view.present
        first = tuple((zeros if present is None else present.samples[zeros]).tolist())
        count = len(scan.zero_rows)
        message = (
            f"View {view.name!r}: {count} of {view.shape[0]} samples are all zero (first rows: {listed(first)}). This "
            "view does not distinguish them, so their clusters depend on the other views. If zero stands "
            "for 'not measured', drop these samples or this view."
        )
        issues.append(DataIssue(view.name, "zero rows", count, message, first))
    if view.view_type == "features" and is_constant.any():
        columns = np.flatnonzero(is_constant).tolist()
        message = (
            f"View {view.name!r}: {len(columns)} of {view.shape[1]} columns are constant (columns {listed(columns)}). "
            "They are zero after scaling and have no effect; they can be dropped."
        )
        first = tuple(columns[:_SHOWN])
        issues.append(DataIssue(view.name, "constant columns", len(columns), message, first))
    if scan.are_counts and view.shape[1] >= math.log2(view.shape[0]):
        message = (
            f"View {view.name!r} has counts: whole numbers from 0, 1 the most frequent positive one. Their logarithms "
            "log(1 + x) are clustered if no scale is given; give scale='unit' or 'standard' for the counts themselves."
        )
        issues.append(DataIssue(view.name, "counts", view.shape[1], message))
    named = {
        at: name
        for at, name in enumerate(view.feature_names or (view.name,) * (view.shape[1] == 1))
        if (label_rank(name) or is_of_ids(name))
        and not is_constant[at]
        and all(float(bound[at]).is_integer() for bound in (scan.lowest, scan.highest))
    }
    if view.view_type == "features" and named:
        names = tuple(named.values())
        message = (
            f"View {view.name!r} has column(s) {list(names)} of whole numbers, which are clustered like the "
            "other features. Drop them if they are labels; make them the index (frame.set_index) if they are ids."
        )
        issues.append(
            DataIssue(view.name, "label columns", len(names), message, tuple(named), names)
        )
    return issues


@dataclass(frozen=True)
class _Scan:
    """Facts about consecutive rows: the range (d,) of each column, NaN where there is one, and digests of blocks."""

    n_rows: int
    lowest: NDArray[np.float64]
    highest: NDArray[np.float64]
    zero_rows: list[int]
    blocks: list[bytes]
    ones: NDArray[np.int64]  # (d,) frequencies of 1 in the columns
    frequencies: NDArray[np.int64]  # of 0, 1, ..., 4095 and larger ones; none with other values

    @property
    def are_counts(self) -> bool:
        """Whether columns of more than 0 and 1 have whole numbers from 0, and 1 is the most frequent positive one."""
        if not self.frequencies.size:
            return False
        is_binary = self.highest <= 1
        n_ones = int(self.ones[is_binary].sum())
        n_zeros = self.n_rows * np.count_nonzero(is_binary) - n_ones
        zeros, *positive = self.frequencies - np.pad([n_zeros, n_ones], (0, _LARGEST_COUNT))
        return bool(zeros > 0 and max(positive[:-1]) == positive[0] > 0)

    @property
    def are_marks(self) -> bool:
        """Whether all values of features are 0 or 1, and some are 1."""
        return any(self.frequencies[1:2]) and not any(self.frequencies[2:])

    @property
    def is_finite(self) -> bool:
        return bool(self.lowest.min() >= -LARGEST and self.highest.max() <= LARGEST)

    @property
    def rounding(self) -> float:
        """Difference that rounding explains."""
        return _TOLERANCE * max(abs(float(self.lowest.min())), abs(float(self.highest.max())))

    def joined(self, later: _Scan) -> _Scan:
        """Return the facts about these rows and those that follow."""
        return _Scan(
            self.n_rows + later.n_rows,
            np.minimum(self.lowest, later.lowest),
            np.maximum(self.highest, later.highest),
            [*self.zero_rows, *(self.n_rows + row for row in later.zero_rows)],
            [*self.blocks, *later.blocks],
            self.ones + later.ones,
            _added(self.frequencies, later.frequencies),
        )


def _scan(view: RowSource, *, digest: bool) -> _Scan:
    """Facts about some rows from one read."""
    n_columns = view.shape[1]
    lowest, highest = np.full(n_columns, np.inf), np.full(n_columns, -np.inf)
    zero_rows: list[int] = []
    read = ViewDigest()
    ones = np.zeros(n_columns, dtype=np.int64)
    frequencies = np.zeros(
        _LARGEST_COUNT + 2 if view.view_type == "features" else 0, dtype=np.int64
    )
    for start, stop in row_ranges(view):
        rows = view.read(start, stop)
        if frequencies.size:
            frequencies = _added(frequencies, _frequencies(rows))
        if frequencies.size:
            ones += np.count_nonzero(rows == 1.0, axis=0)
        np.minimum(lowest, rows.min(axis=0), out=lowest)
        np.maximum(highest, rows.max(axis=0), out=highest)
        zero_rows.extend((np.flatnonzero(~rows.any(axis=1)) + start).tolist())
        if digest:
            read.update(rows)
    return _Scan(
        view.shape[0],
        lowest,
        highest,
        zero_rows,
        read.blocks(),
        ones,
        frequencies,
    )


def _frequencies(rows: NDArray[np.float64]) -> NDArray[np.int64]:
    """Frequencies of 0, 1, ..., 4095, and of all larger values; none if some are no whole numbers from 0."""
    found, values = np.zeros(_LARGEST_COUNT + 2, dtype=np.int64), rows.ravel()
    for first in range(0, len(values), _COUNTED_TOGETHER):
        some = values[first : first + _COUNTED_TOGETHER]
        if not ((some >= 0.0) & (some == np.floor(some))).all():
            return np.zeros(0, dtype=np.int64)
        whole = np.minimum(some, _LARGEST_COUNT + 1).astype(np.int64)
        found += np.bincount(whole, minlength=len(found))
    return found


def _added(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sum of two frequencies; none if one of them has none."""
    return one + other if one.size == other.size else np.zeros(0, dtype=np.int64)


def repeated_samples(groups: NDArray[np.int64] | None, n_clusters: int) -> tuple[DataIssue, ...]:
    """Data warning if fewer samples are distinct than clusters: `groups` (n,) of equal ones, −1 for others, or None."""
    if groups is None:
        return ()
    equal = np.flatnonzero(groups >= 0)
    _, first = np.unique(groups[equal], return_index=True)
    repeated = np.delete(equal, first).tolist()
    n_distinct = len(groups) - len(repeated)
    if n_distinct >= n_clusters:
        return ()
    message = (
        f"Only {n_distinct} of {len(groups)} samples are distinct: the others (rows {listed(repeated)}) equal an "
        f"earlier sample in every view. Set n_clusters to at most {n_distinct}, because more clusters "
        "split equal samples at random, or check how the views were made."
    )
    return (DataIssue("", "repeated samples", len(repeated), message, tuple(repeated[:_SHOWN])),)


def _refuse_negative(view: RowSource, scan: _Scan) -> None:
    lowest = float(scan.lowest.min())
    if view.view_type == "distance" and lowest < -scan.rounding:
        raise DataError(
            f"Distance view {view.name!r} has negative values, down to {lowest:.6g}; "
            "distances are nonnegative. If it holds similarities, declare it view_type='kernel'."
        )


def are_distances(corner: NDArray[Any]) -> bool:
    """Return whether a symmetric matrix (n, n) with few rows is 0 on the diagonal and obeys the triangle inequality."""
    gaps = corner.astype(np.float64)
    # absent samples are NaN, which neither test refuses
    return (
        not np.nan_to_num(gaps.diagonal()).any()
        and not (gaps[:, None] > (1 + _TOLERANCE) * (gaps[:, :, None] + gaps)).any()
    )


def _check_pairwise(view: RowSource, *, allowed: Mapping[str, float]) -> None:
    """Refuse a square view of finite values that is no distance or kernel matrix up to the rounding `allowed`."""
    rounding = allowed[view.name]
    diagonal = np.empty(view.shape[0])
    corner = view.read(0, min(view.shape[0], _CORNER))[:, :_CORNER]
    n_zero, n_different, largest, where = 0, 0, 0.0, (0, 0)
    ranges = list(row_ranges(view))
    for index, (start, stop) in enumerate(ranges):
        rows = view.read(start, stop)
        diagonal[start:stop] = rows.diagonal(offset=start)
        n_zero += int(np.count_nonzero(rows == 0))
        for other_start, other_stop in ranges[: index + 1]:
            others = rows if other_start == start else view.read(other_start, other_stop)
            with np.errstate(over="ignore"):
                gap = np.abs(rows[:, other_start:other_stop] - others[:, start:stop].T)
            different = int(np.count_nonzero(gap > rounding))
            # The diagonal tile holds each pair twice.
            n_different += different // 2 if other_start == start else different
            if different and gap.max() > largest:
                row, column = np.unravel_index(int(gap.argmax()), gap.shape)
                largest = float(gap.max())
                where = (int(row) + start, int(column) + other_start)
    in_order = (
        "If its rows are in another order than its columns, name both by the sample ids (index and columns of a "
        "frame) or give them in one order"
    )
    is_wrong, remedy = diagonal < -rounding, f"{in_order}, or"
    rule, other, content = (
        "squared lengths on the diagonal of a kernel are nonnegative",
        "distance",
        "distances",
    )
    if view.view_type == "distance":
        is_wrong |= diagonal > rounding
        rule, other, content = "the distance of a sample to itself is 0", "kernel", "similarities"
        if np.ptp(diagonal) <= rounding:
            remedy = "Set the diagonal to 0 if it holds distances, or"
    elif diagonal.max() <= rounding and len(np.unique(corner)) > 2 and are_distances(corner):
        is_wrong[:] = True
        rule = "a kernel has similarities there, and its values do not obey the triangle inequality as these do"
        remedy = "Write the similarity of each sample to itself, or"
    problem = ""
    if is_wrong.any():
        far = int(np.where(is_wrong, np.abs(diagonal), 0).argmax())
        problem = (
            f"has {diagonal[far]:.6g} on the diagonal, in row {far}; {rule}. {remedy} declare view_type={other!r} if it "
            f"holds {content}"
        )
    elif (
        view.view_type == "distance"
        and 2 * n_zero > len(diagonal) ** 2
        and not are_distances(corner)
    ):
        problem = (
            f"has 0 in {n_zero} of {len(diagonal) ** 2} cells, also for samples that are not equal, as graphs of neighbors "
            "have for all others. Give the distances of all pairs of samples"
        )
    elif n_different:
        problem = (
            f"is not symmetric: {n_different} pair(s) of samples differ from their transpose by more than {rounding:.3g}, "
            f"the most at {where} by {largest:.6g}. {in_order}; if one triangle has 0, fill it (numpy.where(matrix == 0, matrix.T, matrix)); "
            "if both directions are estimates of one value, pass (matrix + matrix.T) / 2; if rows are coordinates, declare view_type='features'"
        )
    if problem:
        raise DataError(f"{view.view_type.capitalize()} view {view.name!r} {problem}.")

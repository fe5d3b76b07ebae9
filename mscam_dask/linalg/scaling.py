"""Column moments of streamed row blocks, and the scalings computed from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mscam_dask.errors import ConfigurationError
from mscam_dask.types.parameters import Scale

# A column with a range below this share of its magnitude counts as constant.
_CONSTANT_TOLERANCE = 8 * np.finfo(np.float64).eps

# For magnitudes from 2^-200 to 2^200, squares, their sums and products neither underflow nor
# overflow.
_SAFE_EXPONENT = 200


def safe_exponent(largest: NDArray[np.float64]) -> NDArray[np.int32]:
    """Powers of two to divide magnitudes by so that their squares and sums are finite.

    0 between 2^-200 and 2^200 and for 0: ordinary data keep their bits. Else e with largest / 2^e
    in [1/2, 1); `numpy.ldexp(x, -e)` is exact down to 2^-822 of the largest magnitude.
    """
    exponent = np.frexp(largest)[1]
    return np.where(np.abs(exponent) > _SAFE_EXPONENT, exponent, 0).astype(np.int32)


@dataclass(frozen=True, slots=True)
class ColumnMoments:
    """Count, mean, spread and range of each column of some rows; arrays (d,)."""

    count: int
    mean: NDArray[np.float64]
    deviation_norm: NDArray[np.float64]  # root of the sum of squared deviations
    minimum: NDArray[np.float64]
    maximum: NDArray[np.float64]

    @classmethod
    @np.errstate(under="ignore")
    def from_rows(cls, rows: NDArray[np.float64]) -> ColumnMoments:
        """Moments of one block of finite rows (m, d)."""
        minimum, maximum = rows.min(axis=0), rows.max(axis=0)
        # powers of two: scaling by them is exact
        exponent = np.frexp(np.maximum(np.abs(minimum), np.abs(maximum)))[1]
        scaled = np.ldexp(rows, -exponent)
        mean = scaled.mean(axis=0)
        scaled -= mean
        spread_exponent = np.frexp(np.abs(scaled).max(axis=0))[1]
        scaled = np.ldexp(scaled, -spread_exponent)
        norm = np.sqrt(np.einsum("ij,ij->j", scaled, scaled))
        return cls(
            count=len(rows),
            mean=np.clip(np.ldexp(mean, exponent), minimum, maximum),
            deviation_norm=np.ldexp(norm, spread_exponent + exponent),
            minimum=minimum,
            maximum=maximum,
        )

    @np.errstate(under="ignore")
    def merge(self, other: ColumnMoments) -> ColumnMoments:
        """Moments of both sets of rows together (Chan, Golub, LeVeque 1983)."""
        count = self.count + other.count
        # halves: the difference of two means of opposite sign may exceed the range
        half_gap = 0.5 * other.mean - 0.5 * self.mean
        mean = self.mean + 2.0 * (half_gap * (other.count / count))
        minimum = np.minimum(self.minimum, other.minimum)
        maximum = np.maximum(self.maximum, other.maximum)
        between = 2.0 * np.sqrt(self.count / count * other.count) * np.abs(half_gap)
        return ColumnMoments(
            count=count,
            mean=np.clip(mean, minimum, maximum),
            deviation_norm=np.hypot(np.hypot(self.deviation_norm, other.deviation_norm), between),
            minimum=minimum,
            maximum=maximum,
        )

    @property
    @np.errstate(under="ignore")
    def standard_deviation(self) -> NDArray[np.float64]:
        """Population standard deviation of each column, shape (d,)."""
        return np.asarray(self.deviation_norm / np.sqrt(self.count), dtype=np.float64)

    @property
    @np.errstate(under="ignore")
    def is_constant(self) -> NDArray[np.bool_]:
        """Columns that hold one value, to a few units in the last place, shape (d,)."""
        magnitude = np.maximum(np.abs(self.minimum), np.abs(self.maximum))
        half_range = 0.5 * self.maximum - 0.5 * self.minimum
        return np.asarray(half_range <= 0.5 * _CONSTANT_TOLERANCE * magnitude, dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class RowTransform:
    """Scaling of the rows of a view: x / 2^exponent, minus offset, over scale; arrays (d,)."""

    kind: Scale
    exponent: NDArray[np.int32]  # 0 but for columns of extreme magnitude
    offset: NDArray[np.float64]
    scale: NDArray[np.float64]
    constant: NDArray[np.bool_]  # columns mapped to 0

    @np.errstate(under="ignore")
    def apply(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scaled C-contiguous copy of a block of finite rows (m, d)."""
        if self.kind in BY_ROWS:
            return _unit_rows(logarithms(rows) if self.kind == "log" else rows)
        if self.exponent.any():
            rows = np.ldexp(rows, -self.exponent)
        if self.kind == "none":
            return np.array(rows, dtype=np.float64, order="C")
        scaled = np.ascontiguousarray(rows - self.offset)
        scaled /= self.scale
        scaled[:, self.constant] = 0.0
        return scaled

    def of_steps(
        self, steps: NDArray[np.float64], rows: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Scaled differences (d,) within a column; those of unit rows for the median length of `rows` (m, d)."""
        if self.kind == "log":  # steps from 0, the largest ones
            steps, rows = logarithms(steps), logarithms(rows)
        if self.kind in BY_ROWS:
            exponent = -int(np.frexp(np.abs(rows).max(initial=0.0))[1])
            lengths = np.linalg.norm(np.ldexp(rows, exponent), axis=1)
            present = lengths[lengths > 0.0]
            if not len(present):
                return 0.0 * steps
            # values of unit rows are from −1 to 1
            return np.asarray(np.minimum(np.ldexp(steps, exponent) / np.median(present), 2.0))
        return np.where(self.constant, 0.0, np.ldexp(steps, -self.exponent) / self.scale)


SCALINGS: dict[str, Callable[[ColumnMoments], tuple[NDArray[np.float64], NDArray[np.float64]]]] = {
    "standard": lambda moments: (moments.mean, moments.standard_deviation),
    "minmax": lambda moments: (moments.minimum, moments.maximum - moments.minimum),
}
"""Offset and scale (d,) of each scaling by columns; a new one is a line here and a name in `Scale`."""


BY_ROWS: tuple[Scale, ...] = ("unit", "log")
"""Scalings of each row by itself, to unit length."""


@np.errstate(under="ignore")
def fit_transform_from_moments(kind: Scale, moments: ColumnMoments) -> RowTransform:
    """Fit a scaling to a view with these column moments.

    "standard": columns to mean 0 and variance 1; "minmax": columns to [0, 1]; both set constant
    columns to 0. "unit": rows to norm 1, zero rows stay zero; "log": the same of their `logarithms`.
    "none": as they are, but for a power of two.
    """
    if kind not in (*SCALINGS, *BY_ROWS, "none"):
        raise ConfigurationError(
            f"the scaling {kind!r} is not in SCALINGS of this process. Import the module that adds it on the workers too."
        )
    d = len(moments.mean)
    offset, scale = np.zeros(d), np.ones(d)
    constant = np.zeros(d, dtype=np.bool_)
    largest = np.maximum(np.abs(moments.minimum), np.abs(moments.maximum))
    if kind not in SCALINGS:
        largest = np.broadcast_to(largest.max(initial=0.0), d)
    exponent = np.zeros(d, dtype=np.int32) if kind in BY_ROWS else safe_exponent(largest)
    if kind in SCALINGS:
        names = ("mean", "deviation_norm", "minimum", "maximum")
        divided = {name: np.ldexp(getattr(moments, name), -exponent) for name in names}
        offset, scale = SCALINGS[kind](replace(moments, **divided))
        constant = moments.is_constant
    return RowTransform(
        kind=kind,
        exponent=exponent,
        offset=offset,
        scale=np.where(constant | (scale <= 0), 1.0, scale),
        constant=constant,
    )


def _unit_rows(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows divided by their Euclidean norm; the largest entry first, so nothing overflows."""
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    exponent = safe_exponent(largest)
    if exponent.any():  # the reciprocal of a subnormal number is none
        rows, largest = np.ldexp(rows, -exponent), np.ldexp(largest, -exponent)
    unit = np.ascontiguousarray(rows / np.where(largest > 0, largest, 1.0))
    norms = np.sqrt(np.einsum("ij,ij->i", unit, unit))[:, None]
    unit /= np.where(norms > 0, norms, 1.0)
    return unit


def logarithms(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithms sign(x) log(1 + |x|) of rows, such as counts: zero stays zero."""
    return np.asarray(np.copysign(np.log1p(np.abs(rows)), rows))


@dataclass(frozen=True, slots=True)
class BatchCorrection:
    """Corrected rows of one view: (x − offsets[b]) · factors[b]."""

    offsets: NDArray[np.float64]  # (B, d)
    factors: NDArray[np.float64]  # (B, d)

    def of_rows(self, rows: NDArray[np.float64], batches: NDArray[np.int64]) -> NDArray[np.float64]:
        """Corrected rows (m, d) of batches (m,)."""
        return np.asarray((rows - self.offsets[batches]) * self.factors[batches])

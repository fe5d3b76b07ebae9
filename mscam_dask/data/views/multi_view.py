"""Several views of the same samples."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.sample_ids import check_printable, check_sample_ids
from mscam_dask.data.views.sources import RowSource, view_digest
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.types.parameters import Scale


@dataclass(frozen=True, eq=False)
class MultiViewData:
    """The same n samples in one or more views: row i of each is sample i.

    An incomplete view is a `PresentRows`; every sample is in at least one view. `labels` (n,) are the ground truth, −1
    for unlabeled samples, for evaluation only, and `label_names` the names of label 0, 1, ....
    """

    views: tuple[RowSource, ...]
    sample_ids: tuple[str, ...] | None = None
    labels: NDArray[np.int64] | None = None
    label_names: tuple[str, ...] | None = None
    log_views: frozenset[str] = frozenset()  # whose logarithms are compared, such as counts

    def __post_init__(self) -> None:
        if not self.views:
            raise DataError(
                "No views were given; allowed is one or more (n_samples, n_features) arrays. "
                "Pass a list or dict of arrays, an xarray.Dataset or a store path."
            )
        repeated = [name for name, count in Counter(self.view_names).items() if count > 1]
        if repeated:
            raise DataError(
                f"View names {repeated} are used more than once in {list(self.view_names)}; "
                "names must be unique. Rename all but one of them."
            )
        self._check_counts()
        check_printable(self.view_names, "view name")
        check_printable(self.label_names or (), "label")
        for what, values in (("sample ids", self.sample_ids), ("labels", self.labels)):
            if values is not None and len(values) != self.n_samples:
                raise DataError(
                    f"Got {len(values)} {what} for {self.n_samples} samples (rows of the views "
                    f"{list(self.view_names)}); there must be one per sample, or none at all.{self._turn(len(values))}"
                )
        if self.sample_ids is not None:
            check_sample_ids(self.sample_ids, where="the data")
        nowhere = np.flatnonzero(~self.presence.any(axis=1)).tolist() if self.is_incomplete else []
        if nowhere:
            ids = self.sample_ids
            shown = nowhere[:5] if ids is None else [ids[row] for row in nowhere[:5]]
            raise DataError(
                f"{len(nowhere)} sample(s) are absent from every view: all their values are NaN (first "
                f"{'rows' if ids is None else 'ids'}: {shown}). Drop these samples; every sample must be in at "
                "least one view."
            )

    def _check_counts(self) -> None:
        counts = {view.name: view.n_samples for view in self.views}
        if len(set(counts.values())) == 1:
            return
        known = (*counts.values(), self.views[0].shape[1])
        listing = ", ".join(f"{name!r}: {count}" for name, count in counts.items())
        raise DataError(
            f"The views have different numbers of samples ({listing}); every view must have "
            "one row per sample. Keep the samples that all views share, in the same order, give rows of NaN for those that a "
            "view does not have (frame.reindex(ids)), or read the views of one part, such as training samples (--view NAME for "
            f"each).{next(filter(None, map(self._turn, known)), '')}"
        )

    def _turn(self, n_samples: int) -> str:
        """Advice to transpose the views that have so many columns, if all others have so many rows."""
        turned = [view.name for view in self.views if view.shape[0] != n_samples]
        if not all(n_samples in view.shape for view in self.views):
            return ""
        return (
            f" If the samples are the {n_samples} columns of {turned}, transpose these (files: "
            "samples_in='columns', --samples-in columns)."
        )

    @property
    def n_samples(self) -> int:
        """Number of samples n."""
        return self.views[0].n_samples

    def row_scale(self, view: str) -> Scale:
        """Scaling of the rows of a view to unit length: of its logarithms, or of its values."""
        return "log" if view in self.log_views else "unit"

    @property
    def is_incomplete(self) -> bool:
        """Whether a view does not have all samples."""
        return any(view.present is not None for view in self.views)

    @property
    def presence(self) -> NDArray[np.bool_]:
        """Whether each view (columns) has each sample (rows)."""
        return presence_table(self.views)

    def covers_samples_without(self, excluded: Collection[int]) -> bool:
        """Whether every sample is in a view that is not at one of these positions."""
        kept = [view for index, view in enumerate(self.views) if index not in excluded]
        return not self.is_incomplete or bool(presence_table(kept).any(axis=1).all())

    @property
    def view_names(self) -> tuple[str, ...]:
        """Names of the views, in order."""
        return tuple(view.name for view in self.views)

    @property
    def nbytes(self) -> int:
        """Bytes of all views as dense float64, the form in which they are computed on."""
        return sum(8 * view.shape[0] * view.shape[1] for view in self.views)

    def digest(self) -> str:
        """SHA-256 (hexadecimal) of the names, view types, shapes and values of all views; a store has recorded it."""
        total = hashlib.sha256()
        for view in self.views:
            values = view.recorded_digest or view_digest(view)
            if view.present is not None:  # number of samples, and ranges "first-last"
                samples = view.present.samples
                runs = np.split(samples, np.flatnonzero(np.diff(samples) != 1) + 1)
                values += f"{view.n_samples}:" + ",".join(f"{run[0]}-{run[-1]}" for run in runs)
            total.update(f"{len(view.name)}:{view.name};{view.view_type};{values};".encode())
        return total.hexdigest()


def option_by_view(
    option: str, value: Any, names: Sequence[str], allowed: Sequence[Any]
) -> dict[str, Any]:
    """Values of an option by view, from one for all views, one for each in order, or a mapping by name of some."""
    if hasattr(value, "items"):
        found = {str(name): one for name, one in value.items()}
    elif isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        if len(value) != len(names):
            raise ConfigurationError(
                f"{option} has {len(value)} entries for {len(names)} views {list(names)}; give one per "
                "view, or a mapping by name."
            )
        found = dict(zip(names, value, strict=True))
    else:
        found = dict.fromkeys(names, value)
    unknown = sorted(set(found) - set(names))
    if unknown:
        raise ConfigurationError(
            f"{option} names view(s) {unknown} that do not exist; the views are {list(names)}."
        )
    for name, one in found.items():
        if one not in allowed:
            raise ConfigurationError(
                f"{option}={one!r} for view {name!r}; allowed are {list(allowed)}, for all views or as a mapping "
                "by view name."
            )
    return found


def presence_table(views: Sequence[RowSource]) -> NDArray[np.bool_]:
    """Return whether each view (columns) has each sample (rows)."""
    table = np.ones((views[0].n_samples, len(views)), dtype=np.bool_)
    for column, view in enumerate(views):
        if view.present is not None:
            table[:, column] = view.present.positions >= 0
    return table

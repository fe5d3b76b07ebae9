"""Clusters of samples that were not in the fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.data.views.sources import ViewDigest, recorded_digest
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.estimators._inputs import MultiViewInputMixin
from mscam_dask.solvers.predict import predict_by_neighbors
from mscam_dask.solvers.row_blocks import row_blocks
from mscam_dask.types.result import Solution

__all__ = ["NeighborPredictMixin"]

# Coordinates of new samples, in units of the training samples' spread, whose squares are numbers.
_FARTHEST = 1e150

_CHANGED = (
    "View {!r}: the training samples are not those of the fit any more. Predict reads them again, and "
    "the array that fit was given was written to since. Fit again, and give fit a copy, or the path "
    "of a store, where the array is to be used for something else."
)


class NeighborPredictMixin(MultiViewInputMixin):
    """Part of an estimator: new samples join the cluster of their neighbours in the anchor space."""

    solver: str
    labels_: NDArray[np.int64]
    n_neighbors_: int
    solution_: Solution
    _training_digests: dict[str, str]

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Clusters of new samples, by their adaptive neighbours among the training samples.

        Parameters
        ----------
        X : as for `fit`
            The same views of other samples; values of those left out are not looked at, and they
            need not be there. A distance or kernel view holds the new samples' distances or kernel
            values to the training samples, (n_new, n_samples). Columns of frames and DataArrays
            have the names of the fit, in its order; where only one of the two has names, a
            `UserWarning` says that columns go by their order.

        Returns
        -------
        (n_new,) int64

        Raises
        ------
        DataError
            The views are not those of the fit, their features have other names, or their values
            are not finite, negative distances or too far away; or a training array was changed
            since the fit. The message names the view.

        Notes
        -----
        The training samples are not copied: arrays are kept as they were given to `fit`, read again,
        and compared with their digests of then.
        """
        check_is_fitted(self)
        if not self.solution_.encoders:
            raise ConfigurationError(
                f"solver={self.solver!r} has no form for new samples; fit with solver='reduced'."
            )
        fresh = self._views(X, reset=False)
        queries = self._anchors(fresh, 0, fresh.n_samples)
        train = MultiViewData(
            tuple(view for view in self._training.views if view.name in self.solution_.encoders)
        )
        width = sum(source.shape[1] for source in train.views)

        # a store compares what it reads with its own checksums
        digests = {
            source.name: ViewDigest(source.shape)
            for source in train.views
            if not recorded_digest(source)
        }

        def blocks() -> Iterator[tuple[int, NDArray[np.float64]]]:
            for start, stop in row_blocks(train.n_samples, width):
                yield start, self._anchors(train, start, stop, digests)
            for name, digest in digests.items():
                if digest.hexdigest() != self._training_digests[name]:
                    raise DataError(_CHANGED.format(name))

        return predict_by_neighbors(queries, blocks(), self.labels_, n_neighbors=self.n_neighbors_)

    def _anchors(
        self,
        data: MultiViewData,
        start: int,
        stop: int,
        digests: Mapping[str, ViewDigest] | None = None,
    ) -> NDArray[np.float64]:
        """Anchor coordinates of new samples or, with digests, which rows go into, of those fitted."""
        encoders = self.solution_.encoders
        parts = []
        for source in data.views:
            rows = source.read(start, stop)
            if digests is not None and source.name in digests:
                digests[source.name].update(rows)
            with np.errstate(over="ignore", invalid="ignore"):
                parts.append(encoders[source.name](rows))
        for source, part in zip(data.views, parts, strict=True):
            far = np.flatnonzero(~(np.abs(part) < _FARTHEST).all(axis=1))
            if far.size and digests is not None:  # none were in the fit
                raise DataError(_CHANGED.format(source.name))
            if far.size:
                raise DataError(
                    f"View {source.name!r}: {far.size} new sample(s) are farther than {_FARTHEST:g} "
                    f"times the spread of the training samples (first rows: "
                    f"{(far[:5] + start).tolist()}); no distance to them can be computed. Check "
                    "their units."
                )
        return np.asarray(np.hstack(parts) / np.sqrt(len(parts)), dtype=np.float64)

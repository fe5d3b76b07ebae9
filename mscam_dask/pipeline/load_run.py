"""A finished run as a fitted estimator, its predictions for the samples of files, and tables with a row for each sample."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mscam_dask.data.readers.combine import gather
from mscam_dask.data.results import read_model, read_result
from mscam_dask.data.store.dataset import is_store, open_store
from mscam_dask.data.store.object_store import Location
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.rows import restrict_to_present
from mscam_dask.data.views.sources import RowSource, ViewType
from mscam_dask.errors import DataError
from mscam_dask.estimators._stored import FittedModel, restore_fit
from mscam_dask.estimators.mscam import MSCAM
from mscam_dask.pipeline.open_data import files_of, sample_column
from mscam_dask.pipeline.settings import ClusterTable, DataTable
from mscam_dask.pipeline.stored_run import StoredRun, sample_table


def load_run(path: str | os.PathLike[str]) -> MSCAM:
    """Load a finished run as a fitted estimator.

    Parameters
    ----------
    path
        The run directory, or a link to it.

    Returns
    -------
    MSCAM or MSCAN
        With the parameters and the attributes of the fit. `predict` gives the labels that the
        estimator of the run gave; clusters are named as in labels.csv. Up to 12 000 samples, all
        that it needs is in the run directory. Above, for `cluster_features`, and for
        new samples with missing cells, it reads the data of the run, which must be where they were, and
        unchanged. Missing cells are filled as in the store of the run ([data] impute, or ingest --impute).

    Raises
    ------
    DataError
        There is no run, or it is not finished, damaged, or of another version.
    """
    run = StoredRun.read(path).finished()
    record, directory = run.record, run.directory
    result, model = read_result(directory.result), read_model(directory.result, FittedModel)
    sample_ids = tuple(run.labels().index) if run.data.has_sample_ids else None
    if len(result.labels) != run.data.n_samples:
        raise DataError(
            f"{directory.result} is not the result of the run in {directory.path}. Restore the "
            "directory from a copy, or run the pipeline again with --overwrite."
        )
    try:
        parameters = (record.settings or {})["cluster"]["parameters"]
        n_samples, presence = run.data.n_samples, model.presence
        if presence is None:
            presence = np.ones((n_samples, len(run.data.views)), dtype=np.bool_)
        views = tuple(
            restrict_to_present(
                _RunView(
                    name=view.name,
                    view_type=cast("ViewType", view.view_type),
                    shape=(n_samples, view.shape[1] if view.view_type == "features" else n_samples),
                    dtype=np.dtype(view.dtype),
                    recorded_digest=view.digest,
                    feature_names=model.feature_names[view.name],
                    store=run.store,
                ),
                np.flatnonzero(~has),
            )
            for view, has in zip(run.data.views, presence.T, strict=True)
        )
        table = {"method": record.method, "parameters": parameters}
        estimator = msgspec.convert(table, ClusterTable).estimator()
        others = {view.name: view.view_type for view in views if view.view_type != "features"}
        if others:
            estimator.set_params(view_type=others)
        training = MultiViewData(views, sample_ids=sample_ids)
        restore_fit(estimator, result, model, training)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{directory.path} holds a run that this version cannot load ({error!r}). Load it with "
            f"mscam_dask {record.versions.get('mscam_dask', 'of that time')}, or run the pipeline again."
        ) from error
    return estimator


@dataclasses.dataclass(frozen=True, eq=False)
class _RunView(RowSource):
    """View of the data of a run, whose store is opened when rows are read."""

    name: str
    view_type: ViewType
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    store: Location
    recorded_digest: str = ""
    feature_names: tuple[str, ...] | None = None

    def _rows(self, start: int, stop: int) -> NDArray[np.float64]:
        return self._stored.read(start, stop)

    @cached_property
    def _stored(self) -> RowSource:
        try:
            data = open_store(self.store)
        except DataError as error:
            raise DataError(
                f"View {self.name!r}: the samples of the run cannot be read. {error}"
            ) from error
        for view in data.views:
            if view.name == self.name and view.recorded_digest == self.recorded_digest:
                return view.whole
        raise DataError(
            f"View {self.name!r}: {self.store} has changed since the run, which needs its samples. "
            "Restore the store, or load a later run."
        )


def predict_files(
    run: str | os.PathLike[str], sources: Sequence[str], batches: str | None = None
) -> pd.DataFrame:
    """Predict the clusters of the samples of files with a finished run; `attrs` has the notes of their readers."""
    estimator = load_run(run)
    try:
        table = msgspec.convert((StoredRun.read(run).record.settings or {})["data"], DataTable)
    except (KeyError, msgspec.ValidationError) as error:
        raise DataError(
            f"the run has no settings [data] of this version ({error}). Ingest the new samples into a "
            "store, and load the run in Python (mscam_dask.load_run)."
        ) from error
    with ExitStack() as stack:
        new, notes = _new_samples(estimator, table, sources, stack)
        of_samples = None
        if batches is not None:
            of_samples, more = sample_column(Path(batches), files_of(table, sources), new)
            notes += more
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            labels = estimator.predict(new, batches=of_samples)
            membership = estimator.predict_proba(new, batches=of_samples)
        notes += tuple(dict.fromkeys(str(one.message) for one in caught))
    found = sample_table(new.sample_ids, labels, membership, estimator.cluster_names_)
    found.attrs["notes"] = notes
    return found


def _new_samples(
    estimator: MSCAM, table: DataTable, sources: Sequence[str], stack: ExitStack
) -> tuple[MultiViewData, tuple[str, ...]]:
    """The new samples, and notes on how their files were read."""
    if len(sources) == 1 and is_store(sources[0]):
        return open_store(sources[0]), ()
    files = files_of(table, sources)
    excluded = estimator.excluded_views_
    views: list[str] | dict[str, str]
    if isinstance(table.views, dict):
        views = {old: new for old, new in table.views.items() if new not in excluded}
    else:
        listed = table.views or list(estimator.view_names_)
        views = [name for name in listed if name not in excluded]
    if table.labels is not None and not Path(table.labels).is_file():
        with contextlib.suppress(DataError):  # new samples need no labels
            return gather(files, views, table.labels, stack, table.join, may_lack_views=True)[:2]
    return gather(files, views, None, stack, table.join, may_lack_views=True)[:2]

"""Files in, one store out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.append import joined_samples
from mscam_dask.data.conversion import common_sample_ids
from mscam_dask.data.labels import encode_labels
from mscam_dask.data.matching import in_one_order
from mscam_dask.data.multiview import MultiViewData
from mscam_dask.data.objects import Location, size_of
from mscam_dask.data.publication import current
from mscam_dask.data.readers import Loaded, Selection, Source, read_labels, read_source
from mscam_dask.data.sources import Metric, RowSource
from mscam_dask.data.store import open_store
from mscam_dask.data.store_writer import check_output, write_store
from mscam_dask.data.views import MetricSpec, as_multi_view, with_metrics
from mscam_dask.errors import DataError

__all__ = ["IngestReport", "Source", "ViewRecord", "append", "ingest"]

Sources = str | Location | Source | MultiViewData | Sequence[str | Location | Source]


@dataclass(frozen=True)
class ViewRecord:
    """What was stored of one view."""

    name: str
    metric: Metric
    shape: tuple[int, int]
    dtype: str


@dataclass(frozen=True)
class IngestReport:
    """What `ingest` wrote.

    Attributes
    ----------
    output
        Absolute path, or the URL, of the store.
    n_samples, views
        What is in it.
    n_classes
        Number of distinct labels, None without labels.
    has_sample_ids
        Whether samples have ids.
    notes
        What was taken for what, and what was left out, one sentence each.
    stored_bytes
        Size of the store where it lies.
    digest
        `MultiViewData.digest` of the store.
    """

    output: Location
    n_samples: int
    views: tuple[ViewRecord, ...]
    n_classes: int | None
    has_sample_ids: bool
    notes: tuple[str, ...]
    stored_bytes: int
    digest: str


def ingest(
    sources: Sources,
    output: str | Location,
    *,
    views: Sequence[str] | Mapping[str, str] | None = None,
    metric: MetricSpec | None = None,
    labels: str | Path | Sequence[Any] | NDArray[Any] | None = None,
    chunk_rows: int | None = None,
    overwrite: bool = False,
) -> IngestReport:
    """Turn files of several views of the same samples into one chunked, checksummed store.

    Parameters
    ----------
    sources
        One or more files: .npz, .npy, .mat (v5, v7.3), .csv, .tsv, whitespace-separated text
        (any other name, such as the UCI files mfeat-pix), NetCDF (.nc), a Zarr directory, or a
        directory with the six UCI mfeat files; or the URL of a store of this package. `Source`
        adds how a file is to be read. A `MultiViewData` is written as it is. Sources with sample
        ids hold the same ids, in any order: rows are put in the order of the first of them.
        Row i of a source without ids is sample i.
    output
        Directory or URL of the store; see `write_store` for how it comes into being.
    views
        Which views to take, in which order; a mapping also renames them, {name in the source:
        name in the store}. All of them by default.
    metric
        As in `as_multi_view`; by default what the sources say, else "features".
    labels
        Ground truth for evaluation: name of a variable or column of the sources, a file with
        one label per line, or the labels themselves (in the order of the store). By default what
        the sources call labels.
    chunk_rows
        Samples per chunk; by default as many as make 8 MiB in each view.
    overwrite
        Replace a store that is there.

    Returns
    -------
    IngestReport

    Raises
    ------
    DataError
        When a source cannot be read, holds Python objects, or the views do not fit each
        other: numbers of samples, ids, names; when a value is NaN or infinite; when `output`
        exists.
    ConfigurationError
        When an option names something that does not exist.
    """
    check_output(output, overwrite=overwrite)
    with ExitStack() as stack:
        data, notes = _gather(sources, views, labels, stack)
        data = with_metrics(data, "features" if metric is None else metric)
        root = write_store(data, output, chunk_rows=chunk_rows, overwrite=overwrite)
    return _report(root, notes)


def append(
    sources: Sources,
    output: str | Location,
    *,
    views: Sequence[str] | Mapping[str, str] | None = None,
    metric: MetricSpec | None = None,
    labels: str | Path | Sequence[Any] | NDArray[Any] | None = None,
    chunk_rows: int | None = None,
) -> IngestReport:
    """Add the samples of files to a store, after those that are there.

    Parameters
    ----------
    sources, views, metric, labels, chunk_rows
        As for `ingest`.
    output
        The store. It has all of the new samples or none, also after a kill: a sibling directory
        is written, read back, and takes its place (`mscam_dask.data.replacement`). A run that
        reads it meanwhile is told that it changed.

    Returns
    -------
    IngestReport
        Of the whole store.

    Raises
    ------
    DataError
        When there is no store, the new samples have other views or columns, or ids that are in
        the store already, or a value is NaN or infinite.
    StoreCorruptError
        When the store is damaged, or another process replaced it meanwhile.
    TemporaryFailure
        When another process is writing the store.
    """
    old = open_store(output)
    with ExitStack() as stack:
        data, notes = _gather(sources, views, labels, stack)
        data = with_metrics(data, "features" if metric is None else metric)
        joined = joined_samples(old, data, where=str(output))
        root = write_store(joined, output, chunk_rows=chunk_rows, overwrite=True)
    return _report(root, (f"{data.n_samples} samples added to {old.n_samples}", *notes))


def _report(root: Location, notes: tuple[str, ...]) -> IngestReport:
    stored = open_store(root)
    return IngestReport(
        output=root,
        n_samples=stored.n_samples,
        views=tuple(
            ViewRecord(view.name, view.metric, view.shape, view.dtype.name) for view in stored.views
        ),
        n_classes=None if stored.labels is None else len(np.unique(stored.labels)),
        has_sample_ids=stored.sample_ids is not None,
        notes=notes,
        stored_bytes=size_of(current(root)),
        digest=stored.digest(),
    )


def _gather(
    sources: Sources,
    views: Sequence[str] | Mapping[str, str] | None,
    labels: str | Path | Sequence[Any] | NDArray[Any] | None,
    stack: ExitStack,
) -> tuple[MultiViewData, tuple[str, ...]]:
    wanted = None if views is None else tuple(views)
    label_key = labels if isinstance(labels, str) else None
    if isinstance(sources, MultiViewData):
        loaded = [_as_loaded(sources)]
    else:
        listed = [sources] if isinstance(sources, str | Location | Source) else list(sources)
        if not listed:
            raise DataError("No source was given; name at least one file to ingest.")
        selection = Selection(views=wanted, labels=label_key)
        loaded = [
            read_source(item if isinstance(item, Source) else Source(item), selection, stack)
            for item in listed
        ]
    loaded = in_one_order(loaded)
    chosen = _choose(loaded, views)
    codes, names = _labels(loaded, labels)
    _check_orientation(chosen, codes)
    ids = common_sample_ids(
        {f"{item.where}": item.sample_ids for item in loaded if item.sample_ids is not None}
    )
    data = as_multi_view(list(chosen))
    data = replace(data, sample_ids=ids, labels=codes, label_names=names)
    return data, tuple(note for item in loaded for note in item.notes)


def _as_loaded(data: MultiViewData) -> Loaded:
    return Loaded(
        where="the data given",
        views=data.views,
        labels=data.labels,
        label_names=data.label_names,
        sample_ids=data.sample_ids,
    )


def _choose(
    loaded: Sequence[Loaded], views: Sequence[str] | Mapping[str, str] | None
) -> tuple[RowSource, ...]:
    if views is None:
        return tuple(view for item in loaded for view in item.views)
    where = {
        name: [item.where for item in loaded for view in item.views if view.name == name]
        for name in views
    }
    missing = [name for name, holders in where.items() if not holders]
    if missing:
        listing = "; ".join(
            f"{item.where} has {[*(view.name for view in item.views), *item.passed_over]}"
            for item in loaded
        )
        raise DataError(f"No view is called {missing}. {listing}: name some of these.")
    for name, holders in where.items():
        if len(holders) > 1:
            raise DataError(
                f"Several views are called {name!r}, in {' and '.join(holders)}; names must be "
                "unique. Leave out the source that is not meant, or rename the view in it."
            )
    by_name = {view.name: view for item in loaded for view in item.views}
    renamed = views if isinstance(views, Mapping) else {name: name for name in views}
    return tuple(
        cast("RowSource", replace(cast("Any", by_name[old]), name=new))
        for old, new in renamed.items()
    )


def _labels(
    loaded: Sequence[Loaded], labels: str | Path | Sequence[Any] | NDArray[Any] | None
) -> tuple[NDArray[np.int64] | None, tuple[str, ...] | None]:
    known = [item for item in loaded if item.labels is not None]
    if isinstance(labels, str) and not any(item.labels_are_chosen for item in known):
        if not Path(labels).is_file():
            raise DataError(
                f"labels={labels!r} is neither a variable or column of "
                f"{', '.join(item.where for item in loaded)}, nor a file. Give one of these, or "
                "leave it out."
            )
        labels = Path(labels)
    if isinstance(labels, Path):
        return encode_labels(read_labels(labels))
    if labels is not None and not isinstance(labels, str):
        return encode_labels(labels)
    if isinstance(labels, str):
        known = [item for item in known if item.labels_are_chosen]
    if not known:
        return None, None
    encoded = [encode_labels(item.labels) for item in known]
    for item, (codes, names) in zip(known[1:], encoded[1:], strict=True):
        if names != encoded[0][1] or not np.array_equal(codes, encoded[0][0]):
            raise DataError(
                f"{known[0].where} and {item.where} have different labels, so their rows are not "
                "the same samples in the same order. Put them in one order, or give labels=... "
                "if only the labels differ."
            )
    codes, names = encoded[0]
    return codes, names if names is not None else known[0].label_names


def _check_orientation(views: tuple[RowSource, ...], labels: NDArray[np.int64] | None) -> None:
    """Refuse (features, samples) matrices, which MATLAB files often hold, with the remedy."""
    if labels is None or any(view.shape[1] != len(labels) for view in views):
        return
    if all(view.shape[0] != len(labels) for view in views):
        listing = ", ".join(f"{view.name!r} {view.shape}" for view in views)
        raise DataError(
            f"There are {len(labels)} labels and every view has that many columns ({listing}): "
            "samples are on columns. Read the file with Source(path, samples_on='columns') "
            "(--samples-on columns)."
        )

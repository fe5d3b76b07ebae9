"""Data sets of an experiment, one store each, and the data that each trial clusters."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import msgspec
import numpy as np
from msgspec import Struct

from mscam_dask.benchmark.config import DatasetTable, ExperimentSettings, RobustnessTable
from mscam_dask.benchmark.results import DatasetEntry
from mscam_dask.data.datasets import corrupted_mixture
from mscam_dask.data.store.dataset import open_store
from mscam_dask.data.store.object_store import Location
from mscam_dask.data.views.as_multi_view import with_view_types
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.rows import cache_chunks, sampled_view
from mscam_dask.data.views.validation import validate
from mscam_dask.errors import ConfigurationError, TemporaryFailure
from mscam_dask.pipeline.open_data import (
    data_fingerprint,
    open_data,
    retry_if_replaced,
    view_entries,
)
from mscam_dask.pipeline.run_directory import write_whole


class StoredData(Struct, frozen=True, kw_only=True, tag="store", tag_field="kind"):
    """Data in a store."""

    path: str  # or URL; not part of the key of a trial
    view_types: tuple[str, ...]  # of the views as they are clustered; part of the digest
    digest: str  # of views and labels

    @classmethod
    def describe(cls, data: MultiViewData, store: Location) -> Self:
        """Describe data as they are clustered, whose view types can differ from those of the store."""
        view_types = tuple(view.view_type for view in data.views)
        return cls(path=str(store), view_types=view_types, digest=_digest(data))

    def open(self, seed: int = 0) -> MultiViewData:
        """Open the data, without reading rows; a `TemporaryFailure` if the store holds others now."""
        data = open_store(self.path)
        if len(data.views) == len(self.view_types):
            data = with_view_types(data, self.view_types)
        if _digest(data) != self.digest:
            raise TemporaryFailure(
                f"the data in {self.path} have changed since this experiment started. "
                "Rerun the experiment to use the new data."
            )
        return data


class MixtureData(Struct, frozen=True, kw_only=True, tag="mixture", tag_field="kind"):
    """Parameters of `corrupted_mixture`, which the trial draws with its seed."""

    corruption_rate: float
    n_samples: int
    noise_variance: float
    within_variance: float

    def open(self, seed: int) -> MultiViewData:
        """Draw the samples."""
        return corrupted_mixture(rng=np.random.default_rng(seed), **msgspec.structs.asdict(self))


def _digest(data: MultiViewData) -> str:
    """SHA-256 digest of the views as they are clustered, and the labels."""
    digest = hashlib.sha256(data.digest().encode())
    if data.labels is not None:
        digest.update(data.labels.astype("<i8").tobytes())
    return digest.hexdigest()


def shuffled_data(data: MultiViewData, seed: int) -> MultiViewData:
    """Return the samples in memory, in a random order."""
    order = np.random.default_rng(seed).permutation(data.n_samples)
    ids, labels = data.sample_ids, data.labels
    return dataclasses.replace(
        data,
        views=tuple(cache_chunks(sampled_view(view, order)) for view in data.views),
        sample_ids=None if ids is None else tuple(ids[index] for index in order),
        labels=None if labels is None else labels[order],
    )


@dataclass(frozen=True)
class Dataset:
    """A data set: its entry in the record, and its data, which a mixture draws for each seed."""

    entry: DatasetEntry
    data: StoredData | MixtureData


_NOTES = {
    "caltech101_nus31": "stand-in for NUS-WIDE-Object: images of Caltech-101, other data",
    "cifar10_nus_3100": "stand-in for NUS-WIDE-Object: images of CIFAR-10, other data",
    "flowers17": "χ² matrices recomputed from the images, not those of the publishers",
    "caltech101_7": "descriptors recomputed from the images, not those of the literature",
    "caltech101_20": "descriptors recomputed from the images, not those of the literature",
}


def open_datasets(
    settings: ExperimentSettings, stores: Path, write_to: Path | None = None
) -> dict[str, Dataset]:
    """Open every data set, or draw those of a robustness experiment.

    The directory `stores` has <name>.zarr of each, beside its origin <name>.json. It is written if it is
    missing or sources or labels have changed, to `write_to` if that is given.
    """
    if settings.robustness is not None:
        return _mixtures(settings.robustness)
    opened = {}
    for name, table in settings.dataset.items():
        content = retry_if_replaced(partial(data_fingerprint, table))
        origin = msgspec.json.encode(
            {"table": msgspec.to_builtins(table), "content": content}, order="sorted"
        )
        store = stores / f"{name}.zarr"
        written = store.with_suffix(".json")
        used: Location = store
        if store.is_dir() and written.is_file() and written.read_bytes() == origin:
            data = open_store(store)
        else:
            data, used = _write(table, origin, (write_to or stores) / store.name)
        opened[name] = _dataset(name, table, data, used)
    return opened


def _write(table: DatasetTable, origin: bytes, store: Path) -> tuple[MultiViewData, Location]:
    """Write the store of a data set, and its origin beside it; a source can be the store itself."""
    store.parent.mkdir(parents=True, exist_ok=True)
    store.with_suffix(".json").unlink(missing_ok=True)
    if store.exists():
        shutil.rmtree(store)
    opened = open_data(table, store)
    if opened.store == store:
        write_whole(store.with_suffix(".json"), origin)
    return opened.data, opened.store


def _dataset(name: str, table: DatasetTable, data: MultiViewData, store: Location) -> Dataset:
    n_classes = 0 if data.labels is None else len(np.unique(data.labels))
    n_clusters = table.n_clusters or n_classes
    if not n_clusters:
        raise ConfigurationError(
            f"data set {name!r} has no labels, so its number of clusters is unknown. Give n_clusters in "
            f"[dataset.{name}]."
        )
    validate(data, n_clusters=n_clusters, n_neighbors=1)
    stored = StoredData.describe(data, store)
    entry = DatasetEntry(
        name=name,
        source=", ".join(Path(source).name for source in table.sources),
        digest=stored.digest,
        n_samples=data.n_samples,
        n_clusters=n_clusters,
        n_classes=n_classes,
        views=view_entries(data),
        note=_NOTES.get(name, ""),
    )
    return Dataset(entry, stored)


def _mixtures(table: RobustnessTable) -> dict[str, Dataset]:
    """Return the corrupted mixtures: one data set for each share, drawn for each seed."""
    datasets = {}
    for share in table.corruption_rate:
        name = f"corrupted {100 * share:g} %"
        mixture = MixtureData(
            corruption_rate=share,
            n_samples=table.n_samples,
            noise_variance=table.noise_variance,
            within_variance=table.within_variance,
        )
        first = mixture.open(table.seed)
        entry = DatasetEntry(
            name=name,
            source="corrupted_mixture",
            digest=first.digest(),
            n_samples=table.n_samples,
            n_clusters=2,
            n_classes=2,
            views=view_entries(first),
            corruption_rate=share,
        )
        datasets[name] = Dataset(entry, mixture)
    return datasets

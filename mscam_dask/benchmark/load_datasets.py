"""The data sets of an experiment: one store each, written once and checked in every run."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from mscam_dask.benchmark.config import DatasetTable, RobustnessTable
from mscam_dask.benchmark.experiment import ExperimentDirectory
from mscam_dask.benchmark.fitting import read_stored, stored_as
from mscam_dask.benchmark.results import DatasetEntry
from mscam_dask.benchmark.trial import MixtureData, StoredData
from mscam_dask.data.datasets.mixtures import corrupted_mixture
from mscam_dask.data.store.object_store import Location, as_location
from mscam_dask.data.store.read import open_store
from mscam_dask.data.store.write import write_store
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sampling import sample_per_class
from mscam_dask.data.views.validation import validate
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.pipeline.config.settings import DataTable
from mscam_dask.pipeline.run.fingerprints import data_fingerprint
from mscam_dask.pipeline.run.open_data import open_data, retry_if_replaced, view_entries

__all__ = ["Dataset", "mixture_datasets", "open_datasets"]


@dataclass(frozen=True)
class Dataset:
    """An open data set.

    Attributes
    ----------
    entry
        Its entry in the record.
    data
        Data by seed if every run draws its own; otherwise the one under None.
    """

    entry: DatasetEntry
    data: dict[int | None, StoredData | MixtureData]

    @property
    def location(self) -> Location:
        """Location of its store."""
        return as_location(self._stored.path)

    @property
    def _stored(self) -> StoredData:
        data = self.data[None]
        assert isinstance(data, StoredData)
        return data

    def read(self) -> MultiViewData:
        """Open its store, see `read_stored`."""
        return read_stored(self._stored)

    def data_of(self, seed: int) -> StoredData | MixtureData:
        """Return the data of the run with this seed."""
        return self.data[seed] if seed in self.data else self.data[None]


_NOTES = {
    "caltech101_nus31": "stand-in for NUS-WIDE-Object: images of Caltech-101, other data",
    "cifar10_nus_3100": "stand-in for NUS-WIDE-Object: images of CIFAR-10, other data",
    "flowers17": "χ² matrices recomputed from the images, not those of the publishers",
    "caltech101_7": "descriptors recomputed from the images, not those of the literature",
    "caltech101_20": "descriptors recomputed from the images, not those of the literature",
}


def open_datasets(
    tables: dict[str, DatasetTable],
    directory: ExperimentDirectory,
    *,
    need_labels: bool,
    write_to: ExperimentDirectory | None = None,
) -> dict[str, Dataset]:
    """Open every data set, and write its store if it is missing or sources or labels have changed.

    Parameters
    ----------
    tables, directory
    need_labels
        Whether labels are required.
    write_to
        Directory for new stores; `directory` by default.

    Raises
    ------
    DataError
        If one cannot be read, lacks required labels, or cannot be clustered.
    ConfigurationError
        If it cannot have the requested number of clusters.
    """
    opened = {}
    for name, table in tables.items():
        origin = _origin(table)
        stored = _open_current(name, origin, directory)
        data, store = stored or _write(name, table, origin, write_to or directory)
        opened[name] = _dataset(name, table, data, store, need_labels=need_labels)
    return opened


def _origin(table: DatasetTable) -> bytes:
    """JSON text of the table and the digest of its sources and labels, stored beside the store."""
    content = retry_if_replaced(lambda: data_fingerprint(table))
    return msgspec.json.encode(
        {"table": msgspec.to_builtins(table), "content": content}, order="sorted"
    )


def _open_current(
    name: str, origin: bytes, directory: ExperimentDirectory
) -> tuple[MultiViewData, Location] | None:
    """Open the store of a data set; None if it is missing or has another origin."""
    store = directory.store(name)
    origin_file = store.with_suffix(".json")
    if store.is_dir() and origin_file.is_file() and origin_file.read_bytes() == origin:
        return open_store(store), store
    return None


def _write(
    name: str, table: DatasetTable, origin: bytes, directory: ExperimentDirectory
) -> tuple[MultiViewData, Location]:
    """Write the store of a data set, and its origin beside it."""
    store = directory.store(name)
    origin_file = store.with_suffix(".json")
    store.parent.mkdir(parents=True, exist_ok=True)
    origin_file.unlink(missing_ok=True)
    if store.exists():
        shutil.rmtree(store)
    plain = DataTable(**{key: getattr(table, key) for key in DataTable.__struct_fields__})
    if table.per_class is None:
        opened = open_data(plain, store)
        data, used = opened.data, opened.store
    else:
        whole = store.with_name(
            f".{store.stem}.whole.zarr"
        )  # no data set has a name that starts with a dot
        if whole.exists():
            shutil.rmtree(whole)
        drawn = sample_per_class(
            open_data(plain, whole).data,
            table.per_class,
            rng=np.random.default_rng(table.seed),
        )
        write_store(drawn, store)
        if whole.exists():
            shutil.rmtree(whole)
        data, used = open_store(store), store
    if used == store:
        directory.write(origin_file, origin)
    return data, used


def _dataset(
    name: str, table: DatasetTable, data: MultiViewData, store: Location, *, need_labels: bool
) -> Dataset:
    labels = data.labels
    if labels is None and need_labels:
        raise DataError(
            f"data set {name!r} ({', '.join(map(str, table.sources))}) has no labels, so methods "
            f"cannot be compared on it. Give labels = ... in [dataset.{name}]."
        )
    n_classes = 0 if labels is None else len(np.unique(labels))
    if labels is None and table.n_clusters is None:
        raise ConfigurationError(
            f"data set {name!r} has no labels, so its number of clusters is unknown. Give n_clusters in "
            f"[dataset.{name}]."
        )
    n_clusters = table.n_clusters or n_classes
    validate(data, n_clusters=n_clusters, n_neighbors=1)
    stored = stored_as(data, store)
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
    return Dataset(entry, {None: stored})


def mixture_datasets(table: RobustnessTable, seeds: Sequence[int]) -> dict[str, Dataset]:
    """Return the corrupted mixtures: one data set for each share, drawn for each seed."""
    datasets = {}
    for share in table.corruption_rate:
        name = f"corrupted {100 * share:g} %"
        drawn = {
            seed: corrupted_mixture(
                table.n_samples,
                rng=np.random.default_rng(seed),
                corruption_rate=share,
                noise_variance=table.noise_variance,
                within_variance=table.within_variance,
            )
            for seed in seeds
        }
        first = drawn[seeds[0]]
        datasets[name] = Dataset(
            DatasetEntry(
                name=name,
                source="corrupted_mixture",
                digest=first.digest(),
                n_samples=table.n_samples,
                n_clusters=2,
                n_classes=2,
                views=view_entries(first),
                corruption_rate=share,
            ),
            {
                seed: MixtureData(
                    corruption_rate=share,
                    n_samples=table.n_samples,
                    noise_variance=table.noise_variance,
                    within_variance=table.within_variance,
                    digest=data.digest(),
                )
                for seed, data in drawn.items()
            },
        )
    return datasets

"""The data of an experiment: one store for each data set, made once and checked every time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from mscam_dask.benchmark.directory import ExperimentDirectory
from mscam_dask.benchmark.results import DatasetEntry
from mscam_dask.benchmark.settings import DatasetTable, RobustnessTable
from mscam_dask.benchmark.stored import read_stored, stored_as
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
    """A data set ready to be clustered.

    Attributes
    ----------
    entry
        What the document says of it.
    data
        By seed of a run where every run draws its own; one under None otherwise.
    """

    entry: DatasetEntry
    data: dict[int | None, StoredData | MixtureData]

    @property
    def place(self) -> Location:
        """Where its store is."""
        return as_location(self._stored.path)

    @property
    def _stored(self) -> StoredData:
        data = self.data[None]
        assert isinstance(data, StoredData)
        return data

    def read(self) -> MultiViewData:
        """Open its store, see `read_stored`."""
        return read_stored(self._stored)

    def of(self, seed: int) -> StoredData | MixtureData:
        """Return what a run with this seed clusters."""
        return self.data[seed] if seed in self.data else self.data[None]


_NOTES = {
    "caltech101_nus31": "stand-in for NUS-WIDE-Object: images of Caltech-101, other data",
    "cifar10_nus_3100": "stand-in for NUS-WIDE-Object: images of CIFAR-10, other data",
    "flowers17": "χ² matrices computed again from the images: not those of the publishers",
    "caltech101_7": "descriptors computed again from the images: not those of the literature",
    "caltech101_20": "descriptors computed again from the images: not those of the literature",
}


def open_datasets(
    tables: dict[str, DatasetTable],
    directory: ExperimentDirectory,
    *,
    need_labels: bool,
    aside: ExperimentDirectory | None = None,
) -> dict[str, Dataset]:
    """Open every data set, making its store when it is missing or its sources or labels have changed.

    Parameters
    ----------
    tables, directory
    need_labels
        Whether data without labels are refused.
    aside
        Where stores are made, instead of in `directory`.

    Raises
    ------
    DataError
        When one cannot be read, has no labels though they are needed, or cannot be clustered.
    ConfigurationError
        When it cannot have as many clusters as were asked for.
    """
    opened = {}
    for name, table in tables.items():
        said = _said(table)
        data, store = _kept(name, said, directory) or _made(name, table, said, aside or directory)
        opened[name] = _dataset(name, table, data, store, need_labels=need_labels)
    return opened


def _said(table: DatasetTable) -> bytes:
    """What a store is made from, contents of sources and labels included, as it is kept beside it."""
    content = retry_if_replaced(lambda: data_fingerprint(table))
    return msgspec.json.encode(
        {"table": msgspec.to_builtins(table), "content": content}, order="sorted"
    )


def _kept(
    name: str, said: bytes, directory: ExperimentDirectory
) -> tuple[MultiViewData, Location] | None:
    """The store of one data set; None when it is missing or was made of something else."""
    store = directory.store(name)
    made_from = store.with_suffix(".json")
    if store.is_dir() and made_from.is_file() and made_from.read_bytes() == said:
        return open_store(store), store
    return None


def _made(
    name: str, table: DatasetTable, said: bytes, directory: ExperimentDirectory
) -> tuple[MultiViewData, Location]:
    """Make the store of one data set; what it was made from is kept beside it."""
    store = directory.store(name)
    made_from = store.with_suffix(".json")
    store.parent.mkdir(parents=True, exist_ok=True)
    made_from.unlink(missing_ok=True)
    if store.exists():
        _remove_store(store)
    plain = DataTable(**{key: getattr(table, key) for key in DataTable.__struct_fields__})
    if table.per_class is None:
        opened = open_data(plain, store)
        data, used = opened.data, opened.store
    else:
        whole = store.with_name(f".{store.stem}.whole.zarr")  # no data set's name has that dot
        if whole.exists():
            _remove_store(whole)
        drawn = sample_per_class(
            open_data(plain, whole).data,
            table.per_class,
            rng=np.random.default_rng(table.seed),
        )
        write_store(drawn, store)
        if whole.exists():
            _remove_store(whole)
        data, used = open_store(store), store
    if used == store:
        directory.write(made_from, said)
    return data, used


def _remove_store(store: Path) -> None:
    import shutil

    shutil.rmtree(store)


def _dataset(
    name: str, table: DatasetTable, data: MultiViewData, store: Location, *, need_labels: bool
) -> Dataset:
    labels = data.labels
    if labels is None and need_labels:
        raise DataError(
            f"data set {name!r} ({', '.join(map(str, table.sources))}) has no labels, so methods "
            f"cannot be compared on it. Name them with labels = ... in [dataset.{name}]."
        )
    n_classes = 0 if labels is None else len(np.unique(labels))
    if labels is None and table.n_clusters is None:
        raise ConfigurationError(
            f"data set {name!r} has no labels, so n_clusters has to be given in [dataset.{name}]."
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
    """Return the corrupted mixtures, one data set for each share, drawn anew for each seed."""
    made = {}
    for share in table.corrupted:
        name = f"corrupted {100 * share:g} %"
        drawn = {
            seed: corrupted_mixture(
                table.n_samples,
                rng=np.random.default_rng(seed),
                corrupted=share,
                noise_variance=table.noise_variance,
                within_variance=table.within_variance,
            )
            for seed in seeds
        }
        first = drawn[seeds[0]]
        made[name] = Dataset(
            DatasetEntry(
                name=name,
                source="corrupted_mixture",
                digest=first.digest(),
                n_samples=table.n_samples,
                n_clusters=2,
                n_classes=2,
                views=view_entries(first),
                corrupted=share,
            ),
            {
                seed: MixtureData(
                    corrupted=share,
                    n_samples=table.n_samples,
                    noise_variance=table.noise_variance,
                    within_variance=table.within_variance,
                    digest=data.digest(),
                )
                for seed, data in drawn.items()
            },
        )
    return made

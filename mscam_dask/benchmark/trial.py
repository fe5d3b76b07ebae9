"""A cell: one fit of one method on one data set with one seed and one setting."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec import Struct

from mscam_dask import __version__
from mscam_dask.benchmark.results import Outcome, TrialEntry

__all__ = ["Limits", "MixtureData", "StoredData", "Trial", "TrialFit", "entry_of"]


class StoredData(Struct, frozen=True, kw_only=True, tag="store", tag_field="kind"):
    """Data in a store.

    Attributes
    ----------
    path
        Where it is; not part of a cell's key.
    metrics
        Of the views, in order, as they are to be taken; part of the digest.
    digest
        Of views and labels.
    """

    path: str
    metrics: tuple[str, ...]
    digest: str


class MixtureData(Struct, frozen=True, kw_only=True, tag="mixture", tag_field="kind"):
    """Data drawn by the cell itself, `corrupted_mixture` with the seed of the run."""

    corrupted: float
    n_samples: int
    noise_variance: float
    within_variance: float
    digest: str


class Trial(Struct, frozen=True, kw_only=True):
    """What determines one result.

    Attributes
    ----------
    dataset, method
        Names.
    data
        What to cluster.
    n_clusters, seed
    shuffled
        Whether the seed shuffles the samples.
    parameters
        Of the method, beyond its own defaults.
    """

    dataset: str
    method: str
    data: StoredData | MixtureData
    n_clusters: int
    seed: int
    shuffled: bool
    parameters: dict[str, Any]

    @property
    def key(self) -> str:
        """SHA-256 of all that determines the result, the version of the package included."""
        determines = {
            "version": __version__,
            "method": self.method,
            "data": self.data.digest,
            "n_clusters": self.n_clusters,
            "seed": self.seed,
            "shuffled": self.shuffled,
            "parameters": self.parameters,
        }
        return hashlib.sha256(msgspec.json.encode(determines, order="sorted")).hexdigest()


class Limits(Struct, frozen=True, kw_only=True):
    """What a cell may take: wall seconds, and bytes above the process it was forked from."""

    time_s: float | None = None
    memory_bytes: int | None = None

    def as_dict(self) -> dict[str, float | None]:
        """As a cell's record keeps them."""
        return {"time_s": self.time_s, "memory_bytes": self.memory_bytes}


class TrialFit(Struct, frozen=True, kw_only=True):
    """What became of a cell."""

    outcome: Outcome
    reason: str = ""
    scores: dict[str, float | None] = {}
    n_found: int | None = None
    seconds: float | None = None
    peak_memory_bytes: int | None = None


def entry_of(trial: Trial, fit: TrialFit, limits: Limits, ended: str) -> TrialEntry:
    """Return the record of a cell that has ended."""
    return TrialEntry(
        key=trial.key,
        dataset=trial.dataset,
        method=trial.method,
        seed=trial.seed,
        shuffled=trial.shuffled,
        parameters=trial.parameters,
        outcome=fit.outcome,
        reason=fit.reason,
        scores=fit.scores,
        n_found=fit.n_found,
        seconds=fit.seconds,
        peak_memory_bytes=fit.peak_memory_bytes,
        limits=limits.as_dict(),
        ended=ended,
    )

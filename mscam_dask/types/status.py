"""Status of a fit: how the labels came about, as a sentence for the user."""

from __future__ import annotations

import enum

__all__ = ["Status"]


class Status(enum.Enum):
    """Status of a fit.

    The value of a member is the sentence that `Status.message` shows: how the labels came about and,
    where it helps, a remedy.
    """

    CONVERGED = (
        "converged: the consensus graph has exactly the requested number of connected components, "
        "and no earlier partition scored higher (solver='reference' scores no earlier partitions)"
    )
    PARTITION_GRAPH = (
        "the best-scoring partition came from spectral clustering of an intermediate graph, not from "
        "connected components; the returned graph was rebuilt so that its components are exactly "
        "these clusters"
    )
    MERGED_COMPONENTS = (
        "the nearest-neighbor graph of the data already has more connected components than "
        "n_clusters; components were merged with Ward linkage. Consider a larger n_neighbors or "
        "n_clusters"
    )
    SINGLE_CLUSTER = "n_clusters is 1; every sample belongs to the same cluster"
    SINGLETONS = "n_clusters equals the number of samples; every sample is its own cluster"
    COMPONENTS_NOT_REACHED = (
        "the consensus graph does not have the requested number of connected components "
        "(solver='reference' follows the algorithms of the paper, which do not enforce it); "
        "use solver='reduced'"
    )

    @property
    def message(self) -> str:
        """Sentence for the user."""
        return self.value

    @property
    def reached(self) -> bool:
        """True if the consensus graph has exactly the requested number of components."""
        return self is not Status.COMPONENTS_NOT_REACHED

"""How a fit ended. Each value is a sentence for the user, with the remedy where one helps."""

from __future__ import annotations

import enum

__all__ = ["Status"]


class Status(enum.Enum):
    """How the clusters were reached.

    The value of a member is what `Status.message` shows: what happened and, where
    something can be done about it, what to try next.
    """

    CONVERGED = (
        "the consensus graph reached exactly the requested number of connected components "
        "along the graph-weight path, and no earlier partition on the path scored better "
        "(solver='reference' judges none)"
    )
    PARTITION_GRAPH = (
        "the partition that was kept, from the graph-weight path or by learned distances after it, was "
        "an embedding cut; the consensus graph was closed around it by one graph step in the limit of "
        "infinite graph weight"
    )
    MERGED_COMPONENTS = (
        "the data alone fall into more pieces than clusters were asked for, whatever the graph "
        "weight; the pieces were merged by Ward's criterion and the graph closed around the "
        "result; a larger n_neighbors or n_clusters may suit these data better"
    )
    SINGLE_CLUSTER = "one cluster was asked for; every sample belongs to it"
    SINGLETONS = "as many clusters as samples were asked for; every sample is its own cluster"
    COMPONENTS_NOT_REACHED = (
        "the consensus graph does not have the requested number of connected components "
        "(solver='reference' follows the printed algorithms, which do not enforce it); "
        "use solver='reduced'"
    )

    @property
    def message(self) -> str:
        """The sentence shown to the user."""
        return self.value

    @property
    def reached(self) -> bool:
        """Whether the consensus graph has exactly the requested number of components."""
        return self is not Status.COMPONENTS_NOT_REACHED

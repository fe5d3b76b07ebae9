"""What the Dask dashboard shows the tasks of a fit by: its settings and outer iterations, as spans."""

from __future__ import annotations

import re
import uuid

from dask.base import get_annotations

__all__ = ["Spans", "phase_of"]

# In the keys of these stages a number that comes first is that of an outer iteration; elsewhere it may be
# a view's name, or a number of clusters.
_OF_ITERATIONS = frozenset(
    {
        "assemble_graph",
        "best_cut",
        "component_count",
        "spectral_cut",
        "graph_arrays",
        "graph_rows",
        "graph_spectrum",
        "learn_metric",
        "mean_graph",
        "metric",
        "projected_distances",
        "score",
        "spectrum_facts",
        "admm_view",
        "reduce_distances",
        "vectors_of",
        "partition_scores",
        "view_records",
        "warm_start",
    }
)


def phase_of(stage: str, first: str) -> str | None:
    """What a key's first part after the stage names: an iteration, a setting, or neither."""
    if first.isdecimal():
        return f"outer iteration {int(first) + 1}" if stage in _OF_ITERATIONS else None
    setting = re.fullmatch(r"setting-\d+-(\d+)", first)
    return None if setting is None else f"setting {int(setting[1]) + 1}"


class Spans:
    """The spans of a fit: one for each outer iteration, for what is before and what is after.

    Notes
    -----
    `distributed.span` makes a new one each time it is entered; the dashboard would show one span
    for each task.
    """

    def __init__(self, run: str) -> None:
        self._run = f"run {run}"
        self._parents = (str(uuid.uuid4()), str(uuid.uuid4()))
        self._ids: dict[str, str] = {}
        self._on_the_way = False

    def at(self, phase: str | None) -> dict[str, tuple[str, ...]]:
        """Annotation of a task of an iteration or setting, or of what is around them."""
        self._on_the_way |= phase is not None and phase.startswith("outer")
        name = phase or ("result" if self._on_the_way else "set-up")
        ids = (*self._parents, self._ids.setdefault(name, str(uuid.uuid4())))
        around = get_annotations().get("span", {"name": (), "ids": ()})  # the caller's own
        return {
            "name": (*around["name"], "mscam", self._run, name),
            "ids": (*around["ids"], *ids),
        }

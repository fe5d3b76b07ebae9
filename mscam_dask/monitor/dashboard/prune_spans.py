"""Removal of the spans of old runs, which the Dask scheduler would keep with all task groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Scheduler

__all__ = ["prune_spans"]

_PRUNED = "mscam-pruned-runs"


def prune_spans(scheduler: Scheduler, run_id: str) -> int:
    """Remove the spans of a run from the scheduler, unless one of its tasks is still known.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    run_id : str
        Id of a run that has ended; see `mscam_dask.engine.executors.dask.DaskExecutor`.

    Returns
    -------
    int
        Number of removed spans.

    Notes
    -----
    This frees half a megabyte for each fit. The ids stay and refer to one empty span, because Dask
    closes a worker that reports on an unknown span.
    """
    extension: Any = scheduler.extensions.get("spans")
    if extension is None:
        return 0
    tag = f"run {run_id}"  # as mscam_dask.engine.executors.dask names it, below one "mscam" for each run
    runs = [span for span in extension.spans_search_by_tag.get(tag, ()) if span.name[-1] == tag]
    n_removed = 0
    for run in runs:
        top = run.parent or run
        spans = list(top.traverse_spans())
        if any(group.name in scheduler.task_groups for span in spans for group in span.groups):
            continue
        pruned = _pruned_span(extension, type(top), scheduler)
        siblings = extension.root_spans if top.parent is None else top.parent.children
        siblings.remove(top)
        for span in spans:
            _remove(extension.spans_search_by_name, span.name, span)
            for word in span.name:
                _remove(extension.spans_search_by_tag, word, span)
            extension.spans[span.id] = pruned
        n_removed += len(spans)
    return n_removed


def _pruned_span(extension: Any, kind: Any, scheduler: Scheduler) -> Any:
    if _PRUNED not in extension.spans:
        extension.spans[_PRUNED] = kind(
            name=("mscam", "pruned runs"),
            id_=_PRUNED,
            parent=None,
            total_nthreads_history=scheduler.total_nthreads_history,
        )
    return extension.spans[_PRUNED]


def _remove(index: dict[Any, list[Any]], key: Any, span: Any) -> None:
    index[key].remove(span)
    if not index[key]:
        del index[key]

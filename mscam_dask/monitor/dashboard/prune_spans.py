"""Forgetting the spans of old runs: Dask's scheduler keeps every span, and all its task groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Scheduler

__all__ = ["forget_spans"]

_ATTIC = "mscam-earlier-runs"


def forget_spans(scheduler: Scheduler, run_id: str) -> int:
    """Take a run's spans out of the scheduler's memory, unless a task of it is still known.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    run_id : str
        Of a run that has ended; see `mscam_dask.engine.executors.dask.DaskExecutor`.

    Returns
    -------
    int
        Spans that are gone.

    Notes
    -----
    Half a megabyte for each fit. Their ids stay, as names of one span that holds nothing: a worker
    that reports very late is closed by Dask when its span is unknown.
    """
    extension: Any = scheduler.extensions.get("spans")
    if extension is None:
        return 0
    tag = f"run {run_id}"  # as mscam_dask.engine.executors.dask names it, below one "mscam" for each run
    runs = [span for span in extension.spans_search_by_tag.get(tag, ()) if span.name[-1] == tag]
    n_forgotten = 0
    for run in runs:
        top = run.parent or run
        spans = list(top.traverse_spans())
        if any(group.name in scheduler.task_groups for span in spans for group in span.groups):
            continue
        attic = _attic(extension, type(top), scheduler)
        siblings = extension.root_spans if top.parent is None else top.parent.children
        siblings.remove(top)
        for span in spans:
            _remove(extension.spans_search_by_name, span.name, span)
            for word in span.name:
                _remove(extension.spans_search_by_tag, word, span)
            extension.spans[span.id] = attic
        n_forgotten += len(spans)
    return n_forgotten


def _attic(extension: Any, kind: Any, scheduler: Scheduler) -> Any:
    if _ATTIC not in extension.spans:
        extension.spans[_ATTIC] = kind(
            name=("mscam", "earlier runs"),
            id_=_ATTIC,
            parent=None,
            total_nthreads_history=scheduler.total_nthreads_history,
        )
    return extension.spans[_ATTIC]


def _remove(index: dict[Any, list[Any]], key: Any, span: Any) -> None:
    index[key].remove(span)
    if not index[key]:
        del index[key]

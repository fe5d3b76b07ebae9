"""`--dry-run`: the plan of a run on one screen."""

from __future__ import annotations

from mscam_dask.cli.console import fields, relative, results_console, show
from mscam_dask.monitor.messages import duration
from mscam_dask.pipeline.run.dry_run import RunPlan

__all__ = ["show_plan"]

_GIB = 2.0**30
_MIB = 2.0**20


def show_plan(plan: RunPlan) -> None:
    """Print a plan."""
    data = plan.data
    views = ", ".join(f"{view.name} ({view.shape[1]})" for view in data.views)
    pairs = [
        ("Run", relative(plan.place.directory)),
        ("To do", _to_do(plan)),
        ("Data", f"{data.n_samples} samples, {len(data.views)} views: {views}"),
        ("Bytes", f"{plan.read_bytes / _MIB:.1f} MiB of values, {_held(plan)}"),
        ("Settings", _settings(plan)),
        ("Workers", f"{plan.n_workers}, {_need(plan)}{_against(plan)}"),
        ("Time", f"about {duration(plan.seconds)} for the clustering, from {plan.basis}"),
    ]
    show(results_console(), fields(pairs))


def _settings(plan: RunPlan) -> str:
    count = f"{len(plan.settings)} to choose from" if len(plan.settings) > 1 else "1"
    if not plan.selected:
        return count
    *others, last = plan.selected
    names = f"{', '.join(others)} and {last}" if others else last
    return f"{count}; the fit selects {names}"


def _held(plan: RunPlan) -> str:
    return f"at most {plan.held_bytes / _MIB:.1f} MiB of results on all workers together"


def _need(plan: RunPlan) -> str:
    return f"each needs up to {plan.worker_bytes / _GIB:.2f} GiB"


def _to_do(plan: RunPlan) -> str:
    if plan.place.action == "nothing":
        return "nothing: this run has finished"
    if plan.place.action == "resume":
        return "go on with a run that was cut off"
    if plan.same_as is not None:
        return f"take the clusters of {plan.same_as.name}, evaluate and write"
    if plan.start is not None and plan.start.is_warm:
        return f"cluster, starting from {plan.start.earlier.name}"
    if plan.start is not None:
        return f"cluster afresh: {plan.start.reason}"
    return "cluster"


def _against(plan: RunPlan) -> str:
    if plan.limit_bytes is None:
        return ""
    fits = "has" if plan.worker_bytes <= plan.limit_bytes else "HAS ONLY"
    return f" and {fits} {plan.limit_bytes / _GIB:.2f} GiB"

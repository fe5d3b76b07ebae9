"""What the plots of lines show of a run."""

from __future__ import annotations

import math
from collections.abc import Callable

from mscam_dask.monitor.dashboard.plots import Line, LinePlot
from mscam_dask.monitor.dashboard.run_state import Run, view_shares
from mscam_dask.monitor.dashboard.style import ACCENT, INK, Mark, mark_of
from mscam_dask.monitor.messages import printable
from mscam_dask.types.events import IterationFinished, ViewIteration

__all__ = ["curve_plots"]

_PLAIN = Mark(INK, (), "circle")
_COUNT_MARKS = (  # not a view's, and told apart without colours
    Mark(INK, (), "circle"),
    Mark("#0072b2", (7, 3), "square"),
    Mark("#7a5195", (2, 3), "triangle"),
)


def curve_plots() -> tuple[tuple[LinePlot, Callable[[Run], list[Line]]], ...]:
    """Every plot of lines, with what it shows of a run."""
    return (
        (
            LinePlot(
                "Choice of the number of clusters",
                "0 to 1",
                name="counts",
                over="clusters",
            ),
            _counts,
        ),
        (
            LinePlot("Components (dashed: asked for)", "components", name="components", number="0"),
            _components,
        ),
        (
            LinePlot("Graph weight along the path", "λ", name="weight", log=True, number="0.[000]"),
            lambda run: _of_run("λ", run, lambda record: record.graph_weight),
        ),
        (
            LinePlot("Score of the clusters, label-free", "nats", name="score"),
            lambda run: _of_run("score", run, lambda record: record.score),
        ),
        (
            LinePlot("Primal residual by view", "‖F - W‖ / √c", name="primal", log=True),
            lambda run: _of_views(run, _each(lambda view: view.primal_residual)),
        ),
        (
            LinePlot("Dual residual by view", "‖ΔF‖ / √c", name="dual", log=True),
            lambda run: _of_views(run, _each(lambda view: view.dual_residual)),
        ),
        (
            LinePlot("Objective, terms of each view", "objective", name="objective"),
            lambda run: _of_views(run, _each(lambda view: view.objective)),
        ),
        (
            LinePlot(
                "View contributions",
                "share of the score",
                name="shares",
                number="0%",
                from_zero=True,
            ),
            lambda run: _of_views(run, view_shares),
        ),
        (
            LinePlot("Sub-solve of each view: time", "seconds", name="seconds", from_zero=True),
            lambda run: _of_tasks(run, lambda seconds, _: seconds),
        ),
        (
            LinePlot(
                "Sub-solve of each view: data",
                "MiB read and returned",
                name="bytes",
                from_zero=True,
            ),
            lambda run: _of_tasks(run, lambda _, n_bytes: n_bytes / 2**20),
        ),
    )


def _counts(run: Run) -> list[Line]:
    """Curves of a number of clusters that was chosen, and an upright line at it."""
    counted = run.counted
    if counted is None:
        return []
    curves = (
        ("eigengap", counted.eigengap),
        ("reliable modularity", counted.adjusted_modularity),
        ("stability", counted.stability),
    )
    values = [value for _, curve in curves for value in curve if math.isfinite(value)]
    ends = [min([0.0, *values]), max([0.0, *values])]
    taken = [counted.n_clusters] * 2
    chosen = Line(f"{taken[0]}, chosen", Mark(ACCENT, (8, 4), "circle"), taken, ends, dotted=False)
    lines = [
        Line(name, _COUNT_MARKS[index], counted.counts, curve)
        for index, (name, curve) in enumerate(curves)
    ]
    return [chosen, *lines]


def _components(run: Run) -> list[Line]:
    """Components found, and a level line at the clusters asked for."""
    (found,) = _of_run("found", run, lambda record: record.n_connected_components)
    asked = [run.announced.n_clusters] * len(found.iterations)
    level = Line("asked for", Mark(ACCENT, (8, 4), "circle"), found.iterations, asked, dotted=False)
    return [level, found]


def _of_run(name: str, run: Run, value: Callable[[IterationFinished], float]) -> list[Line]:
    return [
        Line(
            name,
            _PLAIN,
            [record.iteration + 1 for record in run.outer],
            [value(record) for record in run.outer],
        )
    ]


def _each(
    value: Callable[[ViewIteration], float],
) -> Callable[[IterationFinished], dict[str, float]]:
    return lambda record: {view.view: value(view) for view in record.views}


def _of_views(run: Run, values: Callable[[IterationFinished], dict[str, float]]) -> list[Line]:
    found = [(record.iteration + 1, values(record)) for record in run.outer]
    return [
        Line(
            printable(name),
            mark_of(index),
            [iteration for iteration, by_view in found if name in by_view],
            [by_view[name] for _, by_view in found if name in by_view],
        )
        for index, name in enumerate(run.views)
    ]


def _of_tasks(run: Run, value: Callable[[float, int], float]) -> list[Line]:
    return [
        Line(
            printable(name),
            mark_of(index),
            [task.iteration + 1 for task in tasks],
            [value(task.seconds, task.n_bytes) for task in tasks],
        )
        for index, (name, tasks) in enumerate(run.view_tasks.items())
    ]

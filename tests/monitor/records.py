"""Events of a fit, made up for tests of what shows them."""

from __future__ import annotations

from mscam_dask.monitor.dashboard.run_state import Runs
from mscam_dask.monitor.events import Event, RunAnnounced, encode
from mscam_dask.types.events import (
    CandidateSettings,
    FitFailed,
    FitFinished,
    FitStarted,
    IterationFinished,
    NClustersSelected,
    RefinementFinished,
    SettingsSelected,
    ViewIteration,
    ViewPrepared,
    ViewSettingsSelected,
)
from mscam_dask.types.parameters import Scale

VIEWS = ("<script>alert(1)</script>", "colour", "form/edge")


def announced(name: str = "a run", views: tuple[str, ...] = VIEWS) -> RunAnnounced:
    return RunAnnounced(name=name, client="client-1", views=views, n_samples=120, n_clusters=4)


def send(runs: Runs, *events: Event | RunAnnounced, run_id: str = "01", now: float = 100.0) -> None:
    """What a driver would send."""
    payloads = [{**(encode(event) or {}), "run": run_id} for event in events]
    runs.message({"dropped": 0, "events": payloads}, now=now)


def started(views: tuple[str, ...] = VIEWS) -> FitStarted:
    prepared = tuple(
        ViewPrepared(view=view, n_features=3, rank=3, effective_rank=2.0, seconds=0.1, n_bytes=100)
        for view in views
    )
    return FitStarted(n_samples=120, n_clusters=4, views=prepared, executor="here")


def outer(
    iteration: int, n_components: int = 2, *, views: tuple[str, ...] = VIEWS, seconds: float = 2.0
) -> IterationFinished:
    records = tuple(
        ViewIteration(
            view=view,
            primal_residual=1e-5 * (index + 1),
            dual_residual=0.0,
            inner_iterations=7,
            converged=True,
            objective=10.0 + index,
            seconds=0.25,
        )
        for index, view in enumerate(views)
    )
    return IterationFinished(
        iteration=iteration,
        graph_weight=0.1 * 1.3**iteration,
        n_connected_components=n_components,
        n_clusters=4,
        score=0.5,
        eigengap=float("nan"),
        views=records,
        view_scores=tuple(float(index) for index in range(len(views))),
        seconds=seconds,
        spectrum_converged=True,
        accepted=True,
    )


SELECTED = SettingsSelected(
    settings=(
        CandidateSettings(
            scale="unit", alpha=10.0, n_neighbors=9, n_connected_components=1, score=0.5
        ),
    ),
    chosen=0,
    max_iter=20,
    seconds=0.5,
)
_WAYS: tuple[tuple[str, Scale, float, float], ...] = (
    (VIEWS[0], "unit", 10.0, 0.0),
    (VIEWS[1], "standard", 0.1, 7.5),
    (VIEWS[2], "unit", 10.0, 0.0),
)
BY_VIEW = SettingsSelected(
    settings=(
        CandidateSettings(
            scale="by view", alpha=None, n_neighbors=20, n_connected_components=1, score=0.5
        ),
    ),
    chosen=0,
    max_iter=20,
    seconds=0.5,
    view_settings=tuple(
        ViewSettingsSelected(
            view=view,
            scale=scale,
            alpha=alpha,
            agreement=0.2,
            ahead=ahead,
            overlap=40.0,
            is_informative=True,
        )
        for view, scale, alpha, ahead in _WAYS
    ),
)
RANK_SAMPLE = NClustersSelected(
    counts=(2, 3, 4, 5), p_values=(1e-9, 0.2, 0.031, 0.6), n_clusters=4, seconds=2.5
)
LEARNED = RefinementFinished(scores=(0.61, 0.63, 0.62), taken=2, seconds=1.5)
ENDED = FitFinished(
    status="CONVERGED",
    n_connected_components=4,
    n_iterations=3,
    seconds=6.5,
    score=0.63,
    view_contributions={VIEWS[0]: 0.2, VIEWS[1]: 0.3, VIEWS[2]: 0.5},
)
FAILED = FitFailed(error="WorkerLostError", message="task <b>x</b> was given up", seconds=3.0)

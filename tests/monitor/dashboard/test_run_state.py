"""What the scheduler keeps of runs: the right numbers, within bounds, whatever is sent."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mscam_dask.monitor.dashboard import run_state as module
from mscam_dask.monitor.dashboard.run_state import Runs, view_shares
from mscam_dask.monitor.events import MAX_ITERATIONS
from mscam_dask.monitor.messages import MAX_NAME
from tests.monitor.records import ENDED, FAILED, SELECTED, VIEWS, announced, outer, send, started


def test_a_run_from_its_announcement_to_its_end() -> None:
    runs = Runs()
    send(runs, announced())
    run = runs.by_id["01"]
    assert (run.state, run.views, run.seconds(103.0)) == ("preparing", VIEWS, 3.0)
    send(runs, started(), SELECTED)
    assert run.eta_s is None
    send(runs, outer(0), outer(1, 3, seconds=4.0))
    assert (run.state, run.n_done, run.iterations[-1].n_connected_components) == ("running", 2, 3)
    assert run.eta_s == 18 * 3.0
    assert math.isnan(run.iterations[-1].eigengap)
    send(runs, ENDED)
    assert (run.state, run.going, run.seconds(1000.0)) == ("ended", False, 6.5)
    assert (runs.n_announced, runs.n_refused) == (1, 0)


def test_failures_and_lost_drivers_are_counted_once() -> None:
    runs = Runs()
    send(runs, announced())
    send(runs, announced(), run_id="02")
    send(runs, outer(0), run_id="03")  # never announced
    send(runs, FAILED)
    runs.client_left("client-2")
    runs.client_left("client-1")
    runs.client_left("client-1")
    assert [run.state for run in runs.by_id.values()] == ["failed", "lost"]
    assert runs.failures == {"WorkerLostError": 1, "DriverLost": 1}


def test_ended_runs_make_room_before_running_ones() -> None:
    runs = Runs(max_runs=3)
    for run_id in ("01", "02", "03"):
        send(runs, announced(), run_id=run_id)
    send(runs, ENDED, run_id="02")
    send(runs, announced(), run_id="04")
    assert list(runs.by_id) == ["01", "03", "04"]
    send(runs, announced(), run_id="05")
    assert list(runs.by_id) == ["03", "04", "05"]
    assert runs.n_announced == 5


def test_what_is_kept_is_bounded() -> None:
    runs = Runs()
    views = tuple(f"view {index}" for index in range(module.MAX_VIEWS + 5))
    send(runs, announced("x" * 10_000, views))
    run = runs.by_id["01"]
    for iteration in range(MAX_ITERATIONS + 10):
        send(runs, outer(iteration, views=("view 0",)))
        run.task_done("view 0", f"tcp://10.0.0.1:{iteration}", 0.5, 10)
        run.task_began(("k", iteration), "view 0", f"tcp://10.0.0.1:{iteration}")
    for index in range(module.MAX_KINDS + 10):
        runs.task_failed(run, f"stage {index}")
    assert len(run.views) == module.MAX_VIEWS
    assert len(run.name) == MAX_NAME
    assert (len(run.iterations), run.n_done) == (MAX_ITERATIONS, MAX_ITERATIONS + 10)
    assert len(run.work) == len(run.busy) == module.MAX_WORKERS
    assert len(runs.task_failures) == module.MAX_KINDS + 1
    assert runs.task_failures["other"] == 10


def test_tasks_are_counted_by_worker_and_view() -> None:
    runs = Runs()
    send(runs, announced())
    run = runs.by_id["01"]
    run.task_began("key", "colour", "w1")
    assert run.busy == {"key": ("w1", "colour")}
    names = ("colour", "0/form/edge", "edge", "", "colour/0")
    assert [run.view_of(name) for name in names] == ["colour", "form/edge", None, None, None]
    run.task_left("key")
    run.task_done("colour", "w1", 1.0, 5)
    run.task_done("colour", "w1", 2.0, 7)
    run.task_done("colour", "w2", 3.0, 6)
    assert run.busy == {}
    assert run.work["w1", "colour"] == {"tasks": 2, "seconds": 3.0, "bytes": 12}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
kinds = st.sampled_from(
    ["run_announced", "fit_started", "iteration_finished", "fit_failed", "nothing"]
)


@settings(max_examples=50)
@given(st.lists(json_values | st.fixed_dictionaries({"event": kinds, "run": json_values})))
def test_anything_may_be_sent(payloads: list[Any]) -> None:
    runs = Runs()
    send(runs, announced())
    runs.message({"dropped": None, "events": payloads}, now=0.0)
    runs.message(payloads, now=0.0)
    assert runs.n_refused == len(payloads) + 1
    assert list(runs.by_id) == ["01"]
    assert runs.by_id["01"].version == 0


def test_shares_sum_to_one_even_when_no_view_scores() -> None:
    assert view_shares(outer(0)) == {VIEWS[0]: 0.0, VIEWS[1]: 1 / 3, VIEWS[2]: 2 / 3}
    rounding = dataclasses.replace(outer(0), view_scores=(1e-15, 0.0, -1e-16))
    assert set(view_shares(rounding).values()) == {1 / 3}

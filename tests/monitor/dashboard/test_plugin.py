"""A fit's events on their way to the scheduler, in order, and what it keeps of runs."""

from __future__ import annotations

import copy
import dataclasses
import logging
import math
import re
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st

from mscam_dask.monitor.dashboard import plugin as module
from mscam_dask.monitor.dashboard import run_state
from mscam_dask.monitor.dashboard.plugin import NO_DASHBOARD, ClusterEvents, ensure_page, page_link
from mscam_dask.monitor.dashboard.run_state import Runs, view_shares
from mscam_dask.monitor.events import MAX_ITERATIONS, Event, StepStarted
from mscam_dask.monitor.messages import MAX_NAME
from mscam_dask.types.events import FitStarted
from tests.clusters import local_client, scheduler_process
from tests.estimators.small import quick
from tests.monitor.records import ENDED, FAILED, SELECTED, VIEWS, announced, outer, send, started
from tests.processes import printed, text_of, wait_until
from tests.synthetic import two_subspaces


class FakeClient:
    """A client and its scheduler, which takes events or does not."""

    id = "client-1"

    def __init__(self) -> None:
        self.scheduler = self
        self.messages: list[dict[str, Any]] = []
        self.error: Exception | None = None
        self.refusal: Exception | None = None

    def log_event(self, *, topic: str, msg: dict[str, Any]) -> None:
        if self.error is not None:
            raise self.error
        self.messages.append(msg)

    def sync(self, function: Callable[..., None], *, callback_timeout: float, **given: Any) -> None:
        function(**given)

    def run_on_scheduler(self, function: object) -> None:
        if self.refusal is not None:
            raise self.refusal

    def events(self) -> list[str]:
        return [event["event"] for message in self.messages for event in message["events"]]


def begun(client: FakeClient) -> ClusterEvents:
    events = ClusterEvents(client)  # type: ignore[arg-type]
    events.new_run("0a1b2c3d4", views=VIEWS, n_samples=10, n_clusters=2)
    return events


def test_everything_arrives_in_order_under_the_id_of_the_run() -> None:
    client = FakeClient()
    events = begun(client)
    assert copy.deepcopy(events) is events  # clones of an estimator report to the same cluster
    for event in (StepStarted(step="cluster"), started(), SELECTED, outer(0), ENDED, outer(1)):
        events(event)
    assert client.events() == [
        *("run_announced", "fit_started", "settings_selected"),
        *("iteration_finished", "fit_finished"),
    ]
    sent = [event for message in client.messages for event in message["events"]]
    assert {event["run"] for event in sent} == {"0a1b2c3d4"}
    assert re.findall(r"\d+", sent[0]["name"]) == ["10", "3"]  # samples, views


@pytest.mark.parametrize("error", [OSError, AttributeError, RuntimeError])
def test_what_cannot_be_sent_is_counted(error: type[Exception]) -> None:
    client = FakeClient()
    events = begun(client)
    client.error = error("gone")
    events(started())
    client.error = None
    events(outer(0))
    assert client.messages[-1]["dropped"] == 1
    assert client.events() == ["run_announced", "iteration_finished"]


def test_a_foreign_scheduler_is_said_once_and_raises_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for refusal in (ModuleNotFoundError("No module 'mscam_dask'"), ValueError("pickle is off")):
        client = FakeClient()
        client.refusal = refusal
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                begun(client)(started())
        assert "fit_started" in client.events()
        (said,) = [record for record in caplog.records if record.name == module.__name__]
        assert str(refusal) in said.getMessage()


def test_a_cluster_without_a_dashboard_is_no_reason_to_warn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with local_client(1, processes=False, scheduler_kwargs={"dashboard": False}) as client:
        assert ensure_page(client) == NO_DASHBOARD
        assert page_link(client) is None
    assert [record for record in caplog.records if record.name == module.__name__] == []


@pytest.mark.parametrize("has_bokeh", [True, False])
def test_a_fit_names_the_page_and_no_address_where_there_is_none(
    has_bokeh: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("bokeh", reason="bokeh is an extra")
    if not has_bokeh:
        monkeypatch.setitem(sys.modules, "bokeh", None)
    begun: list[str] = []

    def watch(event: Event) -> None:
        if isinstance(event, FitStarted):
            begun.append(event.executor)

    with local_client(1, processes=False) as client, caplog.at_level(logging.WARNING):
        quick(2, client=client, callbacks=[watch]).fit(two_subspaces())
        page = client.dashboard_link.replace("/status", "/mscam")
    (described,) = begun
    assert (page in described) == ("http" in described) == has_bokeh
    said = [item.getMessage() for item in caplog.records if item.name == module.__name__]
    assert len(said) == (not has_bokeh)
    assert has_bokeh or "pip install 'mscam-dask[dashboard]'" in said[0]


def test_a_driver_that_dies_leaves_a_lost_run() -> None:
    with local_client(1, processes=False) as client:
        with Client(client.scheduler.address, set_as_default=False) as driver:
            ClusterEvents(driver).new_run("0a1b2c3d4", views=VIEWS, n_samples=10, n_clusters=2)
        runs = client.cluster.scheduler.plugins["mscam"].runs
        wait_until(lambda: [run.state for run in runs.by_id.values()] == ["lost"])


@pytest.mark.slow
def test_the_preload_of_a_scheduler_serves_page_and_metrics(tmp_path: Path) -> None:
    options = ("--dashboard", "--dashboard-address", "127.0.0.1:0")
    preload = ("--preload", "mscam_dask.monitor")
    with scheduler_process(tmp_path, *options, *preload) as (_, address):
        with Client(address, set_as_default=False) as client:
            port = client.scheduler_info(n_workers=0)["services"]["dashboard"]
        pages = {
            page: urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=20)
            .read()
            .decode()
            for page in ("mscam", "status", "metrics")
        }
    assert "embed_items" in pages["mscam"]
    assert 'href="mscam"' in pages["status"]
    assert 'mscam_runs{state="running"} 0.0' in pages["metrics"]
    assert "Traceback" not in text_of(tmp_path / "log")


def test_the_preload_imports_nothing_heavy_by_itself() -> None:
    code = "import sys, mscam_dask.monitor; print({'bokeh', 'distributed', 'numpy'} & set(sys.modules))"
    assert printed(code).strip() == "set()"


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
    views = tuple(f"view {index}" for index in range(run_state.MAX_VIEWS + 5))
    send(runs, announced("x" * 10_000, views))
    run = runs.by_id["01"]
    for iteration in range(MAX_ITERATIONS + 10):
        send(runs, outer(iteration, views=("view 0",)))
        run.task_done("view 0", f"tcp://10.0.0.1:{iteration}", 0.5, 10)
        run.task_began(("k", iteration), "view 0", f"tcp://10.0.0.1:{iteration}")
    assert len(run.views) == run_state.MAX_VIEWS
    assert len(run.name) == MAX_NAME
    assert (len(run.iterations), run.n_done) == (MAX_ITERATIONS, MAX_ITERATIONS + 10)
    assert len(run.work) == len(run.busy) == run_state.MAX_WORKERS


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

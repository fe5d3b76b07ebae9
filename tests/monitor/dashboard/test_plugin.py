"""A fit's events on their way to the scheduler: in order, bounded, and never in the fit's way."""

from __future__ import annotations

import asyncio
import copy
import logging
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from distributed.comm.core import CommClosedError

from mscam_dask import MSCAM, Constants
from mscam_dask.monitor.dashboard import plugin as module
from mscam_dask.monitor.dashboard.plugin import NO_DASHBOARD, ClusterEvents, ensure_page, page_link
from mscam_dask.monitor.events import Event, StepStarted
from mscam_dask.types.events import FitStarted
from tests.clusters import local_client
from tests.monitor.records import ENDED, SELECTED, VIEWS, outer, started
from tests.processes import wait_until
from tests.synthetic import two_subspaces


class Scheduler:
    """Takes events, or does not."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.error: Exception | None = None

    async def log_event(self, *, topic: str, msg: dict[str, Any]) -> None:
        if self.error is not None:
            raise self.error
        self.messages.append(msg)


class FakeClient:
    """A client whose event loop runs when the test says so."""

    id = "client-1"

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.loop = self
        self.runs_at_once = True
        self.refusal: Exception | None = None
        self.todo: list[Callable[[], Coroutine[Any, Any, None]]] = []

    def add_callback(self, callback: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.todo.append(callback)
        if self.runs_at_once:
            self.run()

    def run(self) -> None:
        todo, self.todo = self.todo, []
        for callback in todo:
            asyncio.run(callback())

    def run_on_scheduler(self, function: object) -> None:
        if self.refusal is not None:
            raise self.refusal

    def events(self) -> list[str]:
        return [
            event["event"] for message in self.scheduler.messages for event in message["events"]
        ]


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
    sent = [event for message in client.scheduler.messages for event in message["events"]]
    assert {event["run"] for event in sent} == {"0a1b2c3d4"}
    assert re.findall(r"\d+", sent[0]["name"]) == ["10", "3"]  # samples, views


def test_a_scheduler_that_takes_nothing_costs_the_oldest_events_not_the_fit() -> None:
    client = FakeClient()
    events = begun(client)
    client.runs_at_once = False
    for iteration in range(300):
        events(outer(iteration))
    assert len(client.todo) == 1
    client.run()
    message = client.scheduler.messages[-1]
    assert [event["iteration"] for event in message["events"]] == list(range(44, 300))
    assert message["dropped"] == 44


@pytest.mark.parametrize(
    "error",
    [OSError("gone"), CommClosedError("gone"), TimeoutError("late"), AttributeError("closed")],
)
def test_what_cannot_be_sent_is_counted(error: Exception) -> None:
    client = FakeClient()
    events = begun(client)
    client.scheduler.error = error
    events(started())
    client.scheduler.error = None
    events(outer(0))
    assert client.scheduler.messages[-1]["dropped"] == 1
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
        MSCAM(n_clusters=2, constants=Constants.paper(), client=client, callbacks=[watch]).fit(
            two_subspaces()
        )
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
        wait_until(lambda: states(client) == ["lost"])


def states(client: Client) -> list[str]:
    plugins = client.cluster.scheduler.plugins
    return [run.state for run in plugins["mscam"].runs.by_id.values()]


@pytest.mark.slow
def test_the_preload_of_a_scheduler_serves_page_and_metrics(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    command = [sys.executable, "-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", "0"]
    command += ["--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file)]
    with subprocess.Popen(
        [*command, "--preload", "mscam_dask.monitor"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            wait_until(file.exists, alive=process)
            with Client(scheduler_file=str(file), set_as_default=False) as client:
                port = client.scheduler_info(n_workers=0)["services"]["dashboard"]
            root = f"http://127.0.0.1:{port}"
            pages = {
                page: urllib.request.urlopen(f"{root}/{page}", timeout=20).read().decode()
                for page in ("mscam", "status", "metrics")
            }
        finally:
            process.terminate()
            output, _ = process.communicate(timeout=30)
    assert "embed_items" in pages["mscam"]
    assert 'href="mscam"' in pages["status"]
    assert 'mscam_runs{state="running"} 0.0' in pages["metrics"]
    assert "Traceback" not in output


def test_the_preload_imports_nothing_heavy_by_itself() -> None:
    code = "import sys, mscam_dask.monitor; print({'bokeh', 'distributed', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"

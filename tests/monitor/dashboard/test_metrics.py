"""Prometheus metrics of a real run, and the example Grafana dashboard that reads them."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from mscam_dask import MSCAM, Constants
from mscam_dask.data.datasets import subspace_mixture
from mscam_dask.errors import ConfigurationError
from mscam_dask.monitor.dashboard.plugin import ClusterEvents
from mscam_dask.monitor.dashboard.run_state import RunMetrics, Runs
from mscam_dask.monitor.events import Event
from mscam_dask.types.events import IterationFinished
from tests.clusters import local_client
from tests.monitor.records import announced, outer, send

parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is an extra")

GRAFANA = Path(__file__).parents[3] / "deploy" / "grafana" / "mscam.json"
NAME = 'nightly "A"\\B\n'

Samples = dict[str, list[tuple[dict[str, str], float]]]


def scrape(client: Client) -> Samples:
    address = client.dashboard_link.rpartition("/")[0] + "/metrics"
    with urllib.request.urlopen(address, timeout=10) as answer:
        text = answer.read().decode()
    samples: Samples = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with local_client(2, processes=False) as client:
        yield client


@pytest.fixture(scope="module")
def watched(client: Client) -> tuple[MSCAM, Samples]:
    """A finished run and a failed one, and what a scrape then finds."""
    data = subspace_mixture(120, 4, (5, 6), rng=np.random.default_rng(3), separation=2.0, noise=0.4)
    events = ClusterEvents(client, name=NAME)
    paper: Any = {"constants": Constants.paper(), "max_iter": 3, "client": client}
    model = MSCAM(n_clusters=4, callbacks=[events], **paper).fit(data)

    def refuse(event: Event) -> None:
        if isinstance(event, IterationFinished):
            raise ConfigurationError("enough")

    with pytest.raises(ConfigurationError):
        MSCAM(n_clusters=4, callbacks=[refuse], **paper).fit(data)
    return model, scrape(client)


def of_run(samples: Samples, name: str) -> dict[str, float]:
    """Values of the named run, by view."""
    return {
        labels.get("view", ""): value for labels, value in samples[name] if labels["name"] == NAME
    }


def test_the_numbers_are_those_of_the_run(watched: tuple[MSCAM, Samples]) -> None:
    model, samples = watched
    last = model.solution_.history[-1]
    assert of_run(samples, "mscam_outer_iterations_total") == {"": model.n_iter_}
    assert of_run(samples, "mscam_clusters") == {"": 4}
    assert of_run(samples, "mscam_connected_components") == {"": model.n_connected_components_}
    assert of_run(samples, "mscam_score") == {"": model.cross_view_information_}
    assert of_run(samples, "mscam_graph_weight") == {"": last.graph_weight}
    assert of_run(samples, "mscam_remaining_seconds") == {"": 0}
    for view_type, field in (
        ("mscam_primal_residual", "primal_residual"),
        ("mscam_dual_residual", "dual_residual"),
        ("mscam_objective", "objective"),
    ):
        expected = {view.view: getattr(view, field) for view in last.views}
        assert of_run(samples, view_type) == expected
    assert of_run(samples, "mscam_view_share") == model.view_contributions_
    for view_type in ("mscam_view_task_seconds_total", "mscam_view_task_bytes_total"):
        assert min(of_run(samples, view_type).values()) > 0
    assert set(of_run(samples, "mscam_view_tasks_running").values()) == {0}


def test_failures_are_counted(watched: tuple[MSCAM, Samples]) -> None:
    _, samples = watched
    by_error = {labels["error"]: value for labels, value in samples["mscam_run_failures_total"]}
    assert by_error == {"any": 1, "ConfigurationError": 1}
    states = {labels["state"]: value for labels, value in samples["mscam_runs"]}
    assert states == {"preparing": 0, "running": 0, "ended": 1, "failed": 1, "lost": 0}
    assert samples["mscam_runs_started_total"] == [({}, 2)]
    assert samples["mscam_events_refused_total"] == [({}, 0)]


def test_every_metric_of_the_grafana_dashboard_is_in_a_scrape(
    watched: tuple[MSCAM, Samples],
) -> None:
    _, samples = watched
    board = json.loads(GRAFANA.read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    queries += [variable["query"]["query"] for variable in board["templating"]["list"]]
    assert len(queries) > 20
    for query in queries:
        names = re.findall(r"\b(?:mscam|dask)_[a-z_]+", query)
        assert names, query
        for name in names:
            assert samples.get(name), f"{name} of {query!r} is not in the scrape"
    ours = {name for name in samples if name.startswith("mscam_")}
    assert ours == {name for query in queries for name in re.findall(r"\bmscam_[a-z_]+", query)}


def test_names_that_are_cut_stay_apart() -> None:
    runs = Runs()
    views = ("x" * 500 + "a", "x" * 500 + "b")
    send(runs, announced(views=views), outer(0, views=views))
    families = {family.name: family for family in RunMetrics([runs]).collect()}
    labels = [sample.labels["view"] for sample in families["mscam_objective"].samples]
    assert len(set(labels)) == 2
    assert max(map(len, labels)) < 150

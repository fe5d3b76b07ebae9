"""Spans of runs that the page does not keep any more are taken out of the scheduler."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from dask.base import annotate
from distributed import Client, span

from mscam_dask import MSCAM
from mscam_dask.monitor.dashboard import plugin
from mscam_dask.monitor.dashboard.prune_spans import prune_spans
from mscam_dask.monitor.dashboard.run_state import Runs
from tests.clusters import local_client
from tests.synthetic import gaussian_views


@pytest.fixture
def client() -> Iterator[Client]:
    with local_client(1, processes=False) as client:
        yield client


@pytest.fixture
def scheduler(client: Client, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(plugin, "Runs", partial(Runs, max_runs=2))
    cluster: Any = client.cluster
    return cluster.scheduler


def fit(client: Client) -> None:
    MSCAM(3, auto_settings=False, client=client).fit(gaussian_views(0, n_samples=40)[0])


def runs_with_spans(scheduler: Any) -> set[str]:
    tags = scheduler.extensions["spans"].spans_search_by_tag
    return {tag.removeprefix("run ") for tag in tags if tag.startswith("run ")}


def held(scheduler: Any) -> int:
    spans = scheduler.extensions["spans"].spans.values()
    return sum(len(span.groups) for span in {id(span): span for span in spans}.values())


def test_the_newest_runs_keep_theirs(client: Client, scheduler: Any) -> None:
    n_held = []
    for _ in range(4):
        fit(client)
        n_held.append(held(scheduler))
    kept = scheduler.plugins["mscam"].runs.by_id
    assert runs_with_spans(scheduler) == set(kept)
    assert len(kept) == 2
    assert n_held[1] > 50
    assert n_held[3] == n_held[1]
    assert len(scheduler.extensions["spans"].root_spans) == 2


def test_a_report_that_comes_late_is_taken(client: Client, scheduler: Any) -> None:
    extension = scheduler.extensions["spans"]
    fit(client)
    ids = set(extension.spans)
    fit(client)
    fit(client)
    assert ids <= set(extension.spans)
    for old in ids:
        extension.heartbeat(None, {("execute", old, "admm_view", "thread-cpu", "seconds"): 1.0})


def test_spans_around_a_fit_stay(client: Client, scheduler: Any) -> None:
    with span("mine"):
        fit(client)
        client.submit(sum, [1, 2], pure=False).result()
    fit(client)
    fit(client)
    (mine,) = scheduler.extensions["spans"].spans_search_by_name["mine",]
    assert mine.children == []
    assert len(mine.groups) == 1


def test_a_run_whose_tasks_are_still_known_keeps_its_spans(client: Client, scheduler: Any) -> None:
    annotation = {"name": ("mscam", "run 0abc", "set-up"), "ids": ("1", "2", "3")}
    with annotate(span=annotation):
        future = client.submit(sum, [1, 2], key=("factor-0abc", "view"), pure=False)
        future.result()
    assert prune_spans(scheduler, "0abc") == 0
    future.release()
    while "factor-0abc" in scheduler.task_groups:
        time.sleep(0.01)
    assert prune_spans(scheduler, "0abc") == 3
    assert prune_spans(scheduler, "0abc") == 0

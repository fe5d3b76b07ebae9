"""Prometheus: its files, and its alerts on what schedulers and workers export."""

from __future__ import annotations

import operator
import re
import shutil
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from dask.utils import parse_timedelta
from distributed import Client, LocalCluster

from mscam_dask.engine.executors.dask import workers_timeout_s
from tests.deploy.files import DEPLOY, documents, run


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A scheduler and a worker that export metrics."""
    pytest.importorskip("prometheus_client")
    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        dashboard_address="127.0.0.1:0",
        silence_logs=50,
    ) as opened:
        yield opened


def exported(server: Any) -> str:
    """The text of a scheduler's or worker's /metrics page."""
    url = f"http://127.0.0.1:{server.http_server.port}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def rules() -> dict[str, Any]:
    (alerts,) = documents(DEPLOY / "prometheus/alerts.yml")
    return {rule["alert"]: rule for group in alerts["groups"] for rule in group["rules"]}


def total(name: str, matchers: str, text: str) -> float:
    """PromQL's sum by (instance) (name{matchers}) over the /metrics text of one instance."""
    wanted = re.findall(r'(\w+)(=~|=)"([^"]*)"', matchers)
    values = []
    for labels, value in re.findall(rf"^{name}\{{(.*)\}} (\S+)$", text, re.MULTILINE):
        have = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if all(
            re.fullmatch(pattern if how == "=~" else re.escape(pattern), have.get(label, ""))
            for label, how, pattern in wanted
        ):
            values.append(float(value))
    assert values, f"nothing has {name}{{{matchers}}}"
    return sum(values)


def holds(expression: str, text: str) -> bool:
    """Whether an expression of comparisons of sums, joined by `and`, is true on a /metrics text."""
    compare: dict[str, Callable[[float, float], bool]] = {
        "==": operator.eq, ">": operator.gt,
    }  # fmt: skip
    results = []
    for term in expression.split(" and "):
        found = re.fullmatch(r"sum by \(instance\) \((\w+)(?:\{(.*)\})?\) (==|>) (\d+)", term)
        assert found, f"the test does not read {term!r}"
        results.append(compare[found[3]](total(found[1], found[2] or "", text), float(found[4])))
    return all(results)


def test_prometheus_accepts_its_configuration() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (it comes with Prometheus)")
    result = run(promtool, "check", "config", DEPLOY / "prometheus/prometheus.yml")
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_metric_of_an_alert_is_one_that_dask_exports(cluster: LocalCluster) -> None:
    (worker,) = cluster.workers.values()
    text = exported(cluster.scheduler) + exported(worker)
    known = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    used = set(re.findall(r"\bdask_\w+", " ".join(rule["expr"] for rule in rules().values())))
    assert used
    assert used <= known


def test_workers_that_are_gone_while_tasks_wait_are_seen(cluster: LocalCluster) -> None:
    expression = rules()["DaskWorkersGone"]["expr"]
    scheduler: Any = cluster.scheduler
    with Client(cluster, set_as_default=False) as client:
        assert not holds(expression, exported(scheduler))
        futures = client.map(time.sleep, [2] * 4, pure=False)
        (address,) = scheduler.workers
        bound = client.submit(abs, -1, workers=[address], allow_other_workers=False)
        wait_for(lambda: 'tasks{state="processing"} 0.0' not in exported(scheduler))
        assert not holds(expression, exported(scheduler)), "there is a worker"
        cluster.scale(0)
        wait_for(lambda: not scheduler.workers)
        assert holds(expression, exported(scheduler))
        client.cancel(bound)
        wait_for(lambda: bound.key not in scheduler.tasks)
        assert holds(expression, exported(scheduler)), "of any kind of task"
        client.cancel(futures)
        wait_for(lambda: not scheduler.tasks)
        assert not holds(expression, exported(scheduler)), "nobody waits"


def test_the_alert_of_lost_workers_fires_before_the_run_gives_up() -> None:
    rule = rules()["DaskWorkersGone"]
    (prometheus,) = documents(DEPLOY / "prometheus/prometheus.yml")
    patience_s = workers_timeout_s()
    every = [prometheus["global"][name] for name in ("scrape_interval", "evaluation_interval")]
    # a state is seen an interval late, and held for a whole number of evaluations
    latest_s = sum(parse_timedelta(time) for time in [rule["for"], every[0], every[1], every[1]])
    assert latest_s < patience_s
    assert parse_timedelta(rule["keep_firing_for"]) > patience_s


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)

"""Prometheus: its files, and its alerts on what schedulers and workers export."""

from __future__ import annotations

import json
import operator
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from dask.utils import parse_timedelta
from distributed import Client, LocalCluster

from mscam_dask.engine.executors.dask import workers_timeout_s
from mscam_dask.pipeline.run.report import METRICS
from tests.deploy.files import DEPLOY, documents, run, script_environment


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


def test_every_metric_of_an_alert_is_one_that_runs_export() -> None:
    pytest.importorskip("prometheus_client")
    from mscam_dask.monitor.dashboard.metrics import RunMetrics

    live = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in RunMetrics([]).collect()
    }
    used = set(re.findall(r"\bmscam_\w+", " ".join(rule["expr"] for rule in rules().values())))
    assert len(used) >= 8
    assert used <= live | set(METRICS)


def test_amtool_accepts_the_example_of_a_route() -> None:
    (example,) = documents(DEPLOY / "prometheus/alertmanager.yml")
    severities = {rule["labels"]["severity"] for rule in rules().values()}
    (route,) = example["route"]["routes"]
    assert route["matchers"] == ['severity="page"']
    assert severities == {"page", "warn"}
    receivers = {receiver["name"] for receiver in example["receivers"]}
    assert {example["route"]["receiver"], route["receiver"]} == receivers
    amtool = shutil.which("amtool")
    if amtool is None:
        pytest.skip("amtool is not installed (apt-get install prometheus-alertmanager)")
    file = DEPLOY / "prometheus/alertmanager.yml"
    result = run(amtool, "check-config", file)
    assert result.returncode == 0, result.stdout + result.stderr
    for severity, receiver in (("page", "pager"), ("warn", "mail")):
        routed = run(
            amtool, "config", "routes", "test", f"--config.file={file}", f"severity={severity}"
        )
        assert routed.stdout.strip() == receiver


HOUR = 3600


@pytest.mark.parametrize(
    ("alert", "series", "hours", "fires"),
    [
        ("MscamRunFailed", {"running": 0, "exit_code": 3}, 0, True),
        ("MscamRunFailed", {"running": 0, "exit_code": 5}, 0, False),
        ("MscamRunFailed", {"running": 0, "exit_code": 6}, 0, False),
        ("MscamRunFailed", {"running": 0, "exit_code": 75}, 0, False),
        ("MscamDriftAboveLimit", {"running": 0, "exit_code": 6}, 0, True),
        ("MscamDriftAboveLimit", {"running": 0, "exit_code": 5}, 0, False),
        ("MscamRunFailed", {"running": 1, "exit_code": 3}, 0, False),
        ("MscamRunNotResumed", {"running": 0, "exit_code": 75}, 3, True),
        ("MscamRunNotResumed", {"running": 0, "exit_code": 75}, 1, False),
        ("MscamNightMissing", {"success_timestamp_seconds": 0}, 27, True),
        ("MscamNightMissing", {"success_timestamp_seconds": 0}, 25, False),
        ("MscamRunStuck", {"running": 1, "start_timestamp_seconds": 0}, 9, True),
        ("MscamRunStuck", {"running": 1, "start_timestamp_seconds": 0}, 7, False),
        ("MscamClustersDrift", {"moved_share": 0.3}, 0, True),
        ("MscamClustersDrift", {"moved_share": 0.1}, 0, False),
        (
            "MscamCertificateExpires",
            {"certificate_expiry_timestamp_seconds": 20 * 24 * HOUR},
            24 * 7,
            True,
        ),
        (
            "MscamCertificateExpires",
            {"certificate_expiry_timestamp_seconds": 20 * 24 * HOUR},
            24 * 5,
            False,
        ),
    ],
)
@pytest.mark.thorough
def test_rules_by_promtool(
    tmp_path: Path, alert: str, series: dict[str, float], hours: int, fires: bool
) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (it comes with Prometheus)")
    lines = [
        {"series": f'mscam_batch_{name}{{pipeline="nightly"}}', "values": f"{value}x{60 * 24 * 9}"}
        for name, value in series.items()
    ]
    labels = {"pipeline": "nightly", "severity": rules()[alert]["labels"]["severity"]}
    expected = [{"exp_labels": labels}] if fires else []
    case = {
        "rule_files": [str(DEPLOY / "prometheus/alerts.yml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": lines,
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)',
                        "eval_time": f"{hours}h" if hours else "0m",
                        "exp_samples": [{"labels": "{}", "value": len(expected)}],
                    }
                ],
            }
        ],
    }
    (tmp_path / "case.yml").write_text(yaml.safe_dump(case))
    result = run(promtool, "test", "rules", tmp_path / "case.yml")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
def test_a_run_that_failed_pages_through_prometheus_and_alertmanager(tmp_path: Path) -> None:
    program, manager = shutil.which("prometheus"), shutil.which("prometheus-alertmanager")
    if program is None:
        pytest.skip("prometheus is not installed (apt-get install prometheus)")
    if manager is None:
        pytest.skip("alertmanager is not installed (apt-get install prometheus-alertmanager)")
    (tmp_path / "p.toml").write_text(
        '[data]\nsource = "digits"\nfamilies = ["pixels"]\n[cluster]\nn_clusters = 100000\n'
        f'[execution]\nin_process = true\n[output]\ndirectory = "run"\nmetrics = "{tmp_path}/node"\n'
    )
    command = (sys.executable, "-m", "mscam_dask.cli", "run", tmp_path / "p.toml")
    failed = run(*command, env=script_environment())
    assert failed.returncode == 2, failed.stderr
    port, manager_port = free_ports(2)
    serve = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "node"))
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), serve) as collector,
        ThreadingHTTPServer(("127.0.0.1", 0), Pager) as pager,
    ):
        for server in (collector, pager):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        (route,) = documents(DEPLOY / "prometheus/alertmanager.yml")
        route["route"]["group_wait"] = "1s"
        (receiver,) = [one for one in route["receivers"] if "webhook_configs" in one]
        receiver["webhook_configs"][0]["url"] = f"http://127.0.0.1:{pager.server_port}/page"
        (tmp_path / "alertmanager.yml").write_text(yaml.safe_dump(route))
        (configuration,) = documents(DEPLOY / "prometheus/prometheus.yml")
        configuration["global"] = {
            "scrape_interval": "1s",
            "scrape_timeout": "1s",
            "evaluation_interval": "1s",
        }
        configuration["rule_files"] = [str(DEPLOY / "prometheus/alerts.yml")]
        configuration["alerting"] = {
            "alertmanagers": [
                {"static_configs": [{"targets": [f"127.0.0.1:{manager_port}"]}]},
            ]
        }
        configuration["scrape_configs"].append(
            {
                "job_name": "node",
                "metrics_path": "/mscam-p.prom",
                "static_configs": [{"targets": [f"127.0.0.1:{collector.server_port}"]}],
            }
        )
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(configuration))
        servers = (
            [
                program, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/tsdb",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            [
                manager, f"--config.file={tmp_path}/alertmanager.yml", f"--storage.path={tmp_path}/alerts",
                f"--web.listen-address=127.0.0.1:{manager_port}", "--cluster.listen-address=",
            ],
        )  # fmt: skip
        with ExitStack() as stack:
            log = stack.enter_context((tmp_path / "log").open("wb"))
            for command_line in servers:
                process = stack.enter_context(
                    subprocess.Popen(command_line, stdout=log, stderr=log)
                )
                stack.callback(process.terminate)
            wait_for(lambda: "MscamRunFailed" in firing(port))
            labels = {
                "alertname": "MscamRunFailed", "pipeline": "p", "severity": "page",
                "job": "node", "instance": f"127.0.0.1:{collector.server_port}",
            }  # fmt: skip
            assert firing(port)["MscamRunFailed"] == labels
            assert "MscamRunStuck" not in firing(port)
            wait_for(lambda: bool(Pager.pages))
            page = Pager.pages[0]
            assert (page["receiver"], page["status"]) == ("pager", "firing")
            assert [alert["labels"] for alert in page["alerts"]] == [labels]
        collector.shutdown()
        pager.shutdown()


class Pager(BaseHTTPRequestHandler):
    """Receiver of Alertmanager's webhook that keeps what it is sent."""

    pages: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        self.pages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()


def free_ports(n: int) -> list[int]:
    """Ports of the loopback interface on which nothing listens."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(n)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def firing(port: int) -> dict[str, dict[str, str]]:
    """Labels of the alerts that fire, by name."""
    url = f"http://127.0.0.1:{port}/api/v1/alerts"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            alerts = json.load(answer)["data"]["alerts"]
    except OSError:  # not up yet
        return {}
    return {
        alert["labels"]["alertname"]: alert["labels"]
        for alert in alerts
        if alert["state"] == "firing"
    }


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

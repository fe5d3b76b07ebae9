"""Prometheus: its files, and its alerts on what schedulers and workers export."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dask.utils import parse_timedelta
from distributed import Client

from mscam_dask.engine.executors.dask import workers_timeout_s
from mscam_dask.pipeline.report import METRICS
from tests.clusters import local_client
from tests.deploy.files import DEPLOY, documents
from tests.processes import needed, run, wait_until

FILES = DEPLOY / "prometheus"


@pytest.fixture(scope="module")
def rules() -> dict[str, Any]:
    """Rules by the name of their alert."""
    (alerts,) = documents(FILES / "alerts.yml")
    return {rule["alert"]: rule for group in alerts["groups"] for rule in group["rules"]}


def metrics_in(rules: dict[str, Any], prefix: str) -> set[str]:
    return set(
        re.findall(rf"\b{prefix}_\w+", " ".join(str(rule["expr"]) for rule in rules.values()))
    )


@pytest.fixture
def client() -> Iterator[Client]:
    """A client of a scheduler and a worker that export metrics."""
    pytest.importorskip("prometheus_client")
    with local_client(1, processes=False) as opened:
        yield opened


def exported(server: Any) -> dict[tuple[str, str], float]:
    """Samples of a scheduler's or worker's /metrics page by name and label."""
    from prometheus_client.parser import text_string_to_metric_families as parse

    url = f"http://127.0.0.1:{server.http_server.port}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        families = parse(answer.read().decode())
    return {
        (sample.name, sample.labels.get("state", "")): sample.value
        for family in families
        for sample in family.samples
    }


def test_prometheus_and_alertmanager_accept_their_configuration(rules: dict[str, Any]) -> None:
    promtool, amtool = needed("promtool", "amtool", package="prometheus prometheus-alertmanager")
    routes = FILES / "alertmanager.yml"
    for command in (
        (promtool, "check", "config", FILES / "prometheus.yml"),
        (amtool, "check-config", routes),
    ):
        result = run(*command)
        assert result.returncode == 0, result.stdout + result.stderr
    assert {rule["labels"]["severity"] for rule in rules.values()} == {"page", "warn"}
    for severity, receiver in (("page", "pager"), ("warn", "mail")):
        test = (amtool, "config", "routes", "test", f"--config.file={routes}")
        assert run(*test, f"severity={severity}").stdout.strip() == receiver


def test_every_metric_of_an_alert_is_one_that_dask_or_a_run_exports(
    client: Client, rules: dict[str, Any]
) -> None:
    from mscam_dask.monitor.dashboard.run_state import RunMetrics

    servers = (client.cluster.scheduler, *client.cluster.workers.values())
    dask = {name for server in servers for name, _ in exported(server)}
    used = metrics_in(rules, "dask")
    assert used
    assert used <= dask
    live = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in RunMetrics([]).collect()
    }
    used = metrics_in(rules, "mscam")
    assert len(used) >= 8
    assert used <= live | set(METRICS)


def test_tasks_without_a_worker_are_in_a_state_of_the_alert(
    client: Client, rules: dict[str, Any], tmp_path: Path
) -> None:
    (states,) = re.findall(r'state=~"(.*)"', rules["DaskWorkersGone"]["expr"])
    scheduler = client.cluster.scheduler

    def n_waiting() -> float:
        samples = exported(scheduler)
        return sum(samples.get(("dask_scheduler_tasks", state), 0) for state in states.split("|"))

    (address,) = scheduler.workers
    client.cluster.scale(0)
    wait_until(lambda: not scheduler.workers, tmp_path / "log")
    anywhere = client.map(abs, [-1, -2])
    bound = client.submit(abs, -3, workers=[address], allow_other_workers=False)
    wait_until(lambda: n_waiting() == 3, tmp_path / "log")
    client.cancel([*anywhere, bound])


def test_the_alert_of_lost_workers_fires_before_the_run_gives_up(rules: dict[str, Any]) -> None:
    rule = rules["DaskWorkersGone"]
    (prometheus,) = documents(FILES / "prometheus.yml")
    patience_s = workers_timeout_s()
    every = [prometheus["global"][name] for name in ("scrape_interval", "evaluation_interval")]
    # a state is seen an interval late, and held for a whole number of evaluations
    latest_s = sum(parse_timedelta(time) for time in [rule["for"], every[0], every[1], every[1]])
    assert latest_s < patience_s
    assert parse_timedelta(rule["keep_firing_for"]) > patience_s


DAY = 24
EXPIRY: dict[str, float] = {"certificate_expiry_timestamp_seconds": 20 * DAY * 3600}
WAITING = 'dask_scheduler_tasks{state="queued"}'
GONE: dict[str, float] = {"dask_scheduler_workers": 0, WAITING: 2}
CASES: list[tuple[str, dict[str, float], int, bool]] = [
    ("DaskWorkersGone", GONE, 1, True),
    ("DaskWorkersGone", GONE | {"dask_scheduler_workers": 1}, 1, False),
    ("DaskWorkersGone", GONE | {WAITING: 0}, 1, False),
    ("MscamRunFailed", {"running": 0, "exit_code": 3}, 0, True),
    ("MscamRunFailed", {"running": 0, "exit_code": 6}, 0, False),
    ("MscamRunFailed", {"running": 0, "exit_code": 75}, 0, False),
    ("MscamRunFailed", {"running": 1, "exit_code": 3}, 0, False),
    ("MscamDriftAboveLimit", {"running": 0, "exit_code": 6}, 0, True),
    ("MscamDriftAboveLimit", {"running": 0, "exit_code": 0}, 0, False),
    ("MscamRunNotResumed", {"running": 0, "exit_code": 75}, 3, True),
    ("MscamRunNotResumed", {"running": 0, "exit_code": 75}, 1, False),
    ("MscamNightMissing", {"success_timestamp_seconds": 0}, 27, True),
    ("MscamNightMissing", {"success_timestamp_seconds": 0}, 25, False),
    ("MscamRunStuck", {"running": 1, "start_timestamp_seconds": 0}, 9, True),
    ("MscamRunStuck", {"running": 1, "start_timestamp_seconds": 0}, 7, False),
    ("MscamClustersDrift", {"moved_share": 0.3}, 0, True),
    ("MscamClustersDrift", {"moved_share": 0.1}, 0, False),
    ("MscamCertificateExpires", EXPIRY, 7 * DAY, True),
    ("MscamCertificateExpires", EXPIRY, 5 * DAY, False),
]


@pytest.mark.thorough
def test_rules_by_promtool(tmp_path: Path) -> None:
    (promtool,) = needed("promtool", package="prometheus")
    tests = []
    for alert, series, hours, fires in CASES:
        name = f'ALERTS{{alertname="{alert}", alertstate="firing"}}'
        expected = {
            "expr": f"count({name}) or vector(0)",
            "eval_time": f"{hours}h" if hours else "0m",
            "exp_samples": [{"labels": "{}", "value": int(fires)}],
        }
        lines = []
        for key, value in series.items():
            full = key if key.startswith("dask") else f'mscam_batch_{key}{{pipeline="nightly"}}'
            lines.append({"series": full, "values": f"{value}x{6 * hours}"})
        tests.append({"interval": "10m", "input_series": lines, "promql_expr_test": [expected]})
    case = {"rule_files": [str(FILES / "alerts.yml")], "evaluation_interval": "10m", "tests": tests}
    (tmp_path / "case.yml").write_text(yaml.safe_dump(case))
    result = run(promtool, "test", "rules", tmp_path / "case.yml")
    assert result.returncode == 0, result.stdout + result.stderr

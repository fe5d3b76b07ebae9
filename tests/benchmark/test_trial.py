"""Trials in their own processes: results, failures, limits, lost processes and workers."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from functools import partial
from pathlib import Path

import msgspec
import psutil
import pytest

from mscam_dask.benchmark.datasets import MixtureData, StoredData
from mscam_dask.benchmark.results import SCORES, Limits
from mscam_dask.benchmark.trial import Trial, fit_trial, run_trial, run_trials, server_of_thread
from mscam_dask.data.store.dataset import write_store
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.errors import NoWorkersError, TemporaryFailure
from mscam_dask.estimators._describe import label_free_scores
from mscam_dask.metrics import score_partition
from mscam_dask.pipeline.cluster import open_cluster
from mscam_dask.pipeline.settings import ExecutionTable
from mscam_dask.types.parameters import Parameters
from tests.clusters import local_client
from tests.processes import wait_until
from tests.synthetic import three_subspaces


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    data = three_subspaces()
    return Trial(
        dataset="tiny",
        method="knn-sc",
        data=StoredData.describe(data, write_store(data, tmp_path / "tiny.zarr")),
        n_clusters=3,
        seed=1,
        shuffled=True,
        parameters={},
    )


def changed(trial: Trial, **changes: object) -> Trial:
    return msgspec.structs.replace(trial, **changes)


def with_data(trial: Trial, **changes: object) -> Trial:
    assert isinstance(trial.data, StoredData)
    return changed(trial, data=msgspec.structs.replace(trial.data, **changes))


def test_a_trial_of_a_sweep_has_scores_without_labels(trial: Trial) -> None:
    parameters = {"alpha": 1.0, "scale": "unit", "n_neighbors": 5, "max_iter": 2}
    constants = {"graph_weight": 0.1, "auto_settings": False}
    asked = changed(
        trial,
        method="mscam",
        shuffled=False,
        parameters={**parameters, **constants},
        label_free=True,
    )
    data = trial.data.open(0)
    fixed = {"n_clusters": 3, "seed": 1, "constants": constants, **parameters}
    alone = run_fit(data, msgspec.convert(fixed, Parameters), SerialExecutor())
    with_labels = score_partition(data.labels, alone.labels)
    expected = {
        "cross_view_information": alone.score,
        "adjusted_modularity": label_free_scores(data, alone.labels)["adjusted_modularity"],
        "n_connected_components": alone.n_connected_components,
        **{name: getattr(with_labels, name) for name in SCORES},
    }
    assert fit_trial(asked).scores == pytest.approx(expected, abs=1e-5)


def test_the_key_depends_on_everything_that_determines_the_result(trial: Trial) -> None:
    others = [
        changed(trial, method="mlan"),
        changed(trial, n_clusters=4),
        changed(trial, seed=2),
        changed(trial, shuffled=False),
        changed(trial, label_free=True),
        changed(trial, parameters={"n_neighbors": 5}),
        with_data(trial, digest="e"),
    ]
    assert len({item.key for item in (trial, *others)}) == 8
    moved = with_data(changed(trial, dataset="again"), path="elsewhere")
    assert moved.key == trial.key
    first = changed(trial, parameters={"a": 1, "b": 2})
    assert first.key == changed(trial, parameters={"b": 2, "a": 1}).key


@pytest.mark.thorough
def test_the_same_result_as_in_this_process(trial: Trial) -> None:
    there, here = run_trial(trial), fit_trial(trial)
    assert there.outcome == "ok"
    assert there.scores == here.scores
    assert there.scores["accuracy"] == 1.0
    assert there.seconds > 0
    assert 0 < there.peak_memory_bytes < 2**30


def test_a_failure_is_a_result_and_the_next_trial_runs(trial: Trial) -> None:
    failed = run_trial(changed(trial, n_clusters=61))
    assert failed.outcome == "failed"
    assert "ConfigurationError" in failed.reason
    assert failed.scores == {}
    path = "x" * 200_000  # longer than a pipe holds; the message names it
    missing = run_trial(changed(with_data(trial, path=path), limits=Limits(time_s=20)))
    assert missing.outcome == "failed"
    assert path in missing.reason
    assert run_trial(trial).outcome == "ok"


def large(trial: Trial) -> Trial:
    """A trial that takes many seconds and some hundred MiB."""
    data = MixtureData(corruption_rate=0.0, n_samples=4000, noise_variance=0.3, within_variance=1.2)
    return changed(trial, data=data, method="dimsc", n_clusters=2, shuffled=False)


@pytest.mark.parametrize(
    ("limits", "outcome", "part"),
    [
        (Limits(time_s=0.3), "over time", "0.3 s"),
        pytest.param(
            *(Limits(memory_bytes=100 * 2**20), "over memory", "100 MiB"),
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_trial_over_a_limit_is_stopped(
    trial: Trial, limits: Limits, outcome: str, part: str
) -> None:
    fit = run_trial(changed(large(trial), limits=limits))
    assert fit.outcome == outcome
    assert part in fit.reason
    assert (fit.peak_memory_bytes or 0) > (limits.memory_bytes or -1)
    assert run_trial(trial).outcome == "ok"


def is_server(process: psutil.Process) -> bool:
    """Whether it is the server of trials; this process may have others, such as a browser."""
    with contextlib.suppress(psutil.Error):
        return "serve()" in " ".join(process.cmdline())
    return False


def running_processes(kind: str) -> list[psutil.Process]:
    """Processes of the running trials, or their servers."""
    found: dict[str, list[psutil.Process]] = {"server": [], "trial": []}
    for server in filter(is_server, psutil.Process().children()):
        with contextlib.suppress(psutil.NoSuchProcess):
            trials = server.children()
            if trials:
                found["server"].append(server)
            found["trial"] += trials
    return found[kind]


def killed_soon(kind: str, left: list[psutil.Process]) -> threading.Thread:
    """Kill the process of the running trial, or the server process, as soon as it runs; `left` gets what goes on."""

    def wait_and_kill() -> None:
        running = wait_until(partial(running_processes, kind))
        trials = running_processes("trial")
        os.kill(running[0].pid, signal.SIGKILL)
        left.extend(psutil.wait_procs(trials, timeout=30)[1])

    thread = threading.Thread(target=wait_and_kill, daemon=True)
    thread.start()
    return thread


@pytest.mark.faults
@pytest.mark.parametrize(("kind", "part"), [("trial", "SIGKILL"), ("server", "-9")])
@pytest.mark.thorough
def test_a_process_that_is_killed_leaves_a_trial_to_run_again(
    trial: Trial, kind: str, part: str
) -> None:
    left: list[psutil.Process] = []
    thread = killed_soon(kind, left)
    fit = run_trial(large(trial))
    thread.join()
    assert left == []
    assert fit.outcome == "worker lost"
    assert part in fit.reason
    assert run_trial(trial).outcome == "ok"


@pytest.mark.faults
def test_a_trial_ends_with_its_caller(trial: Trial) -> None:
    servers = []

    def run() -> None:
        servers.append(server_of_thread())
        run_trial(large(trial))

    running = threading.Thread(target=run, daemon=True)
    running.start()
    children = wait_until(
        lambda: [child for each in servers for child in psutil.Process(each.pid).children()]
    )
    servers[0].stdin.close()  # what happens when the caller dies
    gone, alive = psutil.wait_procs(children, timeout=30)
    assert gone
    assert not alive
    running.join(timeout=30)
    assert not running.is_alive()


def test_data_that_were_replaced_are_no_result_of_those_before(trial: Trial) -> None:
    assert isinstance(trial.data, StoredData)
    write_store(three_subspaces(seed=1), trial.data.path, overwrite=True)
    with pytest.raises(TemporaryFailure):
        fit_trial(trial)


@pytest.mark.timeout(30)  # what this would catch is a wait without an end
def test_a_cluster_without_workers_is_an_error_in_time(trial: Trial) -> None:
    with (
        local_client(0, processes=False) as scheduler,
        open_cluster(ExecutionTable(scheduler=scheduler.scheduler.address)) as cluster,
        pytest.raises(NoWorkersError),
    ):
        next(run_trials([trial], cluster, timeout_s=0.2))

"""Workers, schedulers and drivers that are killed or stopped in the middle of a fit or run: the same bits, or a typed error."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.config
import numpy as np
import pytest
from distributed import Client

from mscam_dask import MSCAM
from mscam_dask.errors import ClusterError, SchedulerLostError
from mscam_dask.pipeline.cluster import open_cluster
from mscam_dask.pipeline.resume import resume_run
from mscam_dask.pipeline.settings import ExecutionTable
from mscam_dask.pipeline.toml_document import Override
from mscam_dask.types.events import IterationFinished
from tests.clusters import local_client, scheduler_process, worker_process
from tests.engine.same_bits import bits
from tests.estimators.small import quick
from tests.faults.kill_driver import outcome_of, write_pipeline
from tests.pipeline.runs import HERE, THREE, again, write_tiny
from tests.processes import mscam, run, text_of, wait_until
from tests.synthetic import Array, gaussian_views

pytestmark = [
    pytest.mark.faults,
    # what distributed says of processes that were killed on purpose
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]


def views_of(n_samples: int) -> list[Array]:
    """Clusters that overlap, so that the path has several iterations."""
    return gaussian_views(7, n_samples=n_samples, n_clusters=5, spread=0.9, dims=(6, 9, 12))[0]


def estimator(client: Client | None, *, after: Callable[[int], None] | None = None) -> MSCAM:
    """A fit of several outer iterations; `after` is called with the number of each."""

    def observe(event: object) -> None:
        if after is not None and isinstance(event, IterationFinished):
            after(event.iteration)

    return quick(5, max_iter=8, client=client, callbacks=[observe])


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_a_worker_killed_in_the_middle_changes_nothing() -> None:
    views = views_of(300)
    timers: list[threading.Timer] = []

    def after(iteration: int) -> None:
        if iteration == 1:
            victim = min(client.run(os.getpid).values())
            timers.append(threading.Timer(0.1, kill, [victim]))
            timers[0].start()

    # "mid-solve" may be in any task: a worker that is killed is not the task's fault
    with dask.config.set({"distributed.scheduler.allowed-failures": 20}), local_client(2) as client:
        fitted = estimator(client, after=after).fit(views)
        timers[0].join()
    assert bits(fitted.solution_) == bits(estimator(None).fit(views).solution_)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_fits_end_though_a_worker_is_killed_every_two_seconds() -> None:
    views = views_of(600)
    expected = bits(estimator(None).fit(views).solution_)
    stop, rng, n_identical = threading.Event(), np.random.default_rng(0), 0

    def killing() -> None:
        while not stop.wait(2.0):
            # as their nannies know them: a worker may be too busy to answer
            nannies = client.cluster.workers.values()
            alive = [nanny.process.pid for nanny in nannies if nanny.process is not None]
            if any(alive):
                kill(int(rng.choice([pid for pid in alive if pid is not None])))

    killer = threading.Thread(target=killing)
    with local_client(2) as client:
        killer.start()
        until = time.monotonic() + 60
        try:
            while time.monotonic() < until:
                with contextlib.suppress(ClusterError):
                    assert bits(estimator(client).fit(views).solution_) == expected
                    n_identical += 1
        finally:
            stop.set()
            killer.join()
    assert n_identical > 0


@contextlib.contextmanager
def own_cluster(directory: Path) -> Iterator[tuple[Any, str]]:
    """A scheduler with its address, and two workers that nobody starts again."""
    with (
        scheduler_process(directory) as (scheduler, address),
        worker_process(address, directory),
        worker_process(address, directory),
    ):
        yield scheduler, address


@pytest.mark.timeout(300)
@pytest.mark.thorough
def test_the_scheduler_killed_while_the_fit_waits_is_a_typed_error(tmp_path: Path) -> None:
    with own_cluster(tmp_path) as (scheduler, address):

        def after(iteration: int) -> None:
            if iteration == 1:
                threading.Timer(0.05, scheduler.kill).start()

        with open_cluster(ExecutionTable(scheduler=address)) as cluster:
            model = estimator(cluster.client, after=after)
            with pytest.raises(SchedulerLostError) as caught:
                model.fit(views_of(600))
            assert len(str(caught.value).splitlines()) == 1


@pytest.mark.timeout(300)
@pytest.mark.thorough
def test_a_run_whose_scheduler_was_killed_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    names = ("a", "b", "c")
    np.savez(tmp_path / "d.npz", allow_pickle=False, **dict(zip(names, views_of(300), strict=True)))
    write = functools.partial(
        write_tiny,
        tmp_path,
        data="source = 'd.npz'",
        clusters=THREE.replace("= 3", "= 5", 1).replace("= 3", "= 6"),
    )
    expected = again(write(HERE), output=tmp_path / "undisturbed")
    with own_cluster(tmp_path) as (scheduler, address):
        file = write(f"[execution]\nscheduler = '{address}'\n")

        def observe(event: object) -> None:
            if isinstance(event, IterationFinished) and event.iteration == 2:
                scheduler.kill()
                scheduler.wait()

        with pytest.raises(SchedulerLostError):
            again(file, output=tmp_path / "out", observers=[observe])
    in_process = [
        Override(("execution", "scheduler"), None, "the test"),
        Override(("execution", "in_process"), True, "the test"),
    ]
    outcome = resume_run(tmp_path / "out", execution=in_process)
    assert outcome.resumed
    assert outcome_of(outcome.directory.path)[:3] == outcome_of(expected.directory.path)[:3]


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param("--runs 3", marks=[pytest.mark.thorough, pytest.mark.timeout(600)]),
        pytest.param("--runs 50 --seed 1", marks=[pytest.mark.slow, pytest.mark.timeout(3600)]),
        pytest.param(
            "--runs 5 --seed 2 --workers 2", marks=[pytest.mark.slow, pytest.mark.timeout(3600)]
        ),
    ],
)
def test_runs_killed_at_random_moments_end_with_the_same_bits(arguments: str) -> None:
    command = (sys.executable, "-m", "tests.faults.kill_driver", *arguments.split())
    done = run(*command, cwd=ROOT, timeout=3600)
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    n_runs = arguments.split()[1]
    assert f"{n_runs}/{n_runs} identical" in done.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
@pytest.mark.thorough
def test_a_driver_that_is_stopped_leaves_a_run_that_resumes(
    number: signal.Signals, code: int, whole: Any, tmp_path: Path
) -> None:
    file = write_pipeline(tmp_path)
    root = tmp_path / "cut"
    command = mscam("run", file, "-o", root, "--plain")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        events, mark = root / "events.jsonl", '"event":"iteration_finished"'
        wait_until(lambda: text_of(events).count(mark) >= 2, alive=process)
        process.send_signal(number)
        rest = process.stderr.read()
        # the deadline of the package is 5 s; what is over is the end of the interpreter
        assert process.wait(timeout=10) == code
    assert f"mscam-dask resume {root}" in rest
    record = json.loads((root / "run.json").read_text())
    assert (record["state"], record["exit_code"]) == ("interrupted", code)
    assert number.name in record["error"]["message"]
    outcome = resume_run(root)
    assert outcome.record.resumed[0].after_iteration >= 2
    assert outcome_of(root) == whole

"""Trials: one fit of one method on one data set with one setting and one seed, in its own process.

`TrialProcess` starts a server process that imports everything once and runs each trial in a fork
of itself: a fork takes milliseconds, its peak memory is its own, and a method that crashes or is
killed over its limits ends only the fork. Where forks are not safe (not Linux), each trial starts
an interpreter. Requests and results are lines of JSON. The server exits when its input is closed,
so it never outlives the worker that started it. `run_trials` runs trials as Dask tasks.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime as dt
import hashlib
import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import psutil
from msgspec import Struct

from mscam_dask import __version__
from mscam_dask.benchmark.datasets import MixtureData, StoredData, shuffled_data
from mscam_dask.benchmark.methods import METHODS, method
from mscam_dask.benchmark.results import SCORES, Outcome, TrialEntry
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.engine.executors._process import PinnedBlas, without_dask_trim
from mscam_dask.errors import SchedulerLostError
from mscam_dask.estimators._describe import label_free_scores
from mscam_dask.metrics import score_partition

if TYPE_CHECKING:
    from distributed import Client

    from mscam_dask.engine.executors._watchdog import WorkerWatchdog
    from mscam_dask.engine.executors.dask import DaskExecutor
    from mscam_dask.pipeline.run.cluster import OpenCluster

__all__ = [
    "Limits",
    "Trial",
    "TrialFit",
    "TrialProcess",
    "fit_trial",
    "run_trial",
    "run_trials",
    "serve",
    "trial_entry",
]

_POLL_S = 0.02
_MIB = 2**20
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_processes: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
_threads = threading.local()


class Trial(Struct, frozen=True, kw_only=True):
    """One fit, before it has run.

    Attributes
    ----------
    dataset, method
        Names.
    data
        Data to cluster.
    n_clusters, seed
    shuffled
        Whether the seed shuffles the samples.
    parameters
        Parameters of the method that are not at their defaults.
    """

    dataset: str
    method: str
    data: StoredData | MixtureData
    n_clusters: int
    seed: int
    shuffled: bool
    parameters: dict[str, Any]

    @property
    def key(self) -> str:
        """SHA-256 digest of everything that determines the result, with the version of the package."""
        content = {
            "version": __version__,
            "method": self.method,
            "data": self.data.digest,
            "n_clusters": self.n_clusters,
            "seed": self.seed,
            "shuffled": self.shuffled,
            "parameters": self.parameters,
        }
        return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of a trial: wall seconds, and bytes above the memory of the process it is forked from."""

    time_s: float | None = None
    memory_bytes: int | None = None


class TrialFit(Struct, frozen=True, kw_only=True):
    """Result of a trial."""

    outcome: Outcome
    reason: str = ""
    scores: dict[str, float | None] = {}
    n_found: int | None = None
    seconds: float | None = None
    peak_memory_bytes: int | None = None


def trial_entry(trial: Trial, fit: TrialFit, limits: Limits) -> TrialEntry:
    """Return the record of a trial that has just ended."""
    return TrialEntry(
        key=trial.key,
        dataset=trial.dataset,
        method=trial.method,
        seed=trial.seed,
        shuffled=trial.shuffled,
        parameters=trial.parameters,
        limits=msgspec.structs.asdict(limits),
        ended=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        **msgspec.structs.asdict(fit),
    )


def fit_trial(trial: Trial) -> TrialFit:
    """Open the data of a trial, shuffle, fit and score, on one thread.

    Returns
    -------
    TrialFit
        Without the peak memory, which the process measures.

    Raises
    ------
    MscamError
        If the method rejects data or parameters.
    """
    data = trial.data.open(trial.seed)
    if trial.shuffled:
        data = shuffled_data(data, trial.seed)
    fitted = method(trial.method)
    estimator = fitted.make(trial.n_clusters, trial.seed, trial.parameters)
    views: Any = data
    if fitted.takes_arrays:
        views = [np.array(view.read(0, data.n_samples)) for view in data.views]
    with PinnedBlas(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the scores show how good a result is
        started = time.perf_counter()
        labels = np.asarray(estimator.fit(views).labels_)
        seconds = time.perf_counter() - started
    return TrialFit(
        outcome="ok",
        scores=_scores(data, labels),
        n_found=len(np.unique(labels)),
        seconds=seconds,
    )


def _scores(data: MultiViewData, labels: np.ndarray[Any, Any]) -> dict[str, float | None]:
    """Scores against the labels of the data; without these the label-free scores."""
    if data.labels is None:
        return {**label_free_scores(data, labels)}
    scores = score_partition(data.labels, labels)
    return {name: float(getattr(scores, name)) for name in SCORES}


class _Request(Struct, frozen=True, kw_only=True):
    """A trial and its limits."""

    trial: Trial
    limits: Limits


class TrialProcess:
    """Client of a server process, which is started when it is needed, and again if it has died.

    Only one thread at a time may use it.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._directory = Path()

    def run(self, trial: Trial, limits: Limits) -> TrialFit:
        """Run one trial; a failure is its result."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(msgspec.json.encode(_Request(trial=trial, limits=limits)) + b"\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except (OSError, ValueError):  # one end of a pipe is closed
            answer = b""
        if not answer:
            code = process.wait()
            self.close()
            return TrialFit(
                outcome=_outcome(code),
                reason=f"the process that runs trials exited with code {code}, usually because the "
                "machine ran out of memory. Run fewer trials at a time (--workers).",
            )
        return msgspec.json.decode(answer, type=TrialFit)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._directory != Path.cwd():  # modules of the working directory may be methods
            self.close()
        if self._process is None or self._process.poll() is not None:
            self._directory = Path.cwd()
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import serve; serve()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**without_dask_trim(os.environ), **_ONE_THREAD},
                start_new_session=True,  # Ctrl-C is for the driver, which then closes the input
            )
        return self._process

    def close(self) -> None:
        """Stop the process, and the trial that runs in it."""
        process, self._process = self._process, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()
        process.wait()


def serve() -> None:
    """Run the trials of standard input until it is closed, and write results to standard output."""
    # methods of the package are imported once, for all forks; others are imported when they run
    for entry in METHODS.values():
        entry.make(2, 0, {"view": 0} if entry.label_aware_view_choice else {})
    while line := sys.stdin.buffer.readline():
        request = msgspec.json.decode(line, type=_Request)
        fit = _run_within(request.limits, request.trial)
        if fit is None:
            return
        sys.stdout.buffer.write(msgspec.json.encode(fit) + b"\n")
        sys.stdout.buffer.flush()


def _run_within(limits: Limits, trial: Trial) -> TrialFit | None:
    """Run a trial in its own process within its limits; None if the client has closed the input."""
    receiver, sender = _processes.Pipe(duplex=False)
    child = _processes.Process(target=_work, args=(trial, sender))
    child.start()
    sender.close()
    started, before = time.monotonic(), _memory_bytes(child.pid)
    poll_s = min(_POLL_S, limits.time_s or _POLL_S)
    try:
        while True:
            # No request comes while a trial runs: input that is ready was closed.
            ready: list[Any] = wait([receiver, sys.stdin.fileno()], timeout=poll_s)
            if receiver in ready:
                return msgspec.json.decode(receiver.recv_bytes(), type=TrialFit)
            if ready:
                return None
            used = _memory_bytes(child.pid) - before
            if (over := _over_limits(limits, time.monotonic() - started, used)) is not None:
                return over
    except (EOFError, OSError):  # the process ended without a result
        child.join()
        return TrialFit(outcome=_outcome(child.exitcode), reason=_exit_reason(child.exitcode))
    finally:
        child.kill()
        child.join()
        receiver.close()


def _over_limits(limits: Limits, elapsed: float, used: int) -> TrialFit | None:
    """Result of a trial that exceeds a limit; None within the limits."""
    if limits.time_s is not None and elapsed > limits.time_s:
        return TrialFit(
            outcome="over time",
            reason=f"stopped after {elapsed:.0f} s; the limit is {limits.time_s:g} s",
            seconds=elapsed,
        )
    if limits.memory_bytes is not None and used > limits.memory_bytes:
        return TrialFit(
            outcome="over memory",
            reason=f"used {used / _MIB:.0f} MiB; the limit is {limits.memory_bytes / _MIB:.0f} MiB",
            peak_memory_bytes=used,
        )
    return None


def _memory_bytes(pid: int) -> int:
    """Resident memory of a process; 0 if it has just exited."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def _work(trial: Trial, sender: Connection) -> None:
    """Run a trial in its own process, and send its `TrialFit`."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # results of the server are on standard output
    before = _peak_bytes()
    try:
        fit = fit_trial(trial)
    except MemoryError as error:
        fit = TrialFit(outcome="over memory", reason=f"MemoryError: {error}")
    except Exception as error:  # noqa: BLE001 - any failure of a method is the result of its trial
        fit = TrialFit(outcome="failed", reason=f"{type(error).__name__}: {error}")
    fit = msgspec.structs.replace(fit, peak_memory_bytes=max(0, _peak_bytes() - before))
    sender.send_bytes(msgspec.json.encode(fit))


def _peak_bytes() -> int:
    """Peak resident memory of this process; a fork starts with the shared pages."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _outcome(code: int) -> Outcome:
    """Outcome of a trial without a result; one that was killed from outside runs again next time."""
    return "worker lost" if code in (-signal.SIGTERM, -signal.SIGKILL) else "failed"


def _exit_reason(code: int) -> str:
    if code >= 0:
        return f"the process of the trial exited with code {code} without a result"
    name = signal.Signals(-code).name
    cause = ", usually because the machine ran out of memory" if name == "SIGKILL" else ""
    return f"the process of the trial was killed by {name}{cause}"


def run_trial(trial: Trial, limits: Limits) -> TrialFit:
    """Run one trial as a Dask task, in the `TrialProcess` of this thread.

    That process starts with the first trial of the thread and ends with this process.
    """
    if not hasattr(_threads, "process"):
        _threads.process = TrialProcess()
        atexit.register(_threads.process.close)
    process: TrialProcess = _threads.process
    return process.run(trial, limits)


def run_trials(
    trials: Sequence[Trial],
    limits: Limits,
    cluster: OpenCluster,
    *,
    timeout_s: float | None = None,
) -> Iterator[tuple[Trial, TrialEntry]]:
    """Run trials, and yield each when it has ended.

    Parameters
    ----------
    trials
        Each key once.
    limits
        Limits of every trial.
    cluster
        With a client, as many trials at a time as its workers have threads; without, one at a time.
    timeout_s
        Maximum seconds without any worker; by default the setting of the cluster.

    Yields
    ------
    trial : Trial
    entry : TrialEntry
        Also of a trial that failed, which does not stop the others.

    Raises
    ------
    SchedulerLostError
        If the connection to the cluster is lost; the yielded trials have ended.
    NoWorkersError
        If there has been no worker for `timeout_s`; the yielded trials have ended.
    """
    if cluster.client is None:
        for trial in trials:
            yield trial, trial_entry(trial, run_trial(trial, limits), limits)
        return
    from mscam_dask.engine.executors.dask import DaskExecutor

    executor = DaskExecutor(cluster.client, timeout_s=timeout_s)
    yield from _on_cluster(trials, limits, cluster.client, executor)


def _on_cluster(
    trials: Sequence[Trial], limits: Limits, client: Client, executor: DaskExecutor
) -> Iterator[tuple[Trial, TrialEntry]]:
    run_id = uuid.uuid4().hex[:8]
    finished: queue.SimpleQueue[Any] = queue.SimpleQueue()
    by_key = {
        f"{trial.method}-{run_id}-{trial.dataset}-{trial.seed}-{trial.key[:12]}": trial
        for trial in trials
    }
    futures = {}
    try:
        for key, trial in by_key.items():
            future: Any = client.submit(run_trial, trial, limits, key=key, pure=False)
            future.add_done_callback(finished.put)
            futures[key] = future
        for _ in by_key:
            future = _next_finished(finished, executor.watchdog())
            trial = by_key[future.key]
            fit = _fit_of(future)
            futures.pop(future.key).release()
            yield trial, trial_entry(trial, fit, limits)
    finally:
        for future in futures.values():
            future.cancel()


def _next_finished(finished: queue.SimpleQueue[Any], watchdog: WorkerWatchdog) -> Any:
    """Wait for the next finished task, as long as there are workers."""
    from mscam_dask.engine.executors.dask import POLL_S

    while True:
        with contextlib.suppress(queue.Empty):
            return finished.get(timeout=POLL_S)
        watchdog.check()


def _fit_of(future: Any) -> TrialFit:
    """Return the result of a finished task, also if the task itself failed."""
    if future.status in ("cancelled", "lost"):
        raise SchedulerLostError(
            "the connection to the Dask scheduler was lost; finished trials are kept. Start the "
            "cluster again and rerun the command with the same output directory."
        )
    if future.status == "error":
        error = future.exception()
        if type(error).__name__ == "KilledWorker":
            return TrialFit(
                outcome="worker lost",
                reason="every worker that ran the trial died, usually because it ran out of memory. "
                "Give workers more memory, or set memory_limit",
            )
        return TrialFit(outcome="failed", reason=f"{type(error).__name__}: {error}")
    fit: TrialFit = future.result()
    return fit

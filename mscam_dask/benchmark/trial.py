"""Trials: one fit of one method on one data set with one setting and one seed, in its own process.

`run_trial` starts a server process that imports everything once and runs each trial in a fork
of itself: a fork takes milliseconds, its peak memory is its own, and a method that crashes or is
killed over its limits ends only the fork. Where forks are not safe (not Linux), each trial starts
an interpreter. Requests and results are lines of JSON. The server exits when its input is closed,
so it never outlives the worker that started it. `run_trials` runs trials as Dask tasks.
"""

from __future__ import annotations

import atexit
import contextlib
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

from mscam_dask import __version__
from mscam_dask.benchmark.datasets import MixtureData, StoredData, shuffled_data
from mscam_dask.benchmark.methods import METHODS, method
from mscam_dask.benchmark.results import SCORES, Outcome, TrialEntry, TrialFields
from mscam_dask.engine.executors._process import PinnedBlas, without_dask_trim
from mscam_dask.errors import SchedulerLostError
from mscam_dask.estimators._describe import label_free_scores
from mscam_dask.metrics import score_partition
from mscam_dask.monitor.run_record import now

if TYPE_CHECKING:
    from mscam_dask.pipeline.cluster import OpenCluster

_POLL_S = 0.02
_MIB = 2**20
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_processes: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
_threads = threading.local()


class Trial(TrialFields, frozen=True, kw_only=True):
    """One fit, before it has run."""

    data: StoredData | MixtureData
    n_clusters: int
    label_free: bool = False  # whether it has scores without labels too, of MSCAM or MSCAN

    @property
    def key(self) -> str:
        """SHA-256 digest of everything that determines the result, with the version of the package."""
        content = {"version": __version__, **msgspec.structs.asdict(self)}
        del content["dataset"], content["limits"]
        if isinstance(self.data, StoredData):
            content["data"] = self.data.digest
        return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()

    def entry(self, outcome: Outcome, **result: Any) -> TrialEntry:
        """Return the record of the trial, which has just ended."""
        shared = {name: getattr(self, name) for name in TrialFields.__struct_fields__}
        return TrialEntry(key=self.key, outcome=outcome, ended=now(), **shared, **result)


def fit_trial(trial: Trial) -> TrialEntry:
    """Open the data of a trial, shuffle, fit and score, on one thread; without the peak memory."""
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
    scores: dict[str, float] = {}
    if trial.label_free or data.labels is None:
        scores |= label_free_scores(data, labels)
    if trial.label_free:
        scores["n_connected_components"] = float(estimator.n_connected_components_)
    if data.labels is not None:
        with_labels = score_partition(data.labels, labels)
        scores |= {name: float(getattr(with_labels, name)) for name in SCORES}
    return trial.entry("ok", scores=scores, seconds=seconds)


def run_trial(trial: Trial) -> TrialEntry:
    """Run one trial, as a Dask task, in the server process of this thread; a failure is its result."""
    process = server_of_thread()
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        # modules of the working directory may be methods
        process.stdin.write(msgspec.json.encode((trial, str(Path.cwd()))) + b"\n")
        process.stdin.flush()
        answer = process.stdout.readline()
    except (OSError, ValueError):  # one end of a pipe is closed
        answer = b""
    if not answer:
        _stop(process)
        return _without_result(trial, process.returncode)
    return msgspec.json.decode(answer, type=TrialEntry)


def server_of_thread() -> subprocess.Popen[bytes]:
    """Server process of this thread, started when it is needed, and again if it has died."""
    if not hasattr(_threads, "server") or _threads.server.poll() is not None:
        _threads.server = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**without_dask_trim(os.environ), **_ONE_THREAD},
            start_new_session=True,  # Ctrl-C is for the driver, which then closes the input
        )
        atexit.register(_stop, _threads.server)
    server: subprocess.Popen[bytes] = _threads.server
    return server


def _stop(server: subprocess.Popen[bytes]) -> None:
    """Stop a server process, and the trial that runs in it."""
    for stream in (server.stdin, server.stdout):
        assert stream is not None
        with contextlib.suppress(OSError):
            stream.close()
    server.wait()


def serve() -> None:
    """Run the trials of standard input until it is closed, and write results to standard output."""
    # methods of the package are imported once, for all forks; others are imported when they run
    for entry in METHODS.values():
        entry.make(2, 0, {"view": 0} if entry.label_aware_view_choice else {})
    while line := sys.stdin.buffer.readline():
        result = _run_forked(*msgspec.json.decode(line, type=tuple[Trial, str]))
        if result is None:
            return
        sys.stdout.buffer.write(result + b"\n")
        sys.stdout.buffer.flush()


def _run_forked(trial: Trial, directory: str) -> bytes | None:
    """JSON of the result of a trial in its own process; None if the client has closed the input."""
    receiver, sender = _processes.Pipe(duplex=False)
    child = _processes.Process(target=_work, args=(trial, directory, sender))
    child.start()
    sender.close()
    started, before = time.monotonic(), _memory_bytes(child.pid)
    poll_s = min(_POLL_S, trial.limits.time_s or _POLL_S)
    try:
        while True:
            # No request comes while a trial runs: input that is ready was closed.
            ready: list[Any] = wait([receiver, sys.stdin.fileno()], timeout=poll_s)
            if receiver in ready:
                return bytes(receiver.recv_bytes())
            if ready:
                return None
            used = _memory_bytes(child.pid) - before
            stopped = _over_limits(trial, time.monotonic() - started, used)
            if stopped is not None:
                return msgspec.json.encode(stopped)
    except (EOFError, OSError):  # the process ended without a result
        child.join()
        return msgspec.json.encode(_without_result(trial, child.exitcode))
    finally:
        child.kill()
        child.join()
        receiver.close()


def _over_limits(trial: Trial, elapsed: float, used: int) -> TrialEntry | None:
    """Result of a trial that exceeds a limit; None within the limits."""
    limits = trial.limits
    if limits.time_s is not None and elapsed > limits.time_s:
        reason = f"stopped after {elapsed:.0f} s; the limit is {limits.time_s:g} s"
        return trial.entry("over time", reason=reason, seconds=elapsed)
    if limits.memory_bytes is not None and used > limits.memory_bytes:
        reason = f"used {used / _MIB:.0f} MiB; the limit is {limits.memory_bytes / _MIB:.0f} MiB"
        return trial.entry("over memory", reason=reason, peak_memory_bytes=used)
    return None


def _without_result(trial: Trial, code: int) -> TrialEntry:
    """Result of a trial whose process ended by itself; one that was killed runs again next time."""
    lost = code in (-signal.SIGTERM, -signal.SIGKILL)
    name = f" ({signal.Signals(-code).name})" if code < 0 else ""
    cause = (
        ", usually because the machine ran out of memory. Run fewer trials at a time (--workers)."
    )
    return trial.entry(
        "worker lost" if lost else "failed",
        reason=f"the process of the trial ended with exit code {code}{name}{cause if lost else ''}",
    )


def _memory_bytes(pid: int) -> int:
    """Resident memory of a process; 0 if it has just exited."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def _work(trial: Trial, directory: str, sender: Connection) -> None:
    """Run a trial in its own process, which ends with the server, and send its result as JSON."""
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    os.chdir(directory)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # results of the server are on standard output
    before = _peak_bytes()
    try:
        entry = fit_trial(trial)
    except MemoryError as error:
        entry = trial.entry("over memory", reason=f"MemoryError: {error}")
    except Exception as error:  # noqa: BLE001 - any failure of a method is the result of its trial
        entry = trial.entry("failed", reason=f"{type(error).__name__}: {error}")
    entry = msgspec.structs.replace(entry, peak_memory_bytes=max(0, _peak_bytes() - before))
    sender.send_bytes(msgspec.json.encode(entry))


def _end_with_the_server() -> None:
    """End this process when its server ends: one that was killed cannot stop its trials."""
    wait([_processes.parent_process().sentinel])
    os._exit(1)


def _peak_bytes() -> int:
    """Peak resident memory of this process; a fork starts with the shared pages."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def run_trials(
    trials: Sequence[Trial], cluster: OpenCluster, *, timeout_s: float | None = None
) -> Iterator[TrialEntry]:
    """Run trials with different keys, and yield each when it has ended, also one that failed.

    A lost connection is an error, as is no worker for `timeout_s` seconds, by default the cluster's setting.
    """
    if cluster.client is None:
        yield from map(run_trial, trials)
        return
    from mscam_dask.engine.executors.dask import POLL_S, DaskExecutor

    executor = DaskExecutor(cluster.client, timeout_s=timeout_s)
    run_id = uuid.uuid4().hex[:8]
    finished: queue.SimpleQueue[Any] = queue.SimpleQueue()
    running: dict[str, tuple[Trial, Any]] = {}
    try:
        for trial in trials:
            key = f"{trial.method}-{run_id}-{trial.dataset}-{trial.seed}-{trial.key[:12]}"
            future: Any = cluster.client.submit(run_trial, trial, key=key, pure=False)
            future.add_done_callback(finished.put)
            running[key] = trial, future
        watchdog = executor.watchdog()
        while running:
            try:
                ended = finished.get(timeout=POLL_S)
            except queue.Empty:
                watchdog.check()
                continue
            watchdog = executor.watchdog()
            trial, future = running.pop(ended.key)
            entry = _entry_of(trial, future)
            future.release()
            yield entry
    finally:
        for _, future in running.values():
            future.cancel()


def _entry_of(trial: Trial, future: Any) -> TrialEntry:
    """Return the result of a finished task, also if the task itself failed."""
    if future.status in ("cancelled", "lost"):
        raise SchedulerLostError(
            "the connection to the Dask scheduler was lost; finished trials are kept. Start the "
            "cluster again and rerun the command with the same output directory."
        )
    if future.status != "error":
        entry: TrialEntry = future.result()
        return entry
    error = future.exception()
    if type(error).__name__ != "KilledWorker":
        return trial.entry("failed", reason=f"{type(error).__name__}: {error}")
    return trial.entry(
        "worker lost",
        reason="every worker that ran the trial died, usually because it ran out of memory. Give "
        "workers more memory, or set memory_limit",
    )

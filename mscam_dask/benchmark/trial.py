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
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
import psutil
from msgspec import Struct

from mscam_dask import __version__
from mscam_dask.benchmark.results import Outcome, TrialEntry
from mscam_dask.engine.executors._process import without_dask_trim
from mscam_dask.errors import MscamError, SchedulerLostError

if TYPE_CHECKING:
    from distributed import Client

    from mscam_dask.engine.executors.dask import DaskExecutor, WorkerWatchdog
    from mscam_dask.pipeline.run.cluster import OpenCluster

__all__ = [
    "Limits",
    "MixtureData",
    "StoredData",
    "Trial",
    "TrialFit",
    "TrialProcess",
    "run_one",
    "run_trial",
    "run_trials",
    "serve",
    "trial_entry",
]

_POLL_S = 0.02
_MIB = 2**20
_CAN_FORK = sys.platform == "linux"
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_threads = threading.local()


class StoredData(Struct, frozen=True, kw_only=True, tag="store", tag_field="kind"):
    """Data in a store.

    Attributes
    ----------
    path
        Path or URL of the store; not part of the key of a trial.
    view_types
        View type of each view as it is clustered; part of the digest.
    digest
        Digest of views and labels.
    """

    path: str
    view_types: tuple[str, ...]
    digest: str


class MixtureData(Struct, frozen=True, kw_only=True, tag="mixture", tag_field="kind"):
    """Parameters of `corrupted_mixture`, which the trial draws with its seed."""

    corruption_rate: float
    n_samples: int
    noise_variance: float
    within_variance: float
    digest: str


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

    def as_dict(self) -> dict[str, float | None]:
        """Limits as in `TrialEntry`."""
        return {"time_s": self.time_s, "memory_bytes": self.memory_bytes}


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
        outcome=fit.outcome,
        reason=fit.reason,
        scores=fit.scores,
        n_found=fit.n_found,
        seconds=fit.seconds,
        peak_memory_bytes=fit.peak_memory_bytes,
        limits=limits.as_dict(),
        ended=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    )


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
                _python("serve"),
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


def _python(function: str) -> list[str]:
    """Command line of an interpreter that calls a function of this module."""
    return [sys.executable, "-c", f"from {__name__} import {function}; {function}()"]


class _Child:
    """Process of a running trial: a fork of this process, or a new interpreter."""

    def __init__(self, trial: Trial) -> None:
        self._code: int | None = None
        self._received = bytearray()
        self._popen: subprocess.Popen[bytes] | None = None
        if _CAN_FORK:
            read_end, write_end = os.pipe()
            self.pid = os.fork()
            if self.pid == 0:
                os.close(read_end)
                _work(trial, write_end)
            os.close(write_end)
            self._output: IO[bytes] = os.fdopen(read_end, "rb")
        else:
            self._popen = subprocess.Popen(
                _python("run_one"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            assert self._popen.stdin is not None
            assert self._popen.stdout is not None
            self._popen.stdin.write(msgspec.json.encode(trial))
            self._popen.stdin.close()
            self.pid, self._output = self._popen.pid, self._popen.stdout
        os.set_blocking(self._output.fileno(), False)

    def poll(self) -> int | None:
        """Exit code, negative for a signal; None while the process runs."""
        if self._code is None:
            if self._popen is not None:
                self._code = self._popen.poll()
            else:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def kill(self) -> None:
        """Kill the process and wait for it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        while self.poll() is None:
            time.sleep(_POLL_S)

    def read_available(self) -> None:
        """Read the available output, because a process whose pipe is full cannot exit."""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._output.fileno(), _MIB):
                self._received += chunk

    def output(self) -> bytes:
        """Whole output of the process after it has exited."""
        with self._output:
            self.read_available()
        return bytes(self._received)

    def memory_bytes(self) -> int:
        """Resident memory; 0 if the process has just exited."""
        try:
            return int(psutil.Process(self.pid).memory_info().rss)
        except psutil.Error:
            return 0


def _work(trial: Trial, output: int) -> None:
    """Run a trial in its own process: write its `TrialFit` and exit."""
    devnull = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(devnull, stream)
    before = _peak_bytes()
    try:
        fit = _fit(trial)
        fit = msgspec.structs.replace(fit, peak_memory_bytes=max(0, _peak_bytes() - before))
        with os.fdopen(output, "wb") as pipe:
            pipe.write(msgspec.json.encode(fit))
    finally:
        os._exit(0)


def _fit(trial: Trial) -> TrialFit:
    from mscam_dask.benchmark.fitting import fit_trial

    try:
        return fit_trial(trial)
    except MscamError as error:
        return TrialFit(outcome="failed", reason=f"{type(error).__name__}: {error}")
    except MemoryError as error:
        return TrialFit(outcome="over memory", reason=f"MemoryError: {error}")
    except Exception as error:  # noqa: BLE001 - any failure of a method is the result of its trial
        return TrialFit(outcome="failed", reason=f"{type(error).__name__}: {error}")


def _peak_bytes() -> int:
    """Peak resident memory of this process; a fork starts with the shared pages."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _watched(child: _Child, limits: Limits) -> TrialFit | None:
    """Wait for a trial within its limits; None if the client has closed the input."""
    started, before = time.monotonic(), child.memory_bytes()
    while child.poll() is None:
        if select.select([sys.stdin.buffer], [], [], _POLL_S)[0]:
            child.kill()  # no request comes while a trial runs: the input was closed
            return None
        child.read_available()
        elapsed = time.monotonic() - started
        if limits.time_s is not None and elapsed > limits.time_s:
            child.kill()
            return TrialFit(
                outcome="over time",
                reason=f"stopped after {elapsed:.0f} s; the limit is {limits.time_s:g} s",
                seconds=elapsed,
            )
        used = child.memory_bytes() - before
        if limits.memory_bytes is not None and used > limits.memory_bytes:
            child.kill()
            return TrialFit(
                outcome="over memory",
                reason=f"used {used / _MIB:.0f} MiB; the limit is "
                f"{limits.memory_bytes / _MIB:.0f} MiB",
                peak_memory_bytes=used,
            )
    code, output = child.poll() or 0, child.output()
    if not output:
        return TrialFit(outcome=_outcome(code), reason=_exit_reason(code))
    return msgspec.json.decode(output, type=TrialFit)


def _outcome(code: int) -> Outcome:
    """Outcome of a trial without a result; one that was killed from outside runs again next time."""
    return "worker lost" if code in (-signal.SIGTERM, -signal.SIGKILL) else "failed"


def _exit_reason(code: int) -> str:
    if code >= 0:
        return f"the process of the trial exited with code {code} without a result"
    name = signal.Signals(-code).name
    cause = ", usually because the machine ran out of memory" if name == "SIGKILL" else ""
    return f"the process of the trial was killed by {name}{cause}"


def serve() -> None:
    """Run the trials of standard input until it is closed."""
    import mscam_dask.benchmark.fitting  # noqa: F401 - imported once, for all forks
    from mscam_dask.benchmark.methods import import_all

    import_all()
    while line := sys.stdin.buffer.readline():
        request = msgspec.json.decode(line, type=_Request)
        fit = _watched(_Child(request.trial), request.limits)
        if fit is None:
            return
        sys.stdout.buffer.write(msgspec.json.encode(fit) + b"\n")
        sys.stdout.buffer.flush()


def run_one() -> None:
    """Run the one trial of standard input, where processes cannot be forked."""
    _work(msgspec.json.decode(sys.stdin.buffer.read(), type=Trial), os.dup(1))


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

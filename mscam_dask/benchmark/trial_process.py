"""A process that cells run in, one after the other, each in a fork of it.

The process imports everything once; a fork of it takes milliseconds, dies alone when a method
crashes or is killed over its limits, and its peak memory is its own. Where processes cannot be
forked safely (not Linux), each cell starts an interpreter instead.

It reads requests as lines of JSON, answers each with one line, and ends when its input does, so
it goes with the worker that started it, however that ended.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from typing import IO

import msgspec
import psutil
from msgspec import Struct

from mscam_dask.benchmark.results import Outcome
from mscam_dask.benchmark.trial import Limits, Trial, TrialFit
from mscam_dask.engine.executors._malloc import without_dask_trim
from mscam_dask.errors import MscamError

__all__ = ["Request", "TrialProcess"]

_POLL_S = 0.02
_MIB = 2**20
_CAN_FORK = sys.platform == "linux"
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Request(Struct, frozen=True, kw_only=True):
    """A cell to run, and what it may take."""

    trial: Trial
    limits: Limits


class TrialProcess:
    """The caller's side: starts the process when it is needed, and again when it is gone.

    Not for use by two threads at a time.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, trial: Trial, limits: Limits) -> TrialFit:
        """Run one cell; what goes wrong with it is in the result."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(msgspec.json.encode(Request(trial=trial, limits=limits)) + b"\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except (OSError, ValueError):  # its end of a pipe is gone, or ours was closed
            answer = b""
        if not answer:
            code = process.wait()
            self.close()
            return TrialFit(
                outcome=_outcome(code),
                reason=f"the process that runs cells ended with code {code}; most often the "
                "computer had no memory left. Run fewer cells at a time (--workers).",
            )
        return msgspec.json.decode(answer, type=TrialFit)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**without_dask_trim(os.environ), **_ONE_THREAD},
                start_new_session=True,  # Ctrl-C is for the driver, which then closes our input
            )
        return self._process

    def close(self) -> None:
        """End the process, and a cell that runs in it."""
        process, self._process = self._process, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()
        process.wait()


class _Child:
    """A cell at work: a fork of this process, or an interpreter of its own."""

    def __init__(self, trial: Trial) -> None:
        self._code: int | None = None
        self._said = bytearray()
        self._popen: subprocess.Popen[bytes] | None = None
        if _CAN_FORK:
            answers, ours = os.pipe()
            self.pid = os.fork()
            if self.pid == 0:
                os.close(answers)
                _work(trial, ours)
            os.close(ours)
            self._answers: IO[bytes] = os.fdopen(answers, "rb")
        else:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", __name__, "--cell"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            assert self._popen.stdin is not None
            assert self._popen.stdout is not None
            self._popen.stdin.write(msgspec.json.encode(trial))
            self._popen.stdin.close()
            self.pid, self._answers = self._popen.pid, self._popen.stdout
        os.set_blocking(self._answers.fileno(), False)

    def poll(self) -> int | None:
        """Exit code, negative for a signal; None while it runs."""
        if self._code is None:
            if self._popen is not None:
                self._code = self._popen.poll()
            else:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def kill(self) -> None:
        """End it now."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        while self.poll() is None:
            time.sleep(_POLL_S)

    def listen(self) -> None:
        """Take what it has written by now: it cannot end before a pipe has room for its answer."""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._answers.fileno(), _MIB):
                self._said += chunk

    def answer(self) -> bytes:
        """What it wrote, when it has ended."""
        with self._answers:
            self.listen()
        return bytes(self._said)

    def memory_bytes(self) -> int:
        """Resident memory; 0 when it has just ended."""
        try:
            return int(psutil.Process(self.pid).memory_info().rss)
        except psutil.Error:
            return 0


def _work(trial: Trial, output: int) -> None:
    """What a cell's own process does, to its end: write a `TrialFit` and leave."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nowhere, stream)
    before = _peak_bytes()
    try:
        fit = _fitted(trial)
        fit = msgspec.structs.replace(fit, peak_memory_bytes=max(0, _peak_bytes() - before))
        with os.fdopen(output, "wb") as answers:
            answers.write(msgspec.json.encode(fit))
    finally:
        os._exit(0)


def _fitted(trial: Trial) -> TrialFit:
    from mscam_dask.benchmark.fitting import fit_trial

    try:
        return fit_trial(trial)
    except MscamError as error:
        return TrialFit(outcome="failed", reason=f"{type(error).__name__}: {error}")
    except MemoryError as error:
        return TrialFit(outcome="over memory", reason=f"MemoryError: {error}")
    except Exception as error:  # noqa: BLE001 - any failure of a method is its cell's result
        return TrialFit(outcome="failed", reason=f"{type(error).__name__}: {error}")


def _peak_bytes() -> int:
    """Most resident memory of this process so far; a fork starts with what it shares."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _watched(child: _Child, limits: Limits) -> TrialFit | None:
    """Wait for a cell within its limits; None when the caller is gone."""
    started, before = time.monotonic(), child.memory_bytes()
    while child.poll() is None:
        if select.select([sys.stdin.buffer], [], [], _POLL_S)[0]:
            child.kill()  # nothing is asked for while a cell runs: the caller is gone
            return None
        child.listen()
        elapsed = time.monotonic() - started
        if limits.time_s is not None and elapsed > limits.time_s:
            child.kill()
            return TrialFit(
                outcome="over time",
                reason=f"not done after {elapsed:.0f} s; the limit is {limits.time_s:g} s",
                seconds=elapsed,
            )
        held = child.memory_bytes() - before
        if limits.memory_bytes is not None and held > limits.memory_bytes:
            child.kill()
            return TrialFit(
                outcome="over memory",
                reason=f"held {held / _MIB:.0f} MiB; the limit is "
                f"{limits.memory_bytes / _MIB:.0f} MiB",
                peak_memory_bytes=held,
            )
    code, answer = child.poll(), child.answer()
    if not answer:
        return TrialFit(outcome=_outcome(code or 0), reason=_ended(code or 0))
    return msgspec.json.decode(answer, type=TrialFit)


def _outcome(code: int) -> Outcome:
    """Of a cell without an answer; one that was ended from outside is run again another time."""
    return "worker lost" if code in (-signal.SIGTERM, -signal.SIGKILL) else "failed"


def _ended(code: int) -> str:
    if code >= 0:
        return f"its process ended with code {code} and said nothing"
    name = signal.Signals(-code).name
    cause = "; most often the computer had no memory left" if name == "SIGKILL" else ""
    return f"its process was ended by {name}{cause}"


def _serve() -> None:
    """Answer requests until there are no more."""
    import mscam_dask.benchmark.fitting  # noqa: F401 - once, for all forks
    from mscam_dask.benchmark.methods import import_all

    import_all()
    while line := sys.stdin.buffer.readline():
        request = msgspec.json.decode(line, type=Request)
        fit = _watched(_Child(request.trial), request.limits)
        if fit is None:
            return
        sys.stdout.buffer.write(msgspec.json.encode(fit) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    if sys.argv[1:] == ["--cell"]:
        _work(msgspec.json.decode(sys.stdin.buffer.read(), type=Trial), os.dup(1))
    else:
        _serve()

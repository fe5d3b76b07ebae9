"""SIGTERM and Ctrl-C during a run: the first signal ends the run soon, the second one at once."""

from __future__ import annotations

import math
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Self

from mscam_dask.errors import EXIT_INTERRUPTED, TemporaryFailure

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_DEADLINE_S = 5.0
# Schedulers signal every process of a job, and drivers among these pass the signal on: the same
# request arrives several times.
_SAME_REQUEST_S = 2.0
_REPEAT_S = 0.1
_STANDARD_ERROR = 2


@contextmanager
def defer_signals() -> Iterator[None]:
    """Context that finishes first; a SIGTERM or SIGINT that comes meanwhile is handled at its end.

    Threads and processes that are started inside never receive SIGINT, which a terminal sends to
    every process of a command: the process that started them ends them. Outside the main thread
    nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    previous = {number: signal.signal(number, lambda n, _: came.append(n)) for number in _SIGNALS}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in previous.items():
            signal.signal(number, handler)
        for first in came[:1]:
            handler = previous[signal.Signals(first)]
            # raised again it would count as a second one
            handler(first, None) if callable(handler) else signal.raise_signal(first)


class _Interrupt(KeyboardInterrupt):
    """Interrupt of a signal.

    It is a subclass since `python -m` loses its exit code, and ends by SIGINT, after a `KeyboardInterrupt` that passed an
    `exec`, as in an import, even if it was caught.
    """


_Interrupt.__name__ = KeyboardInterrupt.__name__  # in records and events


def interrupt_of(error: BaseException) -> BaseException:
    """Interrupt of a signal that cleanup replaced by another error, as in `Condition.wait`; else the error itself."""
    interrupt = _interrupt_in(error)
    return error if interrupt is None or not isinstance(error, Exception) else interrupt


def _interrupt_in(error: BaseException | None) -> BaseException | None:
    """Interrupt of a signal among an error and those during whose handling it was raised."""
    while error is not None and not isinstance(error, _Interrupt):
        error = error.__context__
    return error


class GracefulShutdown:
    """Translation of the first SIGTERM or SIGINT into KeyboardInterrupt in the main thread; elsewhere nothing.

    Python runs signal handlers between two of its own instructions in the main thread, so a long call in a
    library delays them. The wake-up descriptor is written at once, and a thread reads it. It ends the process
    at a second signal, except for a SIGTERM less than 2 s after the first, or 5 s after the first one: then it
    calls `at_deadline`, whose message goes to standard error. An interrupt that is discarded, by Python in a
    callback of the garbage collector or by a library written in C, is raised again.
    """

    def __init__(self, at_deadline: Callable[[], str]) -> None:
        self.signal_name: str | None = None
        self._at_deadline = at_deadline
        self._handled_at = -math.inf
        self._exits = ExitStack()

    @property
    def exit_code(self) -> int:
        """Exit code of the interrupted command."""
        return TemporaryFailure.exit_code if self.signal_name == "SIGTERM" else EXIT_INTERRUPTED

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        reader, writer = socket.socketpair()
        writer.settimeout(0.0)
        watcher = threading.Thread(
            target=self._watch, args=(reader,), name="mscam-signals", daemon=True
        )

        def end() -> None:
            writer.close()  # the watcher reads the end of the stream
            watcher.join()
            reader.close()

        with ExitStack() as stack:
            watcher.start()
            stack.callback(end)
            previous = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
            stack.callback(signal.set_wakeup_fd, previous)
            for number in _SIGNALS:
                stack.callback(signal.signal, number, signal.signal(number, self._handle))
            self._report_others = sys.unraisablehook
            stack.callback(setattr, sys, "unraisablehook", self._report_others)
            sys.unraisablehook = self._report
            self._exits = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    @contextmanager
    def reported(self, failed: Callable[[BaseException], object], remedy: str) -> Iterator[None]:
        """Enter; `failed` gets the error that ends it, and an interrupt of a signal is raised with a remedy."""
        with self:
            try:
                yield
            except BaseException as error:
                cause = interrupt_of(error)
                failed(cause)
                if not isinstance(cause, KeyboardInterrupt):
                    raise
                if self.exit_code == TemporaryFailure.exit_code:
                    raise TemporaryFailure(f"Stopped by {self.signal_name}. {remedy}") from error
                raise KeyboardInterrupt(remedy) from error

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if _is_repeated(number, since=self._handled_at):
            return
        if self._handled_at == -math.inf:
            self._handled_at = time.monotonic()
            # coroutines that the interrupt keeps from being awaited
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            previous = signal.signal(signal.SIGALRM, self._repeat)
            self._exits.callback(signal.signal, signal.SIGALRM, previous)
            timer = signal.setitimer(signal.ITIMER_REAL, _REPEAT_S, _REPEAT_S)
            self._exits.callback(signal.setitimer, signal.ITIMER_REAL, *timer)
        self.signal_name = self.signal_name or signal.Signals(number).name
        raise _Interrupt

    def _repeat(self, *_: object) -> None:
        """Raise the interrupt again, unless the main thread cleans up after it or defers signals."""
        is_cleanup = _interrupt_in(sys.exc_info()[1]) is not None
        if not is_cleanup and signal.getsignal(signal.SIGINT) == self._handle:
            raise _Interrupt

    def _report(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Report an error that Python discards, except for an interrupt, which is raised again."""
        if not isinstance(unraisable.exc_value, _Interrupt):
            self._report_others(unraisable)

    def _watch(self, reader: socket.socket) -> None:
        """End the process at a second signal, or at the deadline after the first."""
        first = -math.inf
        while True:
            if first > -math.inf:
                reader.settimeout(max(first + _DEADLINE_S - time.monotonic(), 1e-3))
            try:
                received = reader.recv(1)
            except TimeoutError:
                message = self._at_deadline()
                with suppress(OSError):  # nobody may be left to read it
                    os.write(_STANDARD_ERROR, f"{message}\n".encode())
                os._exit(self.exit_code)
            if not received:
                return
            if received[0] not in _SIGNALS or _is_repeated(received[0], since=first):
                continue
            self.signal_name = self.signal_name or signal.Signals(received[0]).name
            if first > -math.inf:
                os._exit(self.exit_code)
            first = time.monotonic()


def _is_repeated(number: int, *, since: float) -> bool:
    """Whether a signal belongs to the request that came before."""
    return number == signal.SIGTERM and time.monotonic() - since < _SAME_REQUEST_S

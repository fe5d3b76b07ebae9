"""SIGTERM and Ctrl-C during a run: the first signal ends the run soon, the second one at once."""

from __future__ import annotations

import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Self

from mscam_dask.errors import EXIT_INTERRUPTED, TemporaryFailure

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_DEADLINE_S = 5.0
# Schedulers signal every process of a job, and drivers among these pass the signal on: the same
# request arrives several times.
_SAME_REQUEST_S = 2.0
_STANDARD_ERROR = 2
# Byte that asks the watcher to signal the main thread again, after a pause; others are numbers of signals.
_RAISE_AGAIN = 0
_PAUSE_S = 0.01


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


class GracefulShutdown:
    """Translation of the first SIGTERM or SIGINT into KeyboardInterrupt in the main thread; elsewhere nothing.

    Python runs signal handlers between two of its own instructions in the main thread, so a long call in a
    library delays them. The wake-up descriptor is written at once, and a thread reads it. It ends the process
    at a second signal, but for a SIGTERM less than 2 s after the first, or 5 s after the first one: then it
    calls `at_deadline`, whose message goes to standard error. Python discards an exception in a callback of
    the garbage collector, of a weak reference or of a finalizer: an interrupt there is raised again.
    """

    def __init__(self, at_deadline: Callable[[], str]) -> None:
        self.signal_name: str | None = None
        self._at_deadline = at_deadline
        self._was_discarded = False
        self._in_hook = False
        self._n_own_signals = 0
        self._ends = threading.Event()
        self._main_thread = 0
        self._handled_at = -math.inf
        self._previous: dict[signal.Signals, Any] = {}
        self._previous_hook = sys.unraisablehook
        self._previous_descriptor = -1
        self._pipe: tuple[socket.socket, socket.socket] | None = None
        self._watcher: threading.Thread | None = None

    @property
    def exit_code(self) -> int:
        """Exit code of the interrupted command."""
        return TemporaryFailure.exit_code if self.signal_name == "SIGTERM" else EXIT_INTERRUPTED

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        reader, writer = socket.socketpair()
        writer.settimeout(0.0)
        self._pipe, self._main_thread = (reader, writer), threading.get_ident()
        self._previous_descriptor = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        self._previous_hook, sys.unraisablehook = sys.unraisablehook, self._on_discarded
        self._previous = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        self._watcher = threading.Thread(
            target=self._watch, args=(reader,), name="mscam-signals", daemon=True
        )
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._pipe is None or self._watcher is None:
            return
        sys.unraisablehook = self._previous_hook
        signal.set_wakeup_fd(self._previous_descriptor)
        reader, writer = self._pipe
        self._ends.set()
        writer.close()  # the watcher reads the end of the stream
        try:
            self._watcher.join()
        finally:
            for number, handler in self._previous.items():
                signal.signal(number, handler)
        reader.close()
        self._pipe = self._watcher = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._in_hook and self._pipe is not None:  # Python would discard it without a word
            with suppress(OSError):
                self._pipe[1].send(bytes([_RAISE_AGAIN]))
            return
        if not self._was_discarded and _is_repeated(number, since=self._handled_at):
            return
        self._was_discarded = False
        if self._handled_at == -math.inf:
            self._handled_at = time.monotonic()
        self.signal_name = self.signal_name or signal.Signals(number).name
        raise KeyboardInterrupt

    def _on_discarded(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Handle an exception that Python discards; see `sys.unraisablehook`."""
        if self._pipe is None or not isinstance(unraisable.exc_value, KeyboardInterrupt):
            self._previous_hook(unraisable)
            return
        self._was_discarded = self._in_hook = True
        with suppress(OSError):
            self._pipe[1].send(bytes([_RAISE_AGAIN]))
        self._in_hook = False

    def _signal_again(self) -> None:
        """Signal the main thread, from the watcher, when it has left the callback."""
        if self._ends.wait(_PAUSE_S):
            return
        self._n_own_signals += 1
        signal.pthread_kill(self._main_thread, signal.SIGTERM)

    def _watch(self, reader: socket.socket) -> None:
        if not self._next_signal(reader):
            return
        first = time.monotonic()
        try:
            ended = not self._next_signal(reader, first + _DEADLINE_S, first=first)
        except TimeoutError:  # neither the end nor a second signal
            message = self._at_deadline()
            with suppress(OSError):  # nobody may be left to read it
                os.write(_STANDARD_ERROR, f"{message}\n".encode())
            ended = False
        if not ended:
            os._exit(self.exit_code)

    def _next_signal(
        self, reader: socket.socket, deadline: float = math.inf, first: float = -math.inf
    ) -> bool:
        """Wait for a signal of ours that is no repetition; False when there will be none, TimeoutError at the deadline."""
        while True:
            if deadline < math.inf:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                reader.settimeout(left)
            received = reader.recv(1)
            if not received:
                return False
            if received[0] == _RAISE_AGAIN:
                self._signal_again()
            elif received[0] == signal.SIGTERM and self._n_own_signals > 0:
                self._n_own_signals -= 1
            elif received[0] in _SIGNALS and not _is_repeated(received[0], since=first):
                self.signal_name = self.signal_name or signal.Signals(received[0]).name
                return True


def _is_repeated(number: int, *, since: float) -> bool:
    """Whether a signal belongs to the request that came before."""
    return number == signal.SIGTERM and time.monotonic() - since < _SAME_REQUEST_S

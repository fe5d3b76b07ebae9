"""The first signal interrupts, what must finish finishes, and the second or the deadline ends it."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mscam_dask.pipeline.run import graceful_shutdown
from mscam_dask.pipeline.run.graceful_shutdown import GracefulShutdown, defer_signals

SCRIPT = """
import os, signal, sys, time
from pathlib import Path
from mscam_dask.pipeline.run import graceful_shutdown as signals
signals._DEADLINE_S = float(sys.argv[2])
said = Path(sys.argv[1])
with signals.GracefulShutdown(lambda: said.write_text('deadline') and 'goes on') as interruption:
    to_send = ["SIGTERM", *sys.argv[3:4]]
    while True:  # a call in a library that does not come back
        try:
            if to_send:
                if len(to_send) == 1:
                    time.sleep(float(sys.argv[4]) if len(sys.argv) > 4 else 0.0)
                os.kill(os.getpid(), signal.Signals[to_send.pop(0)])
            time.sleep(60)
        except KeyboardInterrupt:
            pass
"""


def ignore_interrupts(said: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-c", SCRIPT, str(said), *arguments]
    done = subprocess.run(command, check=False, timeout=60, stderr=subprocess.PIPE, text=True)
    return done.returncode, done.stderr


INTERRUPT_ITSELF = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"


def raise_and_wait(number: signal.Signals, interruption: GracefulShutdown) -> None:
    with interruption:
        os.kill(os.getpid(), number)
        signal.pause()


def test_a_signal_becomes_an_interrupt_in_the_main_thread() -> None:
    before = signal.getsignal(signal.SIGTERM)
    interruption = GracefulShutdown(lambda: "")
    with pytest.raises(KeyboardInterrupt):
        raise_and_wait(signal.SIGTERM, interruption)
    assert interruption.signal_name == "SIGTERM"
    assert interruption.exit_code == 75
    assert signal.getsignal(signal.SIGTERM) is before
    interruption = GracefulShutdown(lambda: "")
    with pytest.raises(KeyboardInterrupt):
        raise_and_wait(signal.SIGINT, interruption)
    assert interruption.exit_code == 130


def in_a_callback_of_the_collector(action: Callable[[], None]) -> None:
    """Call a function where Python discards exceptions."""

    def callback(phase: str, info: dict[str, int]) -> None:
        gc.callbacks.remove(callback)
        action()

    gc.callbacks.append(callback)
    gc.collect(0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupt_that_python_discards_is_raised_again(number: signal.Signals) -> None:
    done = []

    def work() -> None:
        with GracefulShutdown(lambda: "") as interruption:
            in_a_callback_of_the_collector(lambda: os.kill(os.getpid(), number))
            done.append(interruption.signal_name)
            for _ in range(40):  # less than the deadline
                time.sleep(0.1)
            done.append("all of it")

    hook = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [number.name]
    assert sys.unraisablehook == hook


def test_an_interrupt_that_comes_while_one_is_discarded_is_raised_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(graceful_shutdown, "_PAUSE_S", 0.0)

    def work() -> None:
        with GracefulShutdown(lambda: ""):
            in_a_callback_of_the_collector(lambda: os.kill(os.getpid(), signal.SIGINT))
            for _ in range(40):
                time.sleep(0.1)

    for _ in range(300):
        with pytest.raises(KeyboardInterrupt):
            work()


def test_other_exceptions_that_python_discards_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: shown.append(args.exc_type))
    with GracefulShutdown(lambda: ""):
        in_a_callback_of_the_collector([].pop)
    assert shown == [IndexError]


def test_what_is_deferred_finishes_first() -> None:
    done = []

    def work() -> None:
        with GracefulShutdown(lambda: ""):
            with defer_signals():
                os.kill(os.getpid(), signal.SIGTERM)
                done.append("checkpoint")
            done.append("more")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["checkpoint"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_is_held_back_is_handled_as_before_at_the_end(number: signal.Signals) -> None:
    done = []

    def work() -> None:
        with GracefulShutdown(lambda: "") as interruption:
            with defer_signals():
                os.kill(os.getpid(), number)
                subprocess.run([sys.executable, "-c", INTERRUPT_ITSELF], check=True)
                done.append("started")
                raise RuntimeError  # of a process that the signal has ended
            done.append(interruption.signal_name)

    handler, mask = signal.getsignal(number), signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["started"]
    assert signal.getsignal(number) is handler
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask


def test_nothing_is_installed_outside_the_main_thread() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def body() -> None:
        with GracefulShutdown(lambda: ""):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_driver_that_does_not_end_is_ended_at_the_deadline(tmp_path: Path) -> None:
    said = tmp_path / "said"
    assert ignore_interrupts(said, "0.2") == (75, "goes on\n")
    assert said.read_text() == "deadline"


def test_the_second_signal_ends_at_once(tmp_path: Path) -> None:
    said = tmp_path / "said"
    assert ignore_interrupts(said, "50", "SIGINT") == (75, "")
    assert ignore_interrupts(said, "50", "SIGTERM", "2.2") == (75, "")
    assert not said.exists()


def test_a_request_that_arrives_several_times_is_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SIGNALED_THRICE, str(tmp_path / "tidied")], check=False, timeout=60
    )
    assert done.returncode == 3
    assert (tmp_path / "tidied").exists()


SIGNALED_THRICE = """
import os, signal, sys, time
from pathlib import Path
from mscam_dask.pipeline.run.graceful_shutdown import GracefulShutdown
with GracefulShutdown(lambda: ""):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    except KeyboardInterrupt:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.2)
        Path(sys.argv[1]).touch()
sys.exit(3)
"""


OTHER_SIGNALS = """
import os, signal, sys, time
from pathlib import Path
from mscam_dask.pipeline.run import graceful_shutdown as signals
signals._DEADLINE_S = float(sys.argv[2])
signal.signal(signal.SIGUSR1, lambda number, frame: None)
with signals.GracefulShutdown(lambda: str(Path(sys.argv[1]).write_text("deadline"))):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    except KeyboardInterrupt:
        for _ in range(int(sys.argv[3])):  # tidying up
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.05)
sys.exit(3)
"""


@pytest.mark.parametrize(
    ("deadline_s", "n_signals", "code"),
    [
        pytest.param("50", "10", 3, id="half a second of 50"),
        pytest.param("1", "400", 75, id="20 seconds instead of one"),
    ],
)
def test_other_signals_neither_end_it_nor_put_the_deadline_off(
    tmp_path: Path, deadline_s: str, n_signals: str, code: int
) -> None:
    said = tmp_path / "said"
    command = [sys.executable, "-c", OTHER_SIGNALS, str(said), deadline_s, n_signals]
    assert subprocess.run(command, check=False, timeout=60).returncode == code
    assert said.exists() == (code == 75)

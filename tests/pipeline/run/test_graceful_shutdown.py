"""The first signal interrupts, what must finish finishes, and the second or the deadline ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mscam_dask.pipeline.graceful_shutdown import GracefulShutdown, defer_signals, interrupt_of
from tests.processes import run

START = """
import os, signal, sys, time
from pathlib import Path
from mscam_dask.pipeline import graceful_shutdown as signals
said = Path(sys.argv[1])
signals._DEADLINE_S = float(sys.argv[2])
signal.signal(signal.SIGUSR1, lambda number, frame: None)
def send(name, pause=0.0):
    os.kill(os.getpid(), signal.Signals[name])
    time.sleep(pause)
with signals.GracefulShutdown(lambda: said.write_text('deadline') and 'goes on'):
"""

ENDLESS = """
    to_send = sys.argv[3:]
    def work():
        try:
            if to_send:
                name, _, after = to_send.pop(0).partition("@")
                time.sleep(float(after or 0))
                send(name)
            time.sleep(60)
        except KeyboardInterrupt:
            work()  # cleanup that does not come back
    work()
"""

IN_C = """
    class Annotation:
        def __hash__(self):
            send("SIGINT")
            return 1
    import msgspec
    done = False
    try:
        msgspec.convert(1, Annotation())  # in C, which discards what is raised in __hash__
    except TypeError:
        pass
    try:
        with signals.defer_signals():
            time.sleep(0.3)
            done = True
        time.sleep(60)
    except KeyboardInterrupt:
        time.sleep(0.3)  # nothing interrupts what cleans up
        sys.exit(7 if done else 8)
"""

DISCARDED = """
    import gc
    gc.callbacks.append(lambda phase, info: phase == "stop" and send("SIGTERM"))
    try:
        gc.collect()  # whose callbacks may raise nothing
        gc.callbacks.clear()
        time.sleep(60)
    except KeyboardInterrupt:
        sys.exit(7)
"""

TIDIED = """
    try:
        send("SIGTERM", 60)
    except KeyboardInterrupt:
        name, number, pause = sys.argv[3:]
        for _ in range(int(number)):
            send(name, float(pause))
sys.exit(3)
"""


def code_of(script: str, said: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and standard error of a script."""
    done = run(sys.executable, "-c", START + script.lstrip("\n"), said, *arguments)
    return done.returncode, done.stderr


def test_a_driver_that_does_not_end_is_ended_at_the_deadline(tmp_path: Path) -> None:
    said = tmp_path / "said"
    assert code_of(ENDLESS, said, "0.2", "SIGTERM") == (75, "goes on\n")
    assert said.read_text() == "deadline"


@pytest.mark.parametrize("script", [DISCARDED, IN_C])
def test_an_interrupt_that_is_discarded_is_raised_again(tmp_path: Path, script: str) -> None:
    assert code_of(script, tmp_path / "said", "50") == (7, "")


@pytest.mark.parametrize("second", ["SIGINT", "SIGTERM@2.2"])
def test_the_second_signal_ends_at_once(tmp_path: Path, second: str) -> None:
    said = tmp_path / "said"
    assert code_of(ENDLESS, said, "50", "SIGTERM", second) == (75, "")
    assert not said.exists()


@pytest.mark.parametrize(
    ("deadline_s", "arguments", "code"),
    [
        pytest.param("50", ("SIGTERM", "2", "0.2"), 3, id="a request that arrives several times"),
        pytest.param("50", ("SIGUSR1", "10", "0.05"), 3, id="other signals do not end it"),
        pytest.param("1", ("SIGUSR1", "400", "0.05"), 75, id="nor put the deadline off"),
    ],
)
def test_signals_while_a_run_is_tidied_up(
    tmp_path: Path, deadline_s: str, arguments: tuple[str, ...], code: int
) -> None:
    said = tmp_path / "said"
    assert code_of(TIDIED, said, deadline_s, *arguments)[0] == code
    assert said.exists() == (code == 75)


STOPPED_IN_EXEC = """
import sys
from contextlib import suppress
from mscam_dask.pipeline.graceful_shutdown import GracefulShutdown
with suppress(KeyboardInterrupt), GracefulShutdown(lambda: "") as shutdown:
    exec("import os, signal; os.kill(os.getpid(), signal.SIGTERM); signal.pause()")
sys.exit(shutdown.exit_code)
"""


def test_the_exit_code_of_a_module_after_a_signal_in_an_import(tmp_path: Path) -> None:
    (tmp_path / "stopped.py").write_text(STOPPED_IN_EXEC)
    assert run(sys.executable, "-m", "stopped", cwd=tmp_path).returncode == 75


def raise_and_wait(number: signal.Signals, interruption: GracefulShutdown) -> None:
    with interruption:
        os.kill(os.getpid(), number)
        signal.pause()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_signal_becomes_an_interrupt_in_the_main_thread(
    number: signal.Signals, code: int
) -> None:
    before = signal.getsignal(number)
    interruption = GracefulShutdown(lambda: "")
    with pytest.raises(KeyboardInterrupt):
        raise_and_wait(number, interruption)
    assert (interruption.signal_name, interruption.exit_code) == (number.name, code)
    assert signal.getsignal(number) is before


def interrupt_and_fail() -> None:
    with GracefulShutdown(lambda: ""):
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            raise RuntimeError("release unlocked lock")  # as `Condition.wait` may


def test_the_cause_of_an_error_in_the_cleanup_after_a_signal_is_the_interrupt() -> None:
    with pytest.raises(RuntimeError) as caught:
        interrupt_and_fail()
    assert isinstance(interrupt_of(caught.value), KeyboardInterrupt)
    other = ValueError()
    assert interrupt_of(other) is other


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_is_held_back_is_handled_as_before_at_the_end(number: signal.Signals) -> None:
    itself = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
    done = []

    def work() -> None:
        with GracefulShutdown(lambda: "") as interruption:
            with defer_signals():
                os.kill(os.getpid(), number)
                subprocess.run([sys.executable, "-c", itself], check=True)
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

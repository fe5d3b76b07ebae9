"""What people see of a run in a terminal, a log and a notebook, and its events as JSON lines."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import re
import sys
from types import ModuleType
from unittest.mock import ANY, Mock

import pytest
from rich.console import Console

from mscam_dask.monitor.events import Event, JsonLines, StepFinished, StepStarted
from mscam_dask.monitor.progress import (
    NotebookProgress,
    PlainProgress,
    TerminalProgress,
    progress_on,
)
from tests.estimators.small import quick
from tests.messages import quotes
from tests.monitor.records import (
    BY_VIEW,
    ENDED,
    FAILED,
    LEARNED,
    RANK_SAMPLE,
    SELECTED,
    outer,
    started,
)
from tests.monitor.report.made_up import Seen
from tests.synthetic import two_subspaces

STARTED = started()
OF_EACH = ("0.5000", "3.0e-05")  # score and largest residual of an iteration
RUN: tuple[Event, ...] = (
    StepStarted(step="ingest"),
    StepFinished(
        step="ingest",
        summary="123 samples, 1 views: a\x1b[31m\n (3)",
        notes=("View 'a': odd [bold]but[/bold] usable.",),
        seconds=0.25,
    ),
    StepStarted(step="cluster"),
    STARTED,
    SELECTED,
    outer(0, 1),
    outer(1, 3, seconds=4.0),
    outer(2, 4),
    ENDED,
    StepFinished(step="cluster", summary="4 connected components", seconds=8.0),
)


@pytest.fixture
def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100, record=True, markup=False)


def screen(console: Console, progress: TerminalProgress) -> str:
    """What the live part shows at this moment, as text."""
    apart = Console(file=io.StringIO(), force_terminal=True, width=console.width, markup=False)
    with apart.capture() as capture:  # on the console itself the live part is drawn meanwhile
        apart.print(progress._render())
    return capture.get()


def printed(console: Console) -> str:
    return console.export_text(styles=False)


def lines_with(text: str, *values: object) -> list[str]:
    """Lines of a text that hold all of the values."""
    return [line for line in text.splitlines() if re.search(quotes(*values), line)]


def test_a_terminal_shows_the_iterations_as_they_come(terminal: Console) -> None:
    screens = []
    with TerminalProgress(terminal) as progress:
        for event in RUN[:7]:
            progress(event)
            screens.append(screen(terminal, progress))
    waits = [re.sub(r"[\d.]+ s", "", text.splitlines()[-1]) for text in screens[2:5]]
    assert len(set(waits)) == 3  # for a step, for the selection of settings, for an iteration
    shown = screens[-1]
    rows = lines_with(shown, *OF_EACH)
    assert [re.findall(r"[\d.]+", row)[:3] for row in rows] == [["1", "1", "4"], ["2", "3", "4"]]
    assert lines_with(rows[0], "2.00")
    assert lines_with(rows[1], "4.00")
    assert lines_with(shown, "cluster", 120, 3, 4)
    assert lines_with(shown, "unit", 10, 9)
    assert lines_with(shown, 2, 20, "<54.0 s")  # 18 iterations of 3 s are left


def test_what_was_selected_and_learned_is_said_on_a_screen_and_in_a_log(terminal: Console) -> None:
    stream = io.StringIO()
    with TerminalProgress(terminal) as progress, PlainProgress(stream) as log:
        iterations = [outer(index, 1) for index in range(12)]
        events: tuple[Event, ...] = (STARTED, RANK_SAMPLE, BY_VIEW, *iterations, LEARNED)
        for event in events:
            progress(event)
            log(event)
        shown = screen(terminal, progress)
    for text in (printed(terminal), stream.getvalue()):
        assert re.search(quotes(4, 2, 5, 0.05, 0.031, "2.5 s"), text)
        assert lines_with(text, "fit", "0.6300", "1.5 s")
    for text in (shown, stream.getvalue()):
        assert lines_with(text, "unit", 10, "<script>alert(1)</script>", "form/edge")
        assert lines_with(text, "standard", 0.1, "colour")
    rows = lines_with(shown, *OF_EACH)
    assert len(rows) == 8  # of the last iterations
    assert "12" in rows[-1]


def test_a_terminal_keeps_a_line_for_each_step_and_its_notes(terminal: Console) -> None:
    with TerminalProgress(terminal) as progress:
        for event in RUN:
            progress(event)
    text = printed(terminal)
    assert lines_with(text, "ingest", "123 samples", "0.25 s")
    assert "View 'a': odd [bold]but[/bold] usable." in text  # no markup from data
    assert "\\x1b[31m\\n (3)" in text  # no control characters either
    assert lines_with(text, "cluster", "4 connected components", "8.0 s")


def test_as_a_callback_it_ends_with_the_fit(terminal: Console) -> None:
    progress = TerminalProgress(terminal)
    for event in (STARTED, SELECTED, outer(0, 4), ENDED):
        progress(event)
    assert progress._live is None
    assert lines_with(printed(terminal), "fit", 4, 3, "6.5 s")


def test_a_log_gets_one_line_for_each_thing_that_happened() -> None:
    stream = io.StringIO()
    with PlainProgress(stream) as progress:
        for event in RUN:
            progress(event)
    lines = [line.partition(" ")[2] for line in stream.getvalue().splitlines()]
    expected: list[tuple[str, tuple[object, ...]]] = [
        ("ingest", ()),
        ("ingest", ("123 samples, 1 views: a\\x1b[31m\\n (3)", "0.25 s")),
        ("ingest", ("View 'a': odd [bold]but[/bold] usable.",)),
        ("cluster", ()),
        ("fit", (120, 3, 4, STARTED.executor)),
        ("fit", ("unit", 10, 9, "0.50 s")),
        ("fit", (1, 20, 4, *OF_EACH, "2.0 s", "<38.0 s")),
        ("fit", (2, 20, 3, 4, *OF_EACH, "4.0 s", "<54.0 s")),
        ("fit", (3, 20, 4, *OF_EACH, "2.0 s", "<45.3 s")),
        ("fit", (4, 3, "6.5 s")),
        ("cluster", ("4 connected components", "8.0 s")),
    ]
    for line, (step, values) in zip(lines, expected, strict=True):
        assert re.match(rf"{step}\b", line)
        assert re.search(quotes(*values), line), line


def test_a_signal_is_no_failure_of_the_fit() -> None:
    stream = io.StringIO()
    with PlainProgress(stream) as progress:
        progress(dataclasses.replace(FAILED, error="KeyboardInterrupt", message=""))
        progress(FAILED)
    stopped, failed = stream.getvalue().splitlines()
    assert lines_with(stopped, "fit", "3.0 s")
    assert "KeyboardInterrupt" not in stopped
    assert lines_with(failed, "fit", "WorkerLostError", "3.0 s")


def test_progress_fits_what_it_is_shown_on(
    terminal: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(progress_on(terminal), TerminalProgress)
    assert isinstance(progress_on(Console(file=io.StringIO())), PlainProgress)
    assert isinstance(progress_on(Console(force_jupyter=True)), NotebookProgress)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(progress_on(Console(force_terminal=True)), PlainProgress)


@pytest.fixture
def display(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """What shows the output of a cell; test_notebook_in_jupyter.py has a real notebook."""
    display = Mock()
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", Mock(HTML=str, display=display))
    return display


def test_one_output_follows_the_fit(display: Mock) -> None:
    progress = NotebookProgress()
    for event in (started(), SELECTED, outer(0, 1), outer(1, 3), ENDED):
        progress(event)
    display.assert_called_once_with(ANY, display_id=True)
    shown = [*display.mock_calls[:1], *display.return_value.update.mock_calls]
    texts = [Seen(call.args[0]).text for call in shown]
    assert re.search(quotes(120, 3, 4, "here"), texts[0])
    assert re.search(
        quotes("unit", 10, 9, "3 of 4", "0.13", "0.5000", "3.0e-05", "2.00", "2/20"), texts[3]
    )
    assert re.search(quotes("fit", 4, 3, "6.5 s"), texts[-1])
    assert "2/20" not in texts[-1]


def test_names_and_messages_from_elsewhere_are_text(display: Mock) -> None:
    hostile = "<script>alert(1)</script>\x1b[31m"
    with NotebookProgress() as progress:
        progress(StepStarted(step="ingest"))
        progress(StepFinished(step="ingest", summary=hostile, notes=(hostile,), seconds=0.1))
    page = Seen(display.return_value.update.call_args.args[0])
    assert {tag for tag, _ in page.elements} == {"pre", "span"}
    assert page.text.count("<script>alert(1)</script>\\x1b[31m") == 2
    NotebookProgress()(FAILED)
    assert FAILED.error in Seen(display.call_args.args[0]).text


def test_it_is_a_callback_of_the_estimators_and_numbers_json_has_not_become_null() -> None:
    stream = io.BytesIO()
    model = quick(2, callbacks=[JsonLines(stream)]).fit(two_subspaces())
    JsonLines(stream)(dataclasses.replace(ENDED, seconds=math.nan, score=math.inf))
    *records, last = [json.loads(line) for line in stream.getvalue().splitlines()]
    kinds = [record["event"] for record in records]
    assert (kinds[0], kinds[-1]) == ("fit_started", "fit_finished")
    iterations = [record for record in records if record["event"] == "iteration_finished"]
    assert len(iterations) == model.n_iter_
    assert [view["view"] for view in iterations[0]["views"]] == ["view_0", "view_1"]
    assert (last["seconds"], last["score"]) == (None, None)

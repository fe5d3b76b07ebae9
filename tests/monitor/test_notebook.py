"""Progress in a notebook: one output, replaced as the fit goes on, inert whatever it is told."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from types import ModuleType
from typing import Any

import pytest

from mscam_dask.monitor.events import StepFinished, StepStarted
from mscam_dask.monitor.progress import NotebookProgress
from tests.messages import quotes
from tests.monitor.records import ENDED, FAILED, SELECTED, outer, started


class Handle:
    """What IPython's display returns: the one output of the cell."""

    def __init__(self, content: str) -> None:
        self.contents = [content]

    def update(self, content: str) -> None:
        self.contents.append(content)


@pytest.fixture
def outputs(monkeypatch: pytest.MonkeyPatch) -> list[Handle]:
    """What a notebook would show; test_notebook_in_jupyter.py has a real one."""
    handles: list[Handle] = []

    def display(content: str, *, display_id: bool) -> Handle:
        assert display_id
        handles.append(Handle(content))
        return handles[-1]

    module: Any = ModuleType("IPython.display")
    module.HTML, module.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return handles


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_one_output_follows_the_fit(outputs: list[Handle]) -> None:
    progress = NotebookProgress()
    for event in (started(), SELECTED, outer(0, 1), outer(1, 3), ENDED):
        progress(event)
    (output,) = outputs
    texts = [Tags(content).text for content in output.contents]
    assert re.search(quotes(120, 3, 4, "here"), texts[0])
    assert re.search(
        quotes("unit", 10, 9, "3 of 4", "0.13", "0.5000", "3.0e-05", "2.00", "2/20"), texts[3]
    )
    assert re.search(quotes("fit", 4, 3, "6.5 s"), texts[-1])
    assert "2/20" not in texts[-1]


def test_names_and_messages_from_elsewhere_are_text(outputs: list[Handle]) -> None:
    hostile = "<script>alert(1)</script>\x1b[31m"
    with NotebookProgress() as progress:
        progress(StepStarted(step="ingest"))
        progress(StepFinished(step="ingest", summary=hostile, notes=(hostile,), seconds=0.1))
    NotebookProgress()(FAILED)
    page = Tags(outputs[0].contents[-1])
    assert page.seen == {"pre", "span"}
    assert page.text.count("<script>alert(1)</script>\\x1b[31m") == 2
    assert FAILED.error in Tags(outputs[1].contents[-1]).text

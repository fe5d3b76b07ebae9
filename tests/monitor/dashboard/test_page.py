"""The page without a browser: what is drawn when, and that drawing keeps to its share of time."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

pytest.importorskip("bokeh", reason="bokeh is an extra")

from mscam_dask.monitor.dashboard import page as module
from mscam_dask.monitor.dashboard.page import Page, head_html
from mscam_dask.monitor.dashboard.run_state import Runs
from tests.messages import quotes
from tests.monitor.records import (
    BY_VIEW,
    ENDED,
    FAILED,
    LEARNED,
    RANK_SAMPLE,
    VIEWS,
    announced,
    outer,
    send,
    started,
)


class Clock:
    """Time that passes when it is told to; drawing takes a tenth of a second of it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.time = time.time
        self.strftime, self.localtime = time.strftime, time.localtime

    def monotonic(self) -> float:
        self.now += 0.1
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def begun(name: str = "a run") -> Runs:
    runs = Runs()
    send(runs, announced(name), started())
    return runs


def points(page: Page) -> int:
    source: Any = page.root.select_one({"name": "score-points"})
    return 0 if source is None else len(source.data["x"])


def test_a_slow_drawing_is_followed_by_a_rest_and_the_end_is_drawn_at_once(clock: Clock) -> None:
    runs = begun()
    page = Page(runs)
    page.update()
    send(runs, outer(0))
    page.update()
    assert points(page) == 1
    send(runs, outer(1))
    page.update()
    assert points(page) == 1  # it rests
    clock.now += module._MAX_PAUSE_S
    page.update()
    assert points(page) == 2
    send(runs, outer(2), ENDED)
    page.update()
    assert points(page) == 3


def visible(page: Page) -> list[str]:
    """Names of the plots that are shown, in their order."""
    boxes: list[Any] = list(page._grid.children)
    return [plot.name for box in boxes if box.visible for plot in box.children]


def test_axes_without_points_are_left_out() -> None:
    runs = begun()
    page = Page(runs)
    page.update()
    assert visible(page) == []
    send(runs, outer(0))  # its dual residuals are zero, which a logarithmic axis cannot show
    runs.by_id["01"].task_done(VIEWS[0], "tcp://h:1", 0.5, 10)
    page.update()
    names = visible(page)
    assert "primal_residual" in names
    assert "work" in names
    assert "dual_residual" not in names
    page.close()
    page.update()
    assert page.run is None


def test_the_choice_of_a_number_is_drawn_and_said() -> None:
    runs = begun()
    page = Page(runs)
    send(runs, RANK_SAMPLE)
    page.update()
    source: Any = page.root.select_one({"name": "counts-lines"})
    assert source.data["line"][0].startswith("4")
    assert source.data["ys"] == [[1e-4, 1.0], [0.05, 0.05], [1e-4, 0.2, 0.031, 0.6]]
    assert source.data["xs"] == [[4, 4], [2, 5], [2, 3, 4, 5]]
    assert re.search(quotes(4, "0.05", "0.031"), head_html(runs.by_id["01"], now=5.0))
    send(runs, outer(0))
    page.update()
    assert visible(page)[0] == "counts"


def test_the_head_says_what_was_selected_and_how_a_run_failed_and_nothing_in_it_is_markup() -> None:
    runs = begun("<i>name</i>")
    send(runs, BY_VIEW, LEARNED, FAILED)
    html = head_html(runs.by_id["01"], now=5.0)
    assert re.search(quotes("standard", 0.1, "colour", "&lt;script&gt;", "0.6300"), html)
    assert re.search(quotes(FAILED.error, "&lt;b&gt;x&lt;/b&gt;", "&lt;i&gt;name&lt;/i&gt;"), html)
    assert not re.search("<script|<i>", html)
    lost = begun()
    lost.client_left("client-1")
    assert "<b>lost</b>" in head_html(lost.by_id["01"], now=5.0)

"""The dashboard page as a person sees it, in a real browser, of real runs on two workers."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from distributed import Client
from numpy.typing import NDArray

from mscam_dask import MSCAM, Constants
from mscam_dask.data.datasets import subspace_mixture
from mscam_dask.monitor.dashboard import page
from mscam_dask.monitor.dashboard.plugin import ClusterEvents, ensure_page, page_address
from mscam_dask.monitor.dashboard.run_state import view_shares
from mscam_dask.monitor.events import Event
from mscam_dask.types.events import IterationFinished
from tests.browser import Browser
from tests.clusters import local_client

pytestmark = pytest.mark.slow

HOSTILE = "<script>alert(1)</script>"
NAMES = (HOSTILE, "$$\\alpha$$ colour", "shape")


@pytest.fixture(autouse=True)
def no_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw at once: that the page keeps to its share of time is tested without a browser."""
    monkeypatch.setattr(page, "_DRAWING_SHARE", 1.0)


@pytest.fixture
def client() -> Iterator[Client]:
    with local_client(2) as client:
        yield client


@pytest.fixture
def light_client() -> Iterator[Client]:
    """Workers are threads of this process: quicker to start."""
    with local_client(2, processes=False) as client:
        yield client


def views(names: tuple[str, ...]) -> dict[str, NDArray[np.float64]]:
    """Overlapping clusters, which take some outer iterations."""
    data = subspace_mixture(
        200, 5, (6, 8, 10), rng=np.random.default_rng(5), separation=2.0, noise=0.5
    )
    return {name: source.read(0, 200) for name, source in zip(names, data.views, strict=True)}


class Watched:
    """A fit in a thread, held after each outer iteration until `go_on` is called."""

    def __init__(self, client: Client, *, name: str, views: tuple[str, ...] = NAMES) -> None:
        self._views = views
        self._reached: queue.Queue[IterationFinished | None] = queue.Queue()
        self._go_on = threading.Semaphore(0)
        self.model = MSCAM(
            n_clusters=5,
            constants=Constants.paper(),
            client=client,
            callbacks=[ClusterEvents(client, name=name), self._hold],
        )
        self._thread = threading.Thread(target=self._fit)
        self._thread.start()

    def _fit(self) -> None:
        try:
            self.model.fit(views(self._views))
        finally:
            self._reached.put(None)

    def _hold(self, event: Event) -> None:
        if isinstance(event, IterationFinished):
            self._reached.put(event)
            assert self._go_on.acquire(timeout=60)

    def iterations(self) -> Iterator[IterationFinished]:
        while (record := self._reached.get(timeout=60)) is not None:
            yield record
            self._go_on.release()
        self._thread.join(60)


def drawn(browser: Browser, source: str, name: str) -> list[Any]:
    """A column of what the browser draws now; empty while there is none."""
    return list(
        browser.run(
            f"const source = Bokeh.documents[0].get_model_by_name('{source}');"
            f"return source == null ? [] : Array.from(source.get_column('{name}') ?? []);"
        )
    )


def reads(browser: Browser, *patterns: str) -> None:
    """Wait until the page matches all; texts are drawn a moment after curves, or before."""
    browser.wait_for(
        repr(patterns), lambda: all(re.search(pattern, browser.text) for pattern in patterns)
    )


def shows(browser: Browser, source: str, name: str, expected: object) -> None:
    """Wait until a column of what is drawn is this."""
    browser.wait_for(
        f"{source}, {name}: {expected}", lambda: drawn(browser, source, name) == expected
    )


def open_page(browser: Browser, client: Client, query: str = "") -> None:
    assert ensure_page(client) is None
    browser.resize(1400, 1200)
    browser.open(page_address(client.dashboard_link) + query)
    browser.wait_for("the page", lambda: "Run" in browser.text or "No run yet" in browser.text)


def serious(browser: Browser) -> list[str]:
    """Complaints of the console, without those of Dask's own template."""
    return [line for line in browser.complaints() if "favicon" not in line]


def test_the_curves_move_with_the_run_and_show_its_numbers(
    browser: Browser, client: Client
) -> None:
    open_page(browser, client)
    reads(browser, "No run yet")
    browser.screenshot("dashboard-empty")
    run = Watched(client, name=f"first {HOSTILE}")
    found: list[int] = []
    for record in run.iterations():
        found.append(record.n_connected_components)
        browser.wait_for(
            f"outer iteration {len(found)}",
            lambda: drawn(browser, "n_connected_components-points", "y") == found,
        )
        assert drawn(browser, "n_connected_components-points", "x") == list(
            range(1, len(found) + 1)
        )
        if len(found) == 4:
            reads(
                browser,
                r"\b4\s+iterations",
                rf"\b{found[-1]} \w+ 5\b",  # components
            )
            browser.screenshot("dashboard-running")
    history = run.model.solution_.history
    assert len(found) == len(history) > 3
    browser.wait_for("the end", lambda: "ended" in browser.text)
    shows(browser, "graph_weight-points", "y", [record.graph_weight for record in history])
    shows(browser, "score-points", "y", [record.score for record in history])
    by_view = {
        "primal_residual": [
            [record.views[v].primal_residual for record in history] for v in range(3)
        ],
        "shares": [[view_shares(record)[name] for record in history] for name in NAMES],
    }
    for plot, expected in by_view.items():
        shows(browser, f"{plot}-lines", "ys", expected)
        shows(browser, f"{plot}-lines", "line", list(NAMES))
    browser.wait_for(
        "seconds of all iterations",
        lambda: list(map(len, drawn(browser, "seconds-lines", "ys"))) == [len(history)] * 3,
    )
    workers = {address.rpartition(":")[2] for address in client.scheduler_info()["workers"]}
    browser.wait_for(
        "all workers",
        lambda: (
            {name.rpartition(":")[2] for name in drawn(browser, "work-cells", "worker")} == workers
        ),
    )
    browser.wait_for("idle workers", lambda: set(drawn(browser, "work-cells", "now")) == {"idle"})
    reads(browser, r"\b5 \w+ 5\b")  # components of the result
    browser.screenshot("dashboard-ended")
    # no script ran, or selenium would meet its dialog; the names are there to be read
    browser.wait_for("names", lambda: browser.text.count(HOSTILE) >= 2)
    assert serious(browser) == []
    address = client.dashboard_link.rpartition("/")[0]
    elsewhere = [url for url in browser.requests() if not url.startswith((address, "data:"))]
    assert [url for url in elsewhere if not url.startswith(address.replace("http", "ws"))] == []


def test_two_runs_are_kept_apart(browser: Browser, light_client: Client) -> None:
    client = light_client
    one = Watched(client, name="run one")
    one_by_one = one.iterations()
    next(one_by_one)
    two = Watched(client, name="run two", views=("pixels", "colour", "shape"))
    for _ in two.iterations():
        pass
    open_page(browser, client)
    browser.wait_for("the newest run", lambda: "run two" in browser.text.partition("state")[0])
    n_two = len(two.model.solution_.history)
    browser.wait_for("run two", lambda: len(drawn(browser, "score-points", "y")) == n_two)
    browser.wait_for("its end", lambda: "ended" in browser.text)
    browser.screenshot("dashboard")  # docs/figures/dashboard.png
    browser.run(
        "const select = Bokeh.documents[0].get_model_by_name('run');"
        "select.value = select.options.find(([, label]) => label.startsWith('run one'))[0];"
    )
    browser.wait_for("run one", lambda: len(drawn(browser, "score-points", "y")) == 1)
    reads(browser, r"\b1\s+iterations")
    for _ in one_by_one:
        pass
    browser.wait_for("its end", lambda: len(drawn(browser, "score-points", "y")) == n_two)
    assert serious(browser) == []


def test_the_navigation_of_every_page_leads_to_it(browser: Browser, light_client: Client) -> None:
    assert ensure_page(light_client) is None
    browser.open(light_client.dashboard_link)
    link = "return document.querySelector(\"a[href='mscam']\")?.textContent"
    browser.wait_for("the link", lambda: browser.run(link) == "Mscam")
    browser.run("document.querySelector(\"a[href='mscam']\").click()")
    browser.wait_for("the page", lambda: browser.driver.title == "Dask: mscam")

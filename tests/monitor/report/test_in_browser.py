"""The page of a run in a real browser: it responds, and nothing from data gets to run."""

from __future__ import annotations

import csv
import dataclasses
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from mscam_dask.monitor.report.page import RunContent, run_page
from mscam_dask.plot.pictures import principal_planes
from mscam_dask.types.result import ArraysInMemory
from tests.browser import Browser
from tests.monitor.report.made_up import block_graph, made_up_content

HOSTILE = "<script>alert(1)</script>"

Open = Callable[[str], str]


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Open:
    def show(page: str) -> str:
        path = tmp_path / "report.html"
        path.write_text(page, encoding="utf-8")
        browser.open(path.as_uri())
        return path.as_uri()

    return show


def content(**options: Any) -> RunContent:
    labels = np.random.default_rng(0).permutation(np.arange(240) % 4)
    return made_up_content(labels, labels_true=labels, **options)


@functools.cache
def page(**options: Any) -> str:
    """A page that several tests open."""
    return run_page(content(**options))


def hover(browser: Browser, selector: str, x: int = 0, y: int = 0) -> None:
    element = browser.driver.find_element(By.CSS_SELECTOR, selector)
    browser.run(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center'}})")
    ActionChains(browser.driver).move_to_element_with_offset(element, x, y).perform()


def put(browser: Browser, selector: str, value: str, event: str = "change") -> None:
    """Give a field a value, as a hand would."""
    browser.run(
        f"const field = document.querySelector('{selector}'); field.value = '{value}';"
        f"field.dispatchEvent(new Event('{event}'))"
    )


def tip(browser: Browser) -> str:
    return str(
        browser.run("const t = document.getElementById('tip');return t.hidden ? '' : t.textContent")
    )


def test_it_opens_in_silence_and_answers_the_pointer(browser: Browser, open_page: Open) -> None:
    address = open_page(page())
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("data:")] == [address]
    browser.screenshot("report")
    place = (  # of sample 0 in the window
        "const s = document.querySelector('svg.scatter[data-plot=graph]');"
        "s.scrollIntoView({block: 'center', behavior: 'instant'});"
        "const d = JSON.parse(document.getElementById('payload').textContent).plots.graph.planes[0];"
        "const p = new DOMPoint(d[0], d[1]).matrixTransform(s.getScreenCTM());"
        "return [Math.round(p.x), Math.round(p.y)]"
    )

    def ringed() -> bool:
        browser.point_at(*browser.run(place))
        rings = browser.run(
            "return [...document.querySelectorAll('.ring')].map(r => r.cx.baseVal.value)"
        )
        return "cluster 0 · class" in tip(browser) and len([x for x in rings if x > 0]) == 3

    browser.wait_for("three rings and the sample's name", ringed)
    for selector, x, y, said in (
        ("svg.lines .step", 0, 0, "iteration 1: components 1"),
        ("svg.matrix", -150, -150, "cluster"),
        (".confusion td.match", 0, 0, "60 of 60 samples"),
    ):

        def told(selector: str = selector, x: int = x, y: int = y, said: str = said) -> bool:
            hover(browser, selector, x, y)
            return said in tip(browser)

        browser.wait_for(f"{selector} to say {said!r}", told)


def test_clusters_axes_lines_and_rows_are_chosen(browser: Browser, open_page: Open) -> None:
    open_page(page())
    away = "return document.querySelectorAll('path.dots.away').length"
    for n_away in (3 * 3, 0):  # three other clusters in three plots
        browser.run("document.querySelector('[data-pick=\"2\"]').click()")
        assert browser.run(away) == n_away
    path = "return document.querySelector('[data-plot=view0] path.dots').getAttribute('d')"
    before = browser.run(path)
    put(browser, "select[data-planes=view0]", "1")
    after = browser.run(path)
    assert after != before
    assert after.count("M") == before.count("M") == 60
    browser.run("document.querySelector('[data-toggle=\"1\"]').click()")
    assert browser.run("return document.querySelectorAll('.line.off').length") == 3
    first = "return document.querySelector('#least tbody tr:not([hidden]) td').textContent"
    for cluster in "03":
        browser.run("document.querySelectorAll('#least thead button')[1].click()")
        assert browser.run(first) == cluster
    put(browser, "[data-search]", "17", "input")
    shown = browser.run("return document.querySelectorAll('#least tbody tr:not([hidden])').length")
    assert 0 < shown < 200
    assert re.search(rf"\b{shown} \w+ 200\b", browser.text)


def test_an_error_of_a_script_and_what_cannot_be_loaded_are_complaints(
    browser: Browser, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.write_text("<img src='absent.png'><script>throw Error('on purpose')</script>")
    browser.open(page.as_uri())
    heard: list[str] = []

    def said() -> bool:
        heard.extend(browser.complaints())
        return "on purpose" in "".join(heard) and "absent.png" in "".join(heard)

    browser.wait_for("both complaints", said)
    assert any(url.endswith("absent.png") for url in browser.requests())


def test_names_from_data_do_nothing(browser: Browser, open_page: Open) -> None:
    ids = tuple(f"{HOSTILE}{row}" for row in range(240))
    open_page(
        page(
            views=(HOSTILE, "b"),
            name=HOSTILE,
            sample_ids=ids,
            label_names=(HOSTILE, "<img src=x onerror=alert(2)>", "c", "d"),
        )
    )
    assert browser.complaints() == []  # an alert would also make every later call fail
    assert browser.run("return document.scripts.length") == 2
    assert browser.run("return document.images.length") == 0
    assert HOSTILE in browser.text
    hover(browser, "svg.scatter[data-plot=view0]")
    browser.run("document.querySelector('.show').click()")
    assert browser.complaints() == []


PAINTED = (
    "return Object.fromEntries([...document.querySelectorAll('[data-plot=view0] path.painted:not(.away)')]"
    ".map(p => [p.getAttribute('color'), p.getAttribute('d').split('M').length - 1]))"
)


def test_samples_are_colored_by_a_property(browser: Browser, open_page: Open) -> None:
    sites = np.array(["north", HOSTILE, None], dtype=object)[np.arange(240) % 3]
    sites[:3] = None
    age = np.where(np.arange(240) % 8 == 0, np.nan, np.linspace(20, 70, 240))
    open_page(run_page(content(columns={"site": sites, "age": age})))
    options = browser.run(
        "return [...document.querySelector('[data-color]').options].map(o => o.text)"
    )
    assert options == ["clusters", "class", "confidence", "site", "age"]
    put(browser, "[data-color]", "2")
    counts = {"#3f90da": 79, "#ffa90e": 79, "#c9ced6": 82}
    assert browser.run(PAINTED) == counts
    shown = "return getComputedStyle(document.querySelector('[data-plot=view0] .dots')).display"
    assert browser.run(shown) == "none"
    legends = browser.run("return [...document.querySelectorAll('.legend')].map(l => l.innerText)")
    assert len(set(legends)) == 1
    assert legends[0].split() == ["<script>alert(1)</script>", "north", "missing"]
    browser.run("document.querySelector('[data-pick=\"2\"]').click()")
    alone = browser.run(PAINTED)
    assert sum(alone.values()) == 60  # the others are faint
    faint = "return document.querySelector('[data-plot=view0] .painted.away').getAttribute('d')"
    assert browser.run(faint).count("M") == 180
    browser.run("document.querySelector('[data-pick=\"2\"]').click()")
    put(browser, "[data-color]", "3")
    painted = browser.run(PAINTED)
    assert sum(painted.values()) == 240
    assert painted["#c9ced6"] == 30
    assert len(painted) > 20
    put(browser, "[data-color]", "")
    assert browser.run(PAINTED) == {}
    assert browser.run(shown) != "none"
    assert browser.complaints() == []


def saved(browser: Browser, name: str) -> str:
    """The content of the file that a button saves."""
    browser.run(
        "window.made = URL.createObjectURL; window.files = [];"
        "URL.createObjectURL = blob => { window.files.push(blob); return window.made(blob); };"
        f"document.querySelector('button[aria-label=\"Save {name}\"]').click();"
        "URL.createObjectURL = window.made"
    )
    script = "const done = arguments[0]; window.files[0].text().then(done)"
    return str(browser.driver.execute_async_script(script))


def test_every_figure_is_saved_as_svg_and_its_numbers_as_csv(
    browser: Browser, open_page: Open, tmp_path: Path
) -> None:
    made = content(columns={"site": np.array(["=1+1", "a,b"])[np.arange(240) % 2]})
    labels = made.result.labels.copy()
    labels[0] = (labels[0] + 1) % 4  # edges that leave a cluster: there is a tree
    assert isinstance(made.result.arrays, ArraysInMemory)
    arrays = dataclasses.replace(made.result.arrays, learned_graph=block_graph(labels))
    made = dataclasses.replace(made, result=dataclasses.replace(made.result, arrays=arrays))
    folder = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.driver.execute_cdp_cmd("Page.setDownloadBehavior", folder)
    open_page(run_page(made))
    figures = browser.run(
        "return [...document.querySelectorAll('main figure svg, svg.tree, ol.bars')].map("
        "e => e.dataset.export)"
    )
    assert None not in figures
    assert len(set(figures)) == len(figures) == 13
    for name in figures:
        root = ET.fromstring(saved(browser, f"{name} as SVG"))
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert len(list(root.iter())) > 5
        assert not [e for e in root.iter() if {"class", "data-tip", "tabindex"} & set(e.attrib)]
    on_disk = tmp_path / "cluster-sizes.svg"
    browser.wait_for(
        "the file on the disk", on_disk.is_file
    )  # the browser asks before a second one
    assert ET.parse(on_disk).getroot().tag.endswith("svg")
    rows = list(csv.reader(saved(browser, "graph as CSV").splitlines()))
    assert rows[0] == ["sample", "cluster", "class", "confidence", "site", "x", "y"]
    assert len(rows) == 241
    assert {row[4] for row in rows[1:]} == {"'=1+1", "a,b"}
    by_name = {int(row[0]): row for row in rows[1:]}
    assert [int(by_name[row][1]) for row in range(240)] == made.result.labels.tolist()
    plane = principal_planes(made.result.view_coordinates["pixels"].astype(np.float64))[0]
    rows = list(csv.reader(saved(browser, "embedding-pixels as CSV").splitlines()))
    assert rows[0][-2:] == ["axis_1", "axis_2"]
    spots = {int(row[0]): [float(row[-2]), float(row[-1])] for row in rows[1:]}
    found = np.array([spots[row] for row in range(240)])
    # axes are those of the rows in the order of the clusters: of either sign
    np.testing.assert_allclose(np.abs(found), np.abs(plane), atol=0.01)
    rows = list(csv.reader(saved(browser, "view_score as CSV").splitlines()))
    scores = [record.view_scores for record in made.result.history]
    assert rows[0] == ["outer iteration", "pixels", "edges"]
    np.testing.assert_array_equal(np.array(rows[1:], dtype=float)[:, 1:], scores)
    rows = list(csv.reader(saved(browser, "graph-matrix as CSV").splitlines()))
    # of the eight edges of 1/4 across, each pair of clusters has the half in one row
    assert sum(float(row[2]) for row in rows[1:]) == pytest.approx(240 - 1)
    rows = list(csv.reader(saved(browser, "confusion as CSV").splitlines()))
    assert rows[1][:2] == ["0", "60"]
    assert browser.complaints() == []


def test_saved_figures_are_for_white_paper(browser: Browser, open_page: Open) -> None:
    pictures = []
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        open_page(page())
        pictures.append([saved(browser, f"{name} as SVG") for name in ("graph", "score")])
    assert pictures[0] == pictures[1]


@pytest.mark.thorough
def test_everything_is_reached_by_keyboard(browser: Browser, open_page: Open) -> None:
    open_page(page())
    reached: list[str] = []
    for _ in range(300):
        ActionChains(browser.driver).send_keys(Keys.TAB).perform()
        kind = browser.run(
            "const e = document.activeElement; return e === document.body ? '' :"
            " e.tagName.toLowerCase() + '.' + (e.getAttribute('class') || e.dataset.search || '')"
        )
        if not kind:
            break
        reached.append(kind)
    assert reached[0] == "a.skip"
    for kind in ("svg.matrix", "svg.scatter", "svg.lines steps", "input.least", "pre."):
        assert kind in reached, (kind, sorted(set(reached)))
    for selector in ("svg.matrix", "svg.scatter", "svg.lines"):
        before = tip(browser)

        def told(selector: str = selector, before: str = before) -> bool:
            browser.run(f"document.querySelector('{selector}').focus()")
            ActionChains(browser.driver).send_keys(Keys.ARROW_DOWN).perform()
            ActionChains(browser.driver).send_keys(Keys.ARROW_RIGHT).perform()
            return tip(browser) != before and re.search(r"\d", tip(browser)) is not None

        browser.wait_for(f"a tip of {selector} with numbers", told)
    unnamed = browser.run(
        "return [...document.querySelectorAll('svg[tabindex], button, input, select')].filter("
        "e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label'))).length"
    )
    assert unnamed == 0


@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_runs_over_the_side(browser: Browser, open_page: Open, width: int) -> None:
    open_page(page(name="a-rather-long-name-of-a-pipeline-" * 3))
    browser.resize(width, 900)
    browser.wait_for(
        f"a page of {width} pixels",
        lambda: browser.run("return document.documentElement.scrollWidth") <= width,
        at_most_s=5,
    )
    browser.screenshot(f"report-{width}")


def test_print(browser: Browser, open_page: Open) -> None:
    open_page(page())
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    hidden = (
        "return ['nav', '.tools', '.show'].map("
        "s => getComputedStyle(document.querySelector(s)).display)"
    )
    browser.wait_for("the style of print", lambda: set(browser.run(hidden)) == {"none"})
    axes = "return document.querySelector('.planes select')"
    assert browser.run(f"{axes}.getBoundingClientRect().width") > 0  # the axes are printed
    assert "1" in browser.run(f"{axes}.selectedOptions[0].textContent")
    rows = browser.run(
        "return [...document.querySelectorAll('#least tbody tr')].filter("
        "r => getComputedStyle(r).display !== 'none').length"
    )
    assert rows == 40
    printed = browser.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert len(printed["data"]) > 20_000

"""What was chosen without labels, in the report: the number of clusters, each view's preparation."""

from __future__ import annotations

import html
import re
from xml.etree import ElementTree as ET

import msgspec
import numpy as np

from mscam_dask.monitor.report.page import run_page
from mscam_dask.monitor.report.sections import n_clusters_section
from tests.messages import quotes
from tests.monitor.records import LEARNED, RANK_SAMPLE
from tests.monitor.report.made_up import VIEWS, made_up_content

LABELS = np.arange(40) % 4


def text_of(page: str, section: str) -> str:
    start = page.index(f'<section id="{section}"')
    part = page[start : page.index("</section>", start)]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", part))


def rows_of(page: str, section: str) -> list[list[str]]:
    """Cells of the rows of all tables of a section."""
    start = page.index(f'<section id="{section}"')
    rows = re.findall(r"<tr.*?</tr>", page[start : page.index("</section>", start)], re.DOTALL)
    cells = [re.findall(r"<t[dh].*?</t[dh]>", row, re.DOTALL) for row in rows]
    return [[" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in row] for row in cells]


def rows_with(page: str, section: str, *values: object) -> list[str]:
    """Rows of the tables of a section that hold all of the values."""
    rows = [" ".join(row) for row in rows_of(page, section)]
    return [row for row in rows if re.search(quotes(*values), row)]


def test_the_p_values_of_a_chosen_number_are_drawn_and_tabled() -> None:
    page = run_page(
        made_up_content(LABELS, fit={"n_clusters_curves": msgspec.to_builtins(RANK_SAMPLE)})
    )
    section = n_clusters_section(msgspec.to_builtins(RANK_SAMPLE))
    assert section is not None
    assert re.search(quotes(4, 1, 5, 0.05, 0.031), section["why"])
    assert section["why"] in html.unescape(text_of(page, "number"))
    _, *rows = rows_of(page, "number")
    assert [row[:2] for row in rows] == [
        ["2", "&lt; 0.001"],
        ["3", "0.2"],
        ["4", "0.031"],
        ["5", "0.6"],
    ]
    marks = [row[2] for row in rows]
    assert marks[1] == marks[3] == ""
    assert len(set(marks)) == 3  # the chosen number, and the other one whose borders hold
    assert len(re.findall(r">4 \w+</text>", page)) == 1
    assert re.search(r"4 clusters \([^)]*\b1\b[^)]*\b5\b", text_of(page, "result"))
    given = run_page(made_up_content(LABELS))
    assert count_tile(page) != count_tile(given)


def count_tile(page: str) -> str:
    """The words beside 4 components and 4 clusters."""
    (words,) = re.findall(r"\b4 (\w+, )4 (\w+)", text_of(page, "result"))
    return "".join(words)


def test_every_point_is_said_and_the_chosen_number_is_marked_at_its_place() -> None:
    section = n_clusters_section(msgspec.to_builtins(RANK_SAMPLE))
    assert section is not None
    chart = section["chart"]
    assert chart is not None
    ((_, _, marks),) = chart.lines
    assert tuple(mark.value for mark in marks) == RANK_SAMPLE.p_values
    assert [mark.at for mark in marks] == [2, 3, 4, 5]
    assert "10⁻⁹" in marks[0].tip
    root = ET.fromstring(f"<svg>{chart.svg}</svg>")
    level, chosen = (
        [float(value) for value in re.findall(r"[\d.]+", item.get("d", ""))]
        for item in root.iter("path")
        if item.get("class") == "level"
    )
    assert chosen[0] == chosen[2] == marks[2].x
    assert [mark.y >= level[1] for mark in marks] == [True, False, True, False]
    texts = [text.text for text in root.iter("text")]
    assert [text for text in texts if text in list("23456789")] == ["2", "3", "4", "5"]
    assert "10⁻⁴" in texts  # where the smallest value is drawn


def test_a_given_number_has_no_curves() -> None:
    page = run_page(made_up_content(LABELS))
    assert 'id="number"' not in page
    assert count_tile(page)
    assert not re.search(r"4 clusters \(", text_of(page, "result"))


def test_without_clusters_no_number_is_marked_and_no_cluster_is_praised() -> None:
    counted = {
        **msgspec.to_builtins(RANK_SAMPLE),
        "n_clusters": 1,
        "p_values": [0.2, 0.3, 0.5, 1.0],
    }
    section = n_clusters_section(counted)
    assert section is not None
    assert [mark for *_, mark in section["rows"]] == [""] * 4
    assert "selected" not in section["chart"].svg
    assert "n_clusters=1 was selected" in section["why"]
    found = {"structure": "NONE", "message": "no borders"}
    one = {"n_clusters_curves": counted, "assessment": found}
    page = run_page(made_up_content(np.zeros_like(LABELS), fit=one))
    assert 'class="badge bad"' in page
    for title in ("View contributions", "Separation", "Borders of each cluster"):
        assert title not in page


def test_criteria_of_earlier_versions_are_not_shown() -> None:
    counted = {"counts": [2, 3, 4], "n_clusters": 4, "seconds": 1.0, "stability": [0.7, 0.9, 0.8]}
    page = run_page(made_up_content(LABELS, fit={"n_clusters_curves": counted}))
    assert re.search(quotes(4, 1, 4, "earlier version"), text_of(page, "number"))
    assert "<svg" not in page[page.index('id="number"') : page.index('id="graph"')]


def test_preparations_by_view_stand_with_the_views() -> None:
    ways = {
        VIEWS[0]: {"scale": "unit", "alpha": 10.0, "agreement": 0.412, "margin_se": 0.0},
        VIEWS[1]: {"scale": "standard", "alpha": 0.1, "agreement": 0.25, "margin_se": 7.54},
    }
    setting = {"scale": "by view", "alpha": None, "n_neighbors": 20, "views": ways}
    told = run_page(made_up_content(LABELS, fit={"setting": setting}))
    assert rows_with(told, "views", VIEWS[0], "unit 10 0.412")
    assert rows_with(told, "views", VIEWS[1], "standard 0.1 0.250 7.5")
    given = {name: {"scale": way["scale"], "alpha": way["alpha"]} for name, way in ways.items()}
    page = run_page(made_up_content(LABELS, fit={"setting": {**setting, "views": given}}))
    assert rows_with(page, "views", VIEWS[1], "standard 0.1 50.0")
    assert len(rows_of(page, "views")[0]) == len(rows_of(told, "views")[0]) - 2


def test_settings_that_differ_in_their_preparations_alone_are_told_apart() -> None:
    tried = {
        "scale": "by view",
        "alpha": None,
        "n_neighbors": 20,
        "n_connected_components": 1,
        "initial_graph": "mean",
    }
    strong = [[VIEWS[0], "unit", 0.01], [VIEWS[1], "standard", 0.1]]
    mild = [[VIEWS[0], "unit", 1.0], [VIEWS[1], "unit", 1.0]]
    settings = [
        {**tried, "score": 1.8927, "view_settings": strong},
        {**tried, "score": 1.9032, "view_settings": mild},
    ]
    page = run_page(made_up_content(LABELS, fit={"candidate_settings": settings}))
    first = ("unit", 0.01, VIEWS[0], "standard", 0.1, VIEWS[1], 1.8927)
    assert rows_with(page, "iterations", *first)
    assert rows_with(page, "iterations", "unit", 1, *VIEWS, 1.9032)


def test_views_left_out_are_marked_and_told_of() -> None:
    tried = {
        "scale": "unit",
        "alpha": 10.0,
        "n_neighbors": 20,
        "n_connected_components": 1,
        "score": 1.5,
    }
    settings = [{**tried, "exclude_views": [VIEWS[1]]}, {**tried, "exclude_views": []}]
    setting = {"scale": "unit", "alpha": 10.0, "n_neighbors": 20, "exclude_views": [VIEWS[1]]}
    page = run_page(
        made_up_content(LABELS, fit={"setting": setting, "candidate_settings": settings})
    )
    names = [row[0] for row in rows_of(page, "views")[1:3]]
    assert names[0] == VIEWS[0]
    assert re.fullmatch(rf"{VIEWS[1]} .+", names[1])  # with a mark
    without, whole = rows_with(page, "iterations", "unit", 1.5)
    assert VIEWS[1] in without
    assert VIEWS[1] not in whole
    plain = run_page(made_up_content(LABELS))
    assert [row[0] for row in rows_of(plain, "views")[1:3]] == list(VIEWS)
    assert len(text_of(page, "views")) > len(text_of(plain, "views")) + 100  # and explained


def test_one_setting_for_all_views_stands_with_each() -> None:
    text = text_of(run_page(made_up_content(LABELS)), "views")
    assert text.count("features unit 10 50.0") == 2


def test_what_was_learned_from_the_best_partition_is_said() -> None:
    page = run_page(
        made_up_content(
            LABELS, fit={"refinement": {"scores": LEARNED.scores, "n_accepted": LEARNED.taken}}
        )
    )
    assert "0.6300" in text_of(page, "result")
    assert "0.6300" not in text_of(run_page(made_up_content(LABELS)), "result")

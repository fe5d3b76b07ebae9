"""What was chosen without labels, in the report: the number of clusters, each view's preparation."""

from __future__ import annotations

import html
import re
from xml.etree import ElementTree as ET

import msgspec
import numpy as np

from mscam_dask.monitor.report.page import n_clusters_section, run_page
from tests.messages import quotes
from tests.monitor.records import LEARNED, RANK_SAMPLE
from tests.monitor.report.made_up import VIEWS, made_up_content, part_of, text_of

LABELS = np.arange(40) % 4


def rows_of(page: str, section: str) -> list[list[str]]:
    """Cells of the rows of all tables of a section."""
    rows = re.findall(r"<tr.*?</tr>", part_of(page, section), re.DOTALL)
    cells = [re.findall(r"<t[dh].*?</t[dh]>", row, re.DOTALL) for row in rows]
    return [[" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in row] for row in cells]


def rows_with(page: str, section: str, *values: object) -> list[str]:
    """Rows of the tables of a section that hold all of the values."""
    rows = [" ".join(row) for row in rows_of(page, section)]
    return [row for row in rows if re.search(quotes(*values), row)]


def test_the_p_values_of_a_selected_number_are_drawn_and_tabled() -> None:
    fit = {
        "n_clusters_curves": msgspec.to_builtins(RANK_SAMPLE),
        "refinement": {"scores": LEARNED.scores, "n_accepted": LEARNED.taken},
    }
    page = run_page(made_up_content(LABELS, fit=fit))
    section = n_clusters_section(fit["n_clusters_curves"])
    assert re.search(quotes(4, 1, 5, 0.05, 0.031), section["why"])
    assert section["why"] in html.unescape(text_of(page, "number"))
    _, *rows = rows_of(page, "number")
    cells = [["2", "&lt; 0.001"], ["3", "0.2"], ["4", "0.031"], ["5", "0.6"]]
    assert [row[:2] for row in rows] == cells
    marks = [row[2] for row in rows]
    assert marks[1] == marks[3] == ""
    assert len(set(marks)) == 3  # the selected number, and the other one whose borders hold
    assert "0.6300" in text_of(page, "result")  # of the refinement
    given = run_page(made_up_content(LABELS))
    assert 'id="number"' not in given
    assert "0.6300" not in text_of(given, "result")
    earlier = {"counts": [2, 3, 4], "n_clusters": 4, "seconds": 1.0, "stability": [0.7, 0.9, 0.8]}
    old = run_page(made_up_content(LABELS, fit={"n_clusters_curves": earlier}))
    assert "<svg" not in part_of(old, "number")


def test_the_selected_number_and_the_level_are_marked_at_their_places() -> None:
    section = n_clusters_section(msgspec.to_builtins(RANK_SAMPLE))
    ((_, _, marks),) = section["chart"].lines
    assert [(mark.at, mark.value) for mark in marks] == list(
        zip(RANK_SAMPLE.counts, RANK_SAMPLE.p_values, strict=True)
    )
    root = ET.fromstring(f"<svg>{section['chart'].svg}</svg>")
    level, chosen = (
        [float(value) for value in re.findall(r"[\d.]+", item.get("d", ""))]
        for item in root.iter("path")
        if item.get("class") == "level"
    )
    assert chosen[0] == chosen[2] == marks[2].x
    assert [mark.y >= level[1] for mark in marks] == [True, False, True, False]
    assert "10⁻⁴" in [text.text for text in root.iter("text")]  # where the smallest value is drawn


def test_without_clusters_no_number_is_marked_and_no_cluster_is_praised() -> None:
    counted = {
        **msgspec.to_builtins(RANK_SAMPLE),
        "n_clusters": 1,
        "p_values": [0.2, 0.3, 0.5, 1.0],
    }
    section = n_clusters_section(counted)
    assert [mark for *_, mark in section["rows"]] == [""] * 4
    assert "selected" not in section["chart"].svg
    assert "n_clusters=1 selected" in section["why"]
    found = {"structure": "NONE", "message": "no borders"}
    one = {"n_clusters_curves": counted, "assessment": found}
    page = run_page(made_up_content(np.zeros_like(LABELS), fit=one))
    assert 'class="badge bad"' in page
    for title in ("View contributions", "Separation", "Borders of each cluster"):
        assert title not in page


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


def test_views_left_out_are_marked_and_told_of() -> None:
    setting = {"scale": "unit", "alpha": 10.0, "n_neighbors": 20, "exclude_views": [VIEWS[1]]}
    tried = {**setting, "n_connected_components": 1, "score": 1.5}
    by_view = [[VIEWS[0], "unit", 0.01], [VIEWS[1], "standard", 0.1]]
    settings = [
        tried,
        {**tried, "exclude_views": []},
        {**tried, "alpha": None, "view_settings": by_view, "score": 1.9},
    ]
    page = run_page(
        made_up_content(LABELS, fit={"setting": setting, "candidate_settings": settings})
    )
    names = [row[0] for row in rows_of(page, "views")[1:3]]
    assert names[0] == VIEWS[0]
    assert re.fullmatch(rf"{VIEWS[1]} .+", names[1])  # with a mark
    without, whole = rows_with(page, "iterations", "unit", 1.5)
    assert VIEWS[1] in without
    assert VIEWS[1] not in whole
    assert rows_with(page, "iterations", "unit", 0.01, VIEWS[0], "standard", 0.1, VIEWS[1], 1.9)
    plain = run_page(made_up_content(LABELS))
    assert [row[0] for row in rows_of(plain, "views")[1:3]] == list(VIEWS)
    assert len(text_of(page, "views")) > len(text_of(plain, "views")) + 100  # and explained

"""What was chosen without labels, in the report: the number of clusters, each view's preparation."""

from __future__ import annotations

import re

import msgspec
import numpy as np
import pytest

from mscam_dask.monitor.report.counts import count_section
from mscam_dask.monitor.report.page import run_page
from tests.monitor.records import COUNTED, LEARNED
from tests.monitor.report.made_up import VIEWS, made_up_content

LABELS = np.arange(40) % 4
CURVES = ("eigengap", "modularity", "reliable_modularity", "information", "stability")


def text_of(page: str, section: str) -> str:
    start = page.index(f'<section id="{section}"')
    part = page[start : page.index("</section>", start)]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", part))


def test_the_curves_of_a_chosen_number_are_drawn_and_tabled() -> None:
    page = run_page(made_up_content(LABELS, fit={"cluster_counts": msgspec.to_builtins(COUNTED)}))
    text = text_of(page, "number")
    assert "4 was taken: of the 2 whose reliable modularity is within 8 % of the highest" in text
    for name in CURVES:
        assert name.capitalize().replace("_", " ") in text or name == "information"
    assert page.count("4 chosen</text>") == len(CURVES)
    for value in COUNTED.stability:
        assert f"{value:.3f}" in text
    assert "4 0.300 0.500 0.460 0.600 0.800 chosen" in text
    assert "5 0.100 0.470 0.440 0.800 0.600 near the highest" in text
    assert ">chosen</text>" in page  # across the chart of components
    first = text_of(page, "result")
    assert "4 found 4 chosen" in first
    assert "4 clusters ( chosen from 2 to 5, without labels)" in first


def test_every_point_is_said_and_the_chosen_number_is_marked_at_its_place() -> None:
    section = count_section(msgspec.to_builtins(COUNTED))
    assert section is not None
    for chart, name in zip(section.charts, CURVES, strict=True):
        (line,) = chart.lines
        assert [mark.tip for mark in line.marks] == [
            f"clusters {count}: {chart_unit(name)} {value:g}"
            for count, value in zip(COUNTED.counts, getattr(COUNTED, name), strict=True)
        ]
        assert chart.chosen is not None
        assert chart.chosen.at == line.marks[COUNTED.counts.index(4)].x
        assert [tick.text for tick in chart.x_ticks] == ["2", "3", "4", "5"]
    assert [chart.level is not None for chart in section.charts] == [
        name == "reliable_modularity" for name in CURVES
    ]


def chart_unit(name: str) -> str:
    return {
        "eigengap": "relative gap",
        "modularity": "modularity",
        "reliable_modularity": "modularity",
        "information": "nats",
        "stability": "adjusted Rand index",
    }[name]


@pytest.mark.parametrize("given", [{}, {"cluster_counts": None}])
def test_a_given_number_has_no_curves(given: dict[str, None]) -> None:
    page = run_page(made_up_content(LABELS, fit=given))
    assert 'id="number"' not in page
    assert "4 asked" in text_of(page, "result")


def test_one_candidate_alone_is_said_to_be_so() -> None:
    counted = {**msgspec.to_builtins(COUNTED), "reliable_modularity": [0.1, 0.2, 0.9, None]}
    section = count_section(counted)
    assert section is not None
    assert "the only one whose reliable modularity" in section.why
    assert section.rows[3].values[2] == "\u2013"  # not finite


def test_a_run_of_before_reliability_went_by_modularity() -> None:
    counted = msgspec.to_builtins(COUNTED)
    del counted["reliable_modularity"]
    section = count_section(counted)
    assert section is not None
    assert "of the 2 whose modularity is" in section.why
    assert [chart.level is not None for chart in section.charts] == [False, True, False, False]
    assert section.titles == ("Eigengap", "Modularity", "Cross-view information", "Stability")
    assert [len(row.values) for row in section.rows] == [4] * 4


def test_preparations_by_view_stand_with_the_views() -> None:
    ways = {
        VIEWS[0]: {"scale": "unit", "alpha": 10.0, "agreement": 0.412, "ahead": 0.0},
        VIEWS[1]: {"scale": "standard", "alpha": 0.1, "agreement": 0.25, "ahead": 7.54},
    }
    setting = {"scale": "by view", "alpha": None, "n_neighbors": 20, "views": ways}
    text = text_of(run_page(made_up_content(LABELS, fit={"setting": setting})), "views")
    assert "features unit 10 0.412 kept" in text
    assert "features standard 0.1 0.250 7.5 s.e." in text
    given = {name: {"scale": way["scale"], "alpha": way["alpha"]} for name, way in ways.items()}
    page = run_page(made_up_content(LABELS, fit={"setting": {**setting, "views": given}}))
    text = text_of(page, "views")
    assert "features standard 0.1 50.0" in text
    assert "Agreement" not in text


def test_settings_that_differ_in_their_preparations_alone_are_told_apart() -> None:
    tried = {
        "scale": "by view",
        "alpha": None,
        "n_neighbors": 20,
        "n_connected_components": 1,
        "first_graph": "distances",
    }
    strong = [[VIEWS[0], "unit", 0.01], [VIEWS[1], "standard", 0.1]]
    mild = [[VIEWS[0], "unit", 1.0], [VIEWS[1], "unit", 1.0]]
    settings = [
        {**tried, "score": 1.8927, "preparations": strong},
        {**tried, "score": 1.9032, "preparations": mild},
    ]
    text = text_of(run_page(made_up_content(LABELS, fit={"settings_tried": settings})), "course")
    assert f"by view (unit, 0.01: {VIEWS[0]}; standard, 0.1: {VIEWS[1]}) by view" in text
    assert f"by view (unit, 1: {VIEWS[0]}, {VIEWS[1]}) by view" in text
    earlier = [{**tried, "score": 1.8927}, {**tried, "score": 1.9032}]  # versions that did not say
    text = text_of(run_page(made_up_content(LABELS, fit={"settings_tried": earlier})), "course")
    assert text.count("by view by view mean distance") == 2


def test_views_left_out_are_marked_and_told_of() -> None:
    tried = {
        "scale": "unit",
        "alpha": 10.0,
        "n_neighbors": 20,
        "n_connected_components": 1,
        "score": 1.5,
    }
    settings = [{**tried, "left_out": [VIEWS[1]]}, {**tried, "left_out": []}]
    setting = {"scale": "unit", "alpha": 10.0, "n_neighbors": 20, "left_out": [VIEWS[1]]}
    page = run_page(made_up_content(LABELS, fit={"setting": setting, "settings_tried": settings}))
    views = text_of(page, "views")
    assert f"{VIEWS[1]} (left out)" in views
    assert f"{VIEWS[0]} (left out)" not in views
    assert "no more often than by chance" in views
    assert text_of(page, "course").count(f"unit, without {VIEWS[1]}") == 1
    assert "left out" not in text_of(run_page(made_up_content(LABELS)), "views")


def test_one_setting_for_all_views_stands_with_each() -> None:
    text = text_of(run_page(made_up_content(LABELS)), "views")
    assert text.count("features unit 10 50.0") == 2


def test_what_was_learned_from_the_best_partition_is_said() -> None:
    page = run_page(
        made_up_content(
            LABELS, fit={"learning": {"scores": LEARNED.scores, "taken": LEARNED.taken}}
        )
    )
    said = "outer iterations; distances learned from the best partition: another one taken twice"
    assert said in text_of(page, "result")
    assert "learned" not in text_of(run_page(made_up_content(LABELS)), "result")

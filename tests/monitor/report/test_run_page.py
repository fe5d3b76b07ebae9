"""The page of a run: what it says, what was chosen without labels, what it leaves out, and what cannot get in."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from mscam_dask.monitor.report.page import FileLink, n_clusters_section, run_page
from mscam_dask.monitor.run_record import BatchesEntry, DriftRecord
from mscam_dask.types.result import Status
from tests.messages import quotes
from tests.monitor.records import LEARNED, RANK_SAMPLE
from tests.monitor.report.made_up import (
    VIEWS,
    Seen,
    block_graph,
    made_up_content,
    part_of,
    some_labels,
    text_of,
)

HOSTILE = "</title></script><script>alert(1)</script><img src=x onerror=alert(2)>'\"{{7*7}}"


@pytest.fixture(scope="module")
def plain_page() -> str:
    return run_page(made_up_content(some_labels(40, 4)))


def test_the_first_screen_says_what_was_asked_and_what_came_out() -> None:
    labels = some_labels(90, 3)
    page = run_page(made_up_content(labels, labels_true=labels))
    text = text_of(page, "result")
    for part in ("90", "made-up", "0.987", "0.969", "0.971", "18.7 s"):
        assert part in text, part
    assert re.search(r"\b3 \w+, 3 \w+", text)  # components and clusters
    assert Status.CONVERGED.message[1:] in html.unescape(text)  # it begins a sentence
    assert re.search(r"MSCAM, 3 \D+ 0\b", text)  # clusters and seed


def test_nothing_is_loaded_from_anywhere(plain_page: str) -> None:
    seen = Seen(plain_page)
    for tag, attributes in seen.elements:
        for name in ("src", "href", "srcset", "action", "poster", "data"):
            value = attributes.get(name) or ""
            local = value.startswith(("#", "data:")) or value == "run.json"
            assert local or not value, (tag, name, value[:60])
        assert not [name for name in attributes if name.startswith("on")], tag
        assert "style" not in attributes, tag
    (policy,) = (
        attributes["content"] or ""
        for _, attributes in seen.elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_names_that_came_from_data_are_text() -> None:
    labels = some_labels(30, 2)
    content = made_up_content(
        labels,
        views=(HOSTILE, "b"),
        name=HOSTILE,
        sample_ids=[f"{HOSTILE}{row}" for row in range(30)],
        labels_true=labels,
        label_names=[HOSTILE, "other"],
    )
    page = run_page(content)
    ids = [*"abcdefghijklmnopqrstuvwxyzABCD"]
    plain = Seen(run_page(made_up_content(labels, sample_ids=ids, labels_true=labels)))
    seen = Seen(page)
    assert [tag for tag, _ in seen.elements] == [tag for tag, _ in plain.elements]
    assert "'\"49" not in seen.text  # no template was filled in
    assert HOSTILE in seen.text
    payload = page.split('id="payload">')[1].split("</script>")[0]
    assert json.loads(payload)["names"][0].startswith("</title>")


def test_a_page_does_not_grow_with_the_samples_or_clusters() -> None:
    few, many = (run_page(made_up_content(some_labels(*size))) for size in ((2400, 8), (4800, 150)))
    assert re.search(r"\b2\u202f000 \w+ 2\u202f400\b", few)
    assert re.search(r"\b2\u202f000 \w+ 4\u202f800\b", many)
    assert len(many) < 1.3 * len(few)


@pytest.mark.parametrize("case", ["one cluster", "no embeddings", "no iterations", "many views"])
def test_edges(case: str) -> None:
    labels = some_labels(20, 1 if case == "one cluster" else 2)
    views = tuple(f"v{index}" for index in range(14)) if case == "many views" else ("a", "b")
    content = made_up_content(labels, views=views)
    if case == "no embeddings":
        content.result.view_embeddings.clear()
        content.result.view_coordinates.clear()
        content = replace(content, samples=None)
    if case == "no iterations":
        content = replace(content, result=replace(content.result, history=()))
    page = run_page(content)
    assert ('id="support"' in page) == (case != "one cluster")
    assert ("Contribution" in part_of(page, "views")) == (case != "one cluster")
    drawn = {name: part_of(page, name).count("<figure") for name in ("views", "iterations")}
    is_listed = 'id="least"' in part_of(page, "samples")
    assert is_listed == (case not in ("one cluster", "no embeddings"))
    assert (drawn["iterations"] == 0) == (case == "no iterations")
    assert drawn["views"] == {"no embeddings": 0, "many views": 12}.get(case, 2)
    assert case != "many views" or re.search(r"\b12 \w+ 14\b", part_of(page, "views"))


def drift(**changes: object) -> dict[str, object]:
    return {
        "earlier": "nightly-0123456789ab",
        "start": "warm",
        "reason": "",
        "warm_runs": 2,
        "n_common": 80,
        "n_new": 10,
        "n_gone": 3,
        "n_moved": 2,
        "cluster_names": [0, 1, 2],
        "sizes_before": [33, 30, 20],
        "sizes_after": [30, 30, 30],
        **changes,
    }


def page_after(record: dict[str, object], **changes: object) -> str:
    content = made_up_content(some_labels(90, 3), sample_ids=[f"s{row}" for row in range(90)])
    moved = (("s4", 0, 2), ("<b>s7</b>", 0, 2))
    link = FileLink(name="moved.csv", href="a%20b/moved.csv", what="moved")
    changes = {"moved": moved, "files": (link,), **changes}
    of_run = msgspec.convert(record, DriftRecord)
    changed = msgspec.structs.replace(content.record, drift=of_run)
    return run_page(replace(content, record=changed, **changes))  # type: ignore[arg-type]


def test_what_changed_since_the_run_before() -> None:
    page = page_after(drift(warm_runs=7))
    assert 'href="a%20b/moved.csv"' in page
    assert "<b>s7" not in page
    text = text_of(page, "drift")
    for part in ("nightly-0123456789ab", "0 33 30 \u22123 1 30 30 \u00b10 2 20 30 +10", "s4 0 2"):
        assert part in text, part
    tiles, _, rest = text.partition("nightly-0123456789ab")
    assert re.findall(r"[\d.]+", tiles) == ["80", "10", "3", "2", "2.5"]
    assert re.search(r"\b7\b", rest)  # warm runs
    assert re.search(r"\b2 \w+ 0 \w+ 2\b", text)  # samples that moved between two clusters


def test_a_fresh_start_gives_its_reason_and_clusters_that_come_and_go_have_no_size() -> None:
    reason = "30 runs in a row were warm"
    assert reason in text_of(page_after(drift(start="cold", reason=reason)), "drift")
    sizes = {"cluster_names": [1, 4, 6], "sizes_before": [9, 0, 2], "sizes_after": [8, 3, 0]}
    text = text_of(page_after(drift(**sizes)), "drift")
    assert "1 9 8 \u22121 4 \u2013 3 +3 6 2 \u2013 \u22122" in text


def test_the_support_has_every_border_and_names_the_cluster_that_a_view_contradicts(
    plain_page: str,
) -> None:
    content = made_up_content(some_labels(40, 4))
    content.result.assessment.contradictions[1, 2] = 3
    arrays: Any = content.result.arrays
    arrays = replace(arrays, learned_graph=block_graph(np.zeros(40, dtype=int)))
    content = replace(content, result=replace(content.result, arrays=arrays))
    support = part_of(run_page(content), "support")
    assert len(re.findall(r", more of its neighbors are in cluster 3", support)) == 1
    assert len(re.findall(r" ≠ 3</td>", support)) == 1
    assert "≠" in support.split("<table")[0]
    assert "≠" not in part_of(plain_page, "support")
    assert support.count("<tr>") == 1 + 4 + 1 + 4 + 1 + 2  # clusters, borders, then views
    assert '<svg class="tree"' in support
    assert '<svg class="tree"' not in plain_page  # no edge leaves a cluster
    rows = [re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", row)) for row in support.split("<tr>")]
    assert rows[2].startswith(" 2 10 not from 3 with 3 0.4 20 | 18 | 17 ")
    assert rows[3].startswith(" 3 10 not from 2 with 2 0.4 17 | 18 | 20 ")
    assert re.match(r" 0 10 yes with [12] 0.002 12 \| 3 \| 11 ", rows[4])
    assert [row.strip() for row in rows[7:10]] == [
        "0 0.002 0.002",
        "1 0.002 0.002 0.002",
        "2 0.002 0.002 0.4",
    ]
    assert re.search(
        r'class="n s[4-9]" data-tip="clusters 2 and 3: [^"]*0\.4[^"]*20 \| 18 \| 17"', support
    )


def test_batches_have_counts_shares_and_the_clusters_of_one_batch(plain_page: str) -> None:
    content = made_up_content(some_labels(40, 4))
    assert 'id="batches"' not in plain_page
    entry = BatchesEntry(
        names=("<b>", "day 2"),
        counts=((5, 5), (5, 5), (10, 0), (1, 9)),
        shares={"color": (0.9, 0.5, 0.49)},
        is_corrected=True,
    )
    fit = msgspec.structs.replace(content.record.fit, batches=entry)
    record = msgspec.structs.replace(content.record, fit=fit)
    shown = part_of(run_page(replace(content, record=record)), "batches")
    assert "<b>" not in shown
    assert "Cluster 2 is in batch &lt;b&gt; only." in shown
    assert re.findall(r'class="n s(\d)"', shown) == ["4", "4", "4", "4", "9", "0", "1", "8"]
    assert re.search(r"color</th>\D*>90\.0\D*>50\.0\D*>49\.0", shown)


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


def test_views_stand_with_their_preparations_and_a_mark_if_they_are_left_out() -> None:
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
    assert [row[0] for row in rows_of(told, "views")[1:3]] == list(VIEWS)
    setting = {"scale": "unit", "alpha": 10.0, "n_neighbors": 20, "exclude_views": [VIEWS[1]]}
    tried = {**setting, "n_connected_components": 1, "score": 1.5}
    by_view = [[VIEWS[0], "unit", 0.01], [VIEWS[1], "standard", 0.1]]
    settings = [tried, {**tried, "alpha": None, "view_settings": by_view, "exclude_views": []}]
    fit = {"setting": setting, "candidate_settings": settings}
    content = made_up_content(LABELS, fit=fit)
    history = tuple(
        replace(record, views=record.views[:1], view_scores=record.view_scores[:1])
        for record in content.result.history
    )
    result = replace(content.result, history=history)
    page = run_page(replace(content, result=result))
    key = page.split('<ul class="key"')[1].split("</ul>")[0]
    assert (VIEWS[0] in key, VIEWS[1] in key) == (True, False)
    first, second = (row[0] for row in rows_of(page, "views")[1:3])
    assert first == VIEWS[0]
    assert re.fullmatch(rf"{VIEWS[1]} .+", second)  # with a mark
    assert rows_with(page, "iterations", "unit", 1.5, VIEWS[1])
    assert rows_with(page, "iterations", "unit", 0.01, VIEWS[0], "standard", 0.1, VIEWS[1])

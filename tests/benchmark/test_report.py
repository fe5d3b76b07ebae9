"""Records and reports of experiments: the numbers of the record and of the paper, without scripts; damaged records are errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from mscam_dask.benchmark.report import experiment_page
from mscam_dask.benchmark.results import ExperimentRecord, MeanStd, encode_experiment, read_record
from mscam_dask.errors import DataError
from tests.messages import quotes

HOSTILE = "<script>alert(1)</script>"
DOCS = Path(__file__).parents[2] / "docs" / "experiments.md"
(SHOWN,) = re.findall(r"```json\n(.*?)```", DOCS.read_text("utf-8"), flags=re.S)


def record() -> ExperimentRecord:
    """The record that the docs show, with a second method, and names that are markup."""
    shown = msgspec.json.decode(SHOWN, type=ExperimentRecord)
    (data,), (method,), (row,), (trial,) = shown.datasets, shown.methods, shown.rows, shown.trials
    (view,), (curve,), (heat_map,) = data.views, shown.curves, shown.heat_maps
    memory = {"peak_memory_bytes": MeanStd(mean=2.0**27, std=0.0)}
    row = replace(row, scores={**row.scores, **memory})
    table = {"accuracy": ((0.5, 0.25, 0.8), (None, 0.75, 0.7))}
    free = {**heat_map.label_free, "adjusted_modularity": ()}
    failed = replace(row, method="odd", n_failed=1, reasons=("more than 900 s",), paper={})
    late = replace(trial, method="odd", outcome="over time", reason=f"more than 900 s {HOSTILE}")
    return replace(
        shown,
        started="2026-11-21T02:48:03+00:00",
        name=HOSTILE,
        datasets=(replace(data, views=(replace(view, name=HOSTILE),)),),
        methods=(method, replace(method, name="odd", title=HOSTILE)),
        rows=(row, failed),
        curves=(replace(curve, mean=(0.87, None)),),
        heat_maps=(replace(heat_map, with_labels=table, label_free=free),),
        trials=(trial, late),
    )


def text_of(page: str) -> str:
    body = page[page.index("<main") : page.index("</main>")]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def test_numbers_stand_beside_the_papers_and_names_from_data_are_text() -> None:
    page = experiment_page(record(), ())
    text = text_of(page)
    assert "0.980 ± 0.001 0.978" in text
    assert "128" in text  # MiB
    tips = [re.findall(r"\d\.\d+", tip) for tip in re.findall(r'data-tip="([^"]*)"', page)]
    assert ["0.1", "0.872"] in tips  # the paper's
    assert ["0.87"] in tips  # measured, without corruption
    framed = re.findall(r'<td class="n s\d match"[^>]*>([^<]*)</td>', page)
    assert framed == ["0.750", "1.200"]
    assert "more than 900 s" in text
    assert text.count("1 of 2") == 2  # runs of the method, and fits
    assert page.count("<script") == 1
    assert "&lt;script&gt;alert(1)" in page
    assert "default-src 'none'" in page


def test_the_selected_point_of_a_sweep_comes_first_and_all_data_are_in_one_table() -> None:
    whole = record()
    first = text_of(experiment_page(replace(whole, curves=()), ()))[:200]
    assert re.search(quotes("handwritten", "\u03b1 = 1", "λ = 0.1", 0.75, 0.25, 0.8), first)
    roots = tuple(replace(line, dataset="roots") for line in whole.rows)
    compared = replace(whole, rows=(*whole.rows, *roots), curves=(), heat_maps=())
    assert "MSCAM defaults 0.980 0.980" in text_of(experiment_page(compared, ()))


def read(content: bytes, directory: Path) -> ExperimentRecord:
    (directory / "experiment.json").write_bytes(content)
    return read_record(directory)


def test_the_document_that_the_docs_show_is_one(tmp_path: Path) -> None:
    document = json.loads(SHOWN)
    read_back = read(SHOWN.encode(), tmp_path)
    fields = set(ExperimentRecord.__struct_fields__)
    assert set(document) == fields
    for name in ("datasets", "methods", "rows", "curves", "heat_maps", "trials"):
        (entry,) = getattr(read_back, name)
        assert set(document[name][0]) == set(entry.__struct_fields__), name


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"\xff",
        encode_experiment(record()).replace(b"mscam_dask.experiment", b"other"),
        encode_experiment(record()).replace(b'_version": 1', b'_version": 97'),
    ],
)
def test_content_that_is_no_experiment_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        read(content, tmp_path)

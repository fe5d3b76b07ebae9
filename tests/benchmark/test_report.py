"""Records and reports of experiments: the numbers of the record and of the paper, without scripts; damaged records are errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from mscam_dask.benchmark.report import experiment_page
from mscam_dask.benchmark.results import (
    CurveEntry,
    DatasetEntry,
    ExperimentRecord,
    HeatMapEntry,
    MeanStd,
    MethodEntry,
    RowEntry,
    TrialEntry,
    encode_experiment,
    read_record,
)
from mscam_dask.errors import DataError
from mscam_dask.monitor.run_record import ViewEntry
from tests.messages import quotes

HOSTILE = "<script>alert(1)</script>"


def row(method: str, accuracy: float, paper: dict[str, float]) -> RowEntry:
    return RowEntry(
        dataset="leaves",
        method=method,
        protocol="defaults",
        parameters={"alpha": 1.0},
        n_runs=3,
        n_failed=1,
        scores={
            "accuracy": MeanStd(mean=accuracy, std=0.012),
            "seconds": MeanStd(mean=6.9, std=None),
            "peak_memory_bytes": MeanStd(mean=2.0**27, std=0.0),
        },
        paper=paper,
        reasons=("more than 900 s",),
    )


def record() -> ExperimentRecord:
    view = ViewEntry(
        name=HOSTILE, view_type="features", shape=(90, 5), dtype="float64", digest="ab"
    )
    table = ((0.5, 0.25), (None, 0.75))
    return ExperimentRecord(
        kind="comparison",
        name=f"leaves {HOSTILE}",
        state="finished",
        command="mscam-dask compare leaves.toml",
        started="2026-11-21T02:48:03+00:00",
        seconds=812.4,
        seeds=(0, 1, 2),
        varies="run i has seed i.",
        protocols={"defaults": "label-free defaults"},
        versions={"mscam_dask": "0.1.0"},
        datasets=(
            DatasetEntry(
                name="leaves", source="x", digest="cd", n_samples=90, n_clusters=3, n_classes=3,
                views=(view,),
            ),
        ),
        methods=(
            MethodEntry(name="mscam", title="MSCAM", reference="arXiv", grid={},
                        dense=False),
            MethodEntry(name="odd", title=HOSTILE, reference="", grid={}, dense=True),
        ),
        rows=(row("mscam", 0.987, {"accuracy": 0.978}), row("odd", 0.4, {})),
        curves=(
            CurveEntry(method="mscam", protocol="defaults", corruption_rate=(0.0, 0.5, 0.9),
                       mean=(0.9, 0.7, None), std=(0.0, 0.0, None), paper=(0.874, None, 0.5)),
        ),
        heat_maps=(
            HeatMapEntry(dataset="leaves", method="mscam", alpha=(0.1, 1.0),
                         graph_weight=(0.01, 0.3), with_labels={"accuracy": table},
                         label_free={"cross_view_information": table, "eigengap": ()},
                         best={"cross_view_information": (1, 1)}, fixed={"scale": "unit"}),
        ),
        trials=(
            TrialEntry(key="1", dataset="leaves", method="mscam", seed=0, shuffled=False,
                      parameters={}, outcome="ok"),
            TrialEntry(key="2", dataset="leaves", method="odd", seed=1, shuffled=True,
                      parameters={}, outcome="over time", reason=f"more than 900 s {HOSTILE}"),
        ),
    )  # fmt: skip


def text_of(page: str) -> str:
    body = page[page.index("<main") : page.index("</main>")]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def test_numbers_stand_beside_the_papers_and_names_from_data_are_text() -> None:
    page = experiment_page(record(), ())
    text = text_of(page)
    assert "0.987 ± 0.012 0.978" in text
    assert "128" in text  # MiB
    assert "2 of 3" in text
    tips = [re.findall(r"\d\.\d+", tip) for tip in re.findall(r'data-tip="([^"]*)"', page)]
    assert ["0.9", "0.5"] in tips  # the paper's
    assert ["0.5", "0.7"] in tips  # measured
    framed = re.findall(r'<td class="n s\d match"[^>]*>([^<]*)</td>', page)
    assert framed == ["0.750", "0.750"]
    assert "more than 900 s" in text
    assert "1 of 2" in text
    assert page.count("<script") == 1
    assert "&lt;script&gt;alert(1)" in page
    assert "default-src 'none'" in page


def test_the_selected_point_of_a_sweep_comes_first_and_accuracies_of_all_data_are_in_one_table() -> (
    None
):
    whole = record()
    first = text_of(experiment_page(replace(whole, curves=()), ()))[:200]
    assert re.search(quotes("leaves", "\u03b1 = 1", "λ = 0.3", 0.75, 0.25), first)
    roots = tuple(replace(line, dataset="roots") for line in whole.rows)
    compared = replace(whole, rows=(*whole.rows, *roots), curves=(), heat_maps=())
    assert "MSCAM defaults 0.987 0.987" in text_of(experiment_page(compared, ()))


DOCS = Path(__file__).parents[2] / "docs" / "experiments.md"


def read(content: bytes, directory: Path) -> ExperimentRecord:
    (directory / "experiment.json").write_bytes(content)
    return read_record(directory)


def test_the_document_that_the_docs_show_is_one(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```json\n(.*?)```", DOCS.read_text(), flags=re.S)
    document = json.loads(shown)
    read_back = read(shown.encode(), tmp_path)
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

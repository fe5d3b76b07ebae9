"""experiment.json: written records are read back, and damaged ones are errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mscam_dask.benchmark.results import (
    ExperimentRecord,
    HeatMapEntry,
    TrialEntry,
    encode_experiment,
    read_record,
)
from mscam_dask.errors import DataError

DOCS = Path(__file__).parents[2] / "docs" / "experiments.md"

RECORD = ExperimentRecord(
    kind="sensitivity",
    name="x",
    state="finished",
    command="mscam-dask sweep x.toml",
    started="2026-01-01T00:00:00+00:00",
    heat_maps=(
        HeatMapEntry(
            dataset="d",
            method="mscam",
            alpha=(0.1,),
            graph_weight=(1.0, 2.0),
            with_labels={"accuracy": ((0.5, None),)},
            label_free={"eigengap": ((float("nan"), 1e-3),)},
            best={"eigengap": (0, 1)},
            fixed={"scale": "unit"},
        ),
    ),
    trials=(
        TrialEntry(
            key="k",
            dataset="d",
            method="mscam",
            seed=0,
            shuffled=False,
            parameters={"alpha": 0.1},
            outcome="over time",
            reason="after 2 s",
        ),
    ),
)


def read(content: bytes, directory: Path) -> ExperimentRecord:
    (directory / "experiment.json").write_bytes(content)
    return read_record(directory)


def test_what_is_written_is_read_back_and_nan_is_null(tmp_path: Path) -> None:
    content = encode_experiment(RECORD)
    back = read(content, tmp_path)
    assert back.trials == RECORD.trials
    assert back.heat_maps[0].label_free["eigengap"] == ((None, 1e-3),)
    assert encode_experiment(back) == content


def test_the_document_that_the_docs_show_is_one(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```json\n(.*?)```", DOCS.read_text(), flags=re.S)
    document = json.loads(shown)
    record = read(shown.encode(), tmp_path)
    fields = set(ExperimentRecord.__struct_fields__)
    assert set(document) == fields
    for name in ("datasets", "methods", "rows", "curves", "heat_maps", "trials"):
        (entry,) = getattr(record, name)
        assert set(document[name][0]) == set(entry.__struct_fields__), name


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"\xff",
        encode_experiment(RECORD).replace(b"mscam_dask.experiment", b"other"),
        encode_experiment(RECORD).replace(b'_version": 1', b'_version": 97'),
    ],
)
def test_content_that_is_no_experiment_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        read(content, tmp_path)

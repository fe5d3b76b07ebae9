"""experiment.json: written records are read back, and damaged ones are errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from mscam_dask.benchmark.results import ExperimentRecord, encode_experiment, read_record
from mscam_dask.errors import DataError
from tests.benchmark.test_report import record

DOCS = Path(__file__).parents[2] / "docs" / "experiments.md"


def read(content: bytes, directory: Path) -> ExperimentRecord:
    (directory / "experiment.json").write_bytes(content)
    return read_record(directory)


def test_what_is_written_is_read_back_and_nan_is_null(tmp_path: Path) -> None:
    made = record()
    maps = replace(made.heat_maps[0], label_free={"eigengap": ((float("nan"), 1e-3),)})
    content = encode_experiment(replace(made, heat_maps=(maps,)))
    back = read(content, tmp_path)
    assert back.trials == made.trials
    assert back.heat_maps[0].label_free["eigengap"] == ((None, 1e-3),)
    assert encode_experiment(back) == content


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

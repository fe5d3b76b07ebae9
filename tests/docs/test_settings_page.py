"""The page of settings names every table and key of a pipeline file, with its default, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mscam_dask.estimators import MSCAM
from mscam_dask.pipeline import config
from mscam_dask.pipeline import settings as of_runs
from mscam_dask.pipeline.experiments import settings as of_experiments

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pipeline-settings.md"
REQUIRED = "required"
STRUCTS: dict[str, type[msgspec.Struct]] = {
    **config._KINDS,
    "compare": of_experiments.CompareTable,
    "robustness": of_experiments.RobustnessTable,
    "sweep": of_experiments.SweepTable,
}


def of_struct(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Key to default, `REQUIRED` where there is none."""
    return {
        field.name: REQUIRED if field.default is msgspec.NODEFAULT else field.default
        for field in msgspec.structs.fields(kind)
    }


def expected(table: str) -> dict[str, Any]:
    if table == "cluster":
        own = {
            name: value
            for name, value in MSCAM().get_params().items()
            if name not in config._NOT_IN_CLUSTER
        }
        return {"method": "mscam", **own, "n_clusters": REQUIRED}
    if table == "dataset.NAME":
        common = of_struct(of_runs.DataTable)
        return {
            key: default
            for key, default in of_struct(of_experiments.DatasetTable).items()
            if key not in common
        }
    return of_struct(STRUCTS[table])


def told() -> dict[str, dict[str, list[str]]]:
    """Table to key to the cells behind it: default, allowed, meaning."""
    parts = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    pages = {}
    for part in parts:
        tables = re.findall(r"`\[([\w.]+)\]`", part.partition("\n")[0])
        rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \| (.*) \|$", part, re.MULTILINE)
        keys = [key for key, *_ in rows]
        assert len(set(keys)) == len(keys)
        pages.update({table: {key: cells for key, *cells in rows} for table in tables})
    return pages


def written(default: Any) -> str:
    """A default as a pipeline file would say it."""
    if default is None:
        return "-"
    if default == REQUIRED:
        return REQUIRED
    text = msgspec.json.encode(default).decode().replace(",", ", ")
    return f"`{text}`"


def test_every_table_is_named_and_no_other() -> None:
    tables = {*config._TABLES, *of_experiments.KIND_TABLES}
    named = {"dataset.NAME", "parameters.METHOD", "grid.METHOD"}
    assert told().keys() == tables | named


@pytest.mark.parametrize("table", [*config._TABLES, *of_experiments.KIND_TABLES, "dataset.NAME"])
def test_every_key_has_its_default_and_a_meaning(table: str) -> None:
    rows = told()[table]
    defaults = expected(table)
    assert rows.keys() == defaults.keys()
    for key, (default, allowed, meaning) in rows.items():
        assert default == written(defaults[key]), key
        assert allowed, key
        assert re.fullmatch(r".+\.", meaning), key

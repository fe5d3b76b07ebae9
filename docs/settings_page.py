"""The page of every table and key of a pipeline file, made from the settings classes.

python docs/settings_page.py     # writes docs/pipeline-settings.md
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mscam_dask.benchmark import config as of_experiments
from mscam_dask.pipeline import settings as of_runs
from mscam_dask.types.allowed import allowed_values, annotations_of
from mscam_dask.types.parameters import Constants

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).with_name("pipeline-settings.md")

_INTRODUCTION = """\
# Pipeline settings

<!-- Made by docs/settings_page.py from the settings classes of the package; change those and run it again. -->

A pipeline is a TOML file. A file with `[data]` and `[cluster]` is a run; one with `[compare]`, `[robustness]` or `[sweep]` is
an experiment ([experiments](experiments.md)). Every key can be overridden: `--set cluster.n_clusters=7` wins over
`MSCAM_CLUSTER__N_CLUSTERS=7` in the environment, which wins over the file. Unknown keys and values that are not
allowed are refused before anything runs, all at once, each with its line. Paths in the file are relative to the file.
All settings of a run, defaults included, are in the `pipeline.toml` of its directory.

A dash means that there is no fixed default; see the last column.
"""

_END = """\
## `[parameters.METHOD]`, `[grid.METHOD]`

For a comparison or a robustness experiment: parameters of a method in place of its defaults, in every protocol, and lists
of values in place of its grid. The keys are the parameters of its estimator ([comparison methods](baselines.md)); for
`mscam` and `mscan` those of `[cluster]` except `n_clusters`, `max_clusters` and `random_state`, and those of
`[cluster.constants]` except `admm`, in the same table.
"""

_TABLES: dict[str, tuple[type[msgspec.Struct], str]] = {
    "data": (of_runs.DataTable, "Source of the views ([your own data](own-data.md))."),
    "cluster": (
        of_runs.ClusterKeys,
        "The method and its parameters: those of `MSCAM` and `MSCAN` in Python.",
    ),
    "execution": (
        of_runs.ExecutionTable,
        "Executor of the tasks, also of experiments; nothing in it changes the result ([clusters](clusters.md)).",
    ),
    "evaluate": (of_runs.EvaluateTable, "Comparison of the clusters with ground truth."),
    "report": (of_runs.ReportTable, "The [report](report.md) of a run."),
    "incremental": (
        of_runs.IncrementalTable,
        "Runs on data that grow ([nightly pipelines](nightly-pipeline.md)).",
    ),
    "output": (
        of_runs.OutputTable,
        "The run directory and its [checkpoints](checkpoints.md). Experiments have `directory` and `root` too.",
    ),
    "compare": (
        of_experiments.CompareTable,
        "Methods side by side on data sets ([experiments](experiments.md), [comparison methods](baselines.md)).",
    ),
    "robustness": (
        of_experiments.RobustnessTable,
        "Accuracy over the share of the samples that is corrupted, on mixtures that are drawn.",
    ),
    "sweep": (
        of_experiments.SweepTable,
        "Scores over `alpha` and `graph_weight`, with labels and without.",
    ),
    "dataset.NAME": (
        of_experiments.DatasetTable,
        "A data set of an experiment: every key of `[data]`, and this one.",
    ),
}


_CONSTANTS = "Constants of the method, which need no change for other data: `Constants` in Python."


def page() -> str:
    """Return the page as Markdown."""
    parts = [_INTRODUCTION]
    for name, (kind, introduction) in _TABLES.items():
        common = set(of_runs.DataTable.__struct_fields__) if name == "dataset.NAME" else set()
        texts = of_runs.texts_of(kind)
        rows = [
            _row(field, texts[field.name])
            for field in msgspec.structs.fields(kind)
            if field.name not in common
        ]
        parts.append(_section(name, introduction, rows))
        if name == "cluster":
            parts.append(_section("cluster.constants", _CONSTANTS, list(_constants())))
    return "\n".join([*parts, _END])


def _section(name: str, introduction: str, rows: list[str]) -> str:
    head = ["| key | default | allowed | meaning |", "|---|---|---|---|"]
    return "\n".join([f"## `[{name}]`", "", introduction, "", *head, *rows, ""])


def _constants() -> Iterator[str]:
    """Yield the row of each field of `Constants`, with its text from the docstring."""
    types_of = annotations_of(Constants)
    texts = dict(re.findall(r"^(\w+) : .*\n((?: +.*\n)+)", inspect.getdoc(Constants) or "", re.M))
    for field in dataclasses.fields(Constants):
        default = msgspec.json.encode(field.default).decode()
        is_table = dataclasses.is_dataclass(field.default)
        allowed = allowed_values(types_of[field.name])
        meaning = " ".join(texts[field.name].split())
        cells = (f"`{field.name}`", "-" if is_table else f"`{default}`", allowed, meaning)
        yield f"| {' | '.join(cells)} |"


def _row(field: msgspec.structs.FieldInfo, meaning: str) -> str:
    cells = (f"`{field.name}`", _default(field), allowed_values(field.type), meaning)
    return f"| {' | '.join(cells)} |"


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    if field.default is None or dataclasses.is_dataclass(field.default):
        return "-"
    return f"`{msgspec.json.encode(field.default).decode().replace(',', ', ')}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

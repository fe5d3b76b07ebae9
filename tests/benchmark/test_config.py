"""Experiment files: problems are reported before any fit, with their place and the allowed values."""

from __future__ import annotations

from pathlib import Path

import pytest

from mscam_dask.benchmark.config import RobustnessTable, read_experiment, table_of
from mscam_dask.benchmark.methods import METHODS, ROBUSTNESS, TABLES
from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.toml_document import read_document
from tests.benchmark.conftest import Write
from tests.messages import quotes

PIPELINES = Path(__file__).parents[2] / "pipelines"


def test_names_are_looked_for_in_the_directory_of_data(
    write: Write, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "kept").mkdir()
    (here / "tiny.npz").rename(here / "kept" / "tiny.npz")
    text = "[compare]\ndatasets = ['tiny']"
    with pytest.raises(ConfigurationError):
        read_experiment(write(text))
    settings = read_experiment(write(f"{text}\ndirectory = 'kept'"))
    assert settings.dataset["tiny"].source == str(here / "kept" / "tiny.npz")
    monkeypatch.setenv("MSCAM_DATA", str(here / "kept"))
    assert read_experiment(write(text)).dataset == settings.dataset
    with pytest.raises(ConfigurationError, match=quotes("'tini'", "'tiny'", "digits", "mfeat")):
        read_experiment(write("[compare]\ndatasets = ['tini']"))


@pytest.mark.parametrize(
    ("name", "table"),
    [("comparison", "compare"), ("robustness", "robustness"), ("sensitivity", "sweep")],
)
def test_the_papers_pipelines_are_usable(
    here: Path, monkeypatch: pytest.MonkeyPatch, name: str, table: str
) -> None:
    for data in ("handwritten", "flowers17", "caltech101_nus31", "cifar10_nus_3100"):
        (here / f"{data}.npz").touch()
    monkeypatch.setenv("MSCAM_DATA", str(here))
    assert table_of(read_document(PIPELINES / f"{name}.toml").tables) == table
    settings = read_experiment(PIPELINES / f"{name}.toml")
    assert settings.table.kind == name
    if isinstance(settings.table, RobustnessTable):
        assert settings.table == RobustnessTable()
        assert settings.table.methods == ("mlan", "mscan", "mscam")


def test_the_paper_reports_on_methods_that_there_are() -> None:
    assert {method for _, method in TABLES} | set(ROBUSTNESS) <= set(METHODS)


DATA = "[compare]\ndatasets = ['tiny.npz']\n"
SWEEP = "[sweep]\ndatasets = ['tiny.npz']\n"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["[compare]", "[robustness]"]),
        ("[compare]\n[robustness]", ["line 2", "[compare]", "[robustness]"]),
        ("[comapre]", ["line 1", "'compare'"]),
        ("[compare]\ndatasets = ['tiny.npz', './tiny.npz']", ["line 2", "'tiny'"]),
        ("[compare]\ndatasets = ['x']\ndirectory = 'no'", ["line 2", "'x'", "/no"]),
        (f"{DATA}methods = ['mlam']", ["line 3", "'mlam'", "'mlan'", *METHODS]),
        (f"{DATA}[parameters.mlan]\nn_neighbor = 3", ["line 4", "'n_neighbors'"]),
        (f"{DATA}[parameters.mscam]\nn_jobs = 3", ["line 4", "'n_jobs'", "alpha"]),
        (f"{DATA}[grid.mscan]\nalpha = 3", ["line 4", "[grid.mscan] alpha", "3"]),
        (f"{DATA}[grid.mscan]\nalhpa = [3]", ["line 4", "'alhpa'", "'alpha'"]),
        (f"{DATA}[grid.mscem]\nalpha = [3]", ["line 3", "'mscam'", *METHODS]),
        ("[dataset.m]\nsource = 'x'\n[robustness]", ["[robustness]", "[dataset.m]"]),
        (f"{SWEEP}[grid.mscam]\nalpha = [1]", ["[grid]", "[sweep]"]),
        (f"{DATA}runs = 'x'\n[output]\ndir = 'x'", ["[compare] runs", "'dir'"]),
    ],
)
def test_problems_are_named_with_their_place(write: Write, text: str, parts: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_experiment(write(text))
    for part in parts:
        assert part in str(caught.value)

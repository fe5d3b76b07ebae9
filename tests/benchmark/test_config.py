"""Experiment files: problems are reported before any fit, with their place and the allowed values."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mscam_dask.benchmark.config import (
    Command,
    CompareTable,
    RobustnessTable,
    SweepTable,
    experiment_command,
    read_experiment,
)
from mscam_dask.benchmark.methods import METHODS, ROBUSTNESS, TABLES
from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.config.toml_document import COMMAND_LINE, parse_override, read_document
from tests.benchmark.conftest import Write
from tests.messages import quotes

PIPELINES = Path(__file__).parents[2] / "pipelines"


def test_defaults(write: Write) -> None:
    settings = read_experiment(write("[compare]\ndatasets = ['tiny.npz']"))
    assert settings.table.kind == "comparison"
    assert isinstance(settings.table, CompareTable)
    assert settings.table.runs == 10
    assert settings.table.protocols == ("defaults",)
    assert list(settings.datasets) == ["tiny"]
    assert Path(str(settings.datasets["tiny"].source)).is_absolute()


def test_names_are_looked_for_in_the_directory_of_data(
    write: Write, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "kept").mkdir()
    (here / "tiny.npz").rename(here / "kept" / "tiny.npz")
    text = "[compare]\ndatasets = ['tiny']"
    with pytest.raises(
        ConfigurationError, match=quotes("line 2", "'tiny'", "`directory`", "$MSCAM_DATA")
    ):
        read_experiment(write(text))
    settings = read_experiment(write(f"{text}\ndirectory = 'kept'"))
    assert settings.datasets["tiny"].source == str(here / "kept" / "tiny.npz")
    monkeypatch.setenv("MSCAM_DATA", str(here / "kept"))
    assert read_experiment(write(text)).datasets == settings.datasets
    with pytest.raises(ConfigurationError, match=quotes("'tini'", "'tiny'", "digits", "mfeat")):
        read_experiment(write("[compare]\ndatasets = ['tini']"))


def test_declared_data(write: Write) -> None:
    text = "[compare]\ndatasets = ['mine']\n[dataset.mine]\nsource = ['tiny.npz']\nn_clusters = 4"
    settings = read_experiment(write(text))
    assert settings.datasets["mine"].n_clusters == 4


@pytest.mark.parametrize("name", ["../out", "new\nline", "nul", "x" * 201])
def test_a_name_is_no_path(write: Write, name: str) -> None:
    quoted = json.dumps(name)
    text = f"[compare]\ndatasets = ['tiny.npz']\n[dataset.{quoted}]\nsource = 'digits'"
    with pytest.raises(
        ConfigurationError, match=quotes("experiment.toml", repr(name)[:40], "[dataset.NAME]")
    ):
        read_experiment(write(text))


def test_a_name_need_not_be_a_word(write: Write) -> None:
    name = "MSRC-v1.2 (5 views, ä)"
    text = f'[compare]\ndatasets = ["{name}"]\n[dataset."{name}"]\nsource = "digits"'
    assert list(read_experiment(write(text)).datasets) == [name]


def test_data_found_by_a_path_are_called_by_its_end(write: Write, here: Path) -> None:
    for place in (here / "kept" / "more", here / "outside"):
        place.mkdir(parents=True)
        shutil.copy(here / "tiny.npz", place / "set.npz")
    directory = "\ndirectory = 'kept'"
    for asked in ("more/set", "../outside/set"):
        settings = read_experiment(write(f"[compare]\ndatasets = ['{asked}']{directory}"))
        assert list(settings.datasets) == ["set"]
    shutil.copy(here / "tiny.npz", here / "aux.npz")
    with pytest.raises(
        ConfigurationError, match=quotes("line 2", "'aux.npz'", "'aux'", "[dataset.NAME]")
    ):
        read_experiment(write("[compare]\ndatasets = ['aux.npz']"))


def test_names_that_some_file_systems_take_for_one_are_refused(write: Write, here: Path) -> None:
    shutil.copy(here / "tiny.npz", here / "Tiny.npz")
    found = "[compare]\ndatasets = ['tiny.npz', 'Tiny.npz']"
    declared = "[compare]\ndatasets = ['tiny.npz', 'Tiny']\n[dataset.Tiny]\nsource = 'digits'"
    for text in (found, declared):
        with pytest.raises(
            ConfigurationError, match=quotes("line 2", "'tiny'", "'Tiny'", "[dataset.NAME]")
        ):
            read_experiment(write(text))


def test_directories_are_called_by_the_files_name(here: Path) -> None:
    file = here / "...toml"
    file.write_text("[compare]\ndatasets = ['tiny.npz']")
    with pytest.raises(ConfigurationError, match=quotes(file, "'..'")):
        read_experiment(file)


def test_paths_of_data_start_at_the_file_or_at_the_command_line(here: Path) -> None:
    place = here / "elsewhere"
    place.mkdir()
    shutil.copy(here / "tiny.npz", place / "near.npz")
    file = place / "e.toml"
    file.write_text("[compare]\ndatasets = ['m']\n[dataset.m]\nsource = 'near.npz'\n")
    assert read_experiment(file).datasets["m"].source == str(place / "near.npz")
    settings = read_experiment(file, [parse_override("dataset.m.source=tiny.npz")])
    assert settings.datasets["m"].source == str(here / "tiny.npz")


def test_kinds(write: Write) -> None:
    robustness = read_experiment(write("[robustness]\nruns = 2"))
    assert isinstance(robustness.table, RobustnessTable)
    assert robustness.table.methods == ("mlan", "mscan", "mscam")
    sweep = read_experiment(write("[sweep]\ndatasets = ['tiny.npz']"), command="sweep")
    assert isinstance(sweep.table, SweepTable)


@pytest.mark.parametrize(
    ("name", "command"),
    [("comparison", "compare"), ("robustness", "compare"), ("sensitivity", "sweep")],
)
def test_the_papers_pipelines_are_usable(
    here: Path, monkeypatch: pytest.MonkeyPatch, name: str, command: Command
) -> None:
    for data in ("handwritten", "flowers17", "caltech101_nus31", "cifar10_nus_3100"):
        (here / f"{data}.npz").touch()
    monkeypatch.setenv("MSCAM_DATA", str(here))
    assert experiment_command(read_document(PIPELINES / f"{name}.toml").tables) == command
    settings = read_experiment(PIPELINES / f"{name}.toml", command=command)
    assert settings.table.kind == name
    if isinstance(settings.table, RobustnessTable):
        assert settings.table == RobustnessTable()


def test_the_paper_reports_on_methods_that_there_are() -> None:
    assert {method for _, method in TABLES} | set(ROBUSTNESS) <= set(METHODS)


def test_without_a_file(here: Path) -> None:
    settings = read_experiment(COMMAND_LINE, [parse_override('compare.datasets=["tiny.npz"]')])
    assert settings.name == "comparison"
    assert list(settings.datasets) == ["tiny"]
    with pytest.raises(
        ConfigurationError, match=quotes("--set compare.runs=0", "[compare] runs", ">= 1")
    ):
        read_experiment(
            COMMAND_LINE,
            [parse_override('compare.datasets=["tiny.npz"]'), parse_override("compare.runs=0")],
        )
    said = quotes("--set compare.datasets.x=1", "['tiny.npz']")
    with pytest.raises(ConfigurationError, match=said):
        read_experiment(
            COMMAND_LINE,
            [
                parse_override('compare.datasets=["tiny.npz"]'),
                parse_override("compare.datasets.x=1"),
            ],
        )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["experiment.toml", "[compare]", "[robustness]"]),
        ("[compare]\n[robustness]", ["line 2", "[compare]", "[robustness]"]),
        (
            "[sweep]\ndatasets = ['tiny.npz']",
            ["line 1", "[sweep]", "mscam-dask sweep", "mscam-dask compare"],
        ),
        ("[comapre]", ["line 1", "[comapre]", "'compare'"]),
        ("[compare]", ["line 1", "[compare]", "datasets"]),
        (
            "[compare]\ndatasets = ['absent']",
            ["line 2", "'absent'", "[dataset.absent]", "$MSCAM_DATA"],
        ),
        (
            "[compare]\ndatasets = ['tiny.npz', './tiny.npz']",
            ["line 2", "[compare] datasets", "'tiny'"],
        ),
        ("[compare]\ndatasets = ['x']\ndirectory = 'no'", ["line 2", "'x'", "/no"]),
        (
            "[compare]\ndatasets = ['tiny.npz']\nmethods = ['mscam', 'mlam']",
            ["line 3", "[compare] methods", "'mlam'", "'mlan'", *METHODS],
        ),
        ("[compare]\ndatasets = ['tiny.npz']\nrun = 3", ["line 3", "'run'", "'runs'"]),
        (
            "[compare]\ndatasets = ['tiny.npz']\n[parameters.mlan]\nn_neighbours = 3",
            ["line 4", "[parameters.mlan]", "'n_neighbours'", "'n_neighbors'", "max_iter"],
        ),
        (
            "[compare]\ndatasets = ['tiny.npz']\n[parameters.mscam]\nn_jobs = 3",
            ["line 4", "[parameters.mscam]", "'n_jobs'", "alpha"],
        ),
        (
            "[compare]\ndatasets = ['tiny.npz']\n[grid.mscan]\nalpha = 3",
            ["line 4", "[grid.mscan] alpha", "3"],
        ),
        (
            "[compare]\ndatasets = ['tiny.npz']\n[grid.mscan]\nalhpa = [3]",
            ["line 4", "[grid.mscan]", "'alhpa'", "'alpha'"],
        ),
        (
            "[compare]\ndatasets = ['tiny.npz']\n[grid.mscem]\nalpha = [3]",
            ["line 3", "[grid.mscem]", "'mscam'", *METHODS],
        ),
        ("[compare]\ndatasets = ['tiny.npz']\n[grid]\nalpha = [3]", ["line 4", "[grid.alpha]"]),
        (
            "dataset = 3\n[compare]\ndatasets = ['tiny.npz']",
            ["line 1", "dataset", "3", "[dataset.NAME]"],
        ),
        (
            "[compare]\ndatasets = ['m']\n[dataset.m]\n",
            ["line 3", "[dataset.m]", "source", "'digits'"],
        ),
        (
            "[compare]\ndatasets = ['m']\n[dataset.m]\nsource = 'no.npz'",
            ["line 2", "'m'", "no.npz"],
        ),
        (
            "[compare]\ndatasets = ['http://a/b.zarr']",
            ["line 2", "'http://a/b.zarr'", "s3://bucket/name.zarr"],
        ),
        ("[compare]\ndatasets = ['~no-such-user/x']", ["line 2", "'~no-such-user/x'"]),
        ("[dataset.m]\nsource = 'x'\n[robustness]", ["[robustness]", "[dataset.m]"]),
        (
            "[robustness]\ncorruption_rate = [0.1, 30]",
            ["line 2", "[robustness] corruption_rate", "[0.1, 30]", "to 1"],
        ),
    ],
)
def test_what_is_wrong_is_said(write: Write, text: str, parts: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_experiment(write(text))
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "[compare]\ndatasets = ['tiny.npz']",
            ["line 1", "mscam-dask compare", "mscam-dask sweep", "[sweep]"],
        ),
        (
            "[sweep]\ndatasets = ['tiny.npz']\nalpha = [1, 1.0]",
            ["line 3", "[sweep] alpha", "(1.0, 1.0)"],
        ),
        ("[sweep]\ndatasets = ['tiny.npz']\nscale = 'unti'", ["[sweep] scale", "'unti'", "'unit'"]),
        ("[sweep]\ndatasets = ['tiny.npz']\n[grid.mscam]\nalpha = [1]", ["[grid]", "[sweep]"]),
    ],
)
def test_what_is_wrong_with_a_sweep(write: Write, text: str, parts: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_experiment(write(text), command="sweep")
    for part in parts:
        assert part in str(caught.value)


def test_every_problem_at_once(write: Write) -> None:
    text = "[compare]\ndatasets = ['no']\nmethods = ['mlam']\nruns = 'x'\n[output]\ndir = 'x'"
    with pytest.raises(ConfigurationError) as caught:
        read_experiment(write(text))
    lines = str(caught.value).splitlines()
    assert any("[compare] runs" in line and "'x'" in line for line in lines)
    assert any("[output]" in line and "'dir'" in line for line in lines)
